"""What a LocalLayer call costs beyond its collectives, forward and backward."""

import numpy as np
from timing import interleaved

import spmdlayer as spmd


class Doubled(spmd.LocalLayer):
    """The smallest layer: one local operation."""

    def forward(self, x):
        return x * 2.0


def main():
    """Print the figures; returns the seconds above the collectives for forward with backward."""
    mesh = spmd.init_mesh((spmd.get_world_size(),), ("x",))
    shard = [spmd.Shard(0)]
    layer = Doubled([(mesh, shard)], [(mesh, shard)])
    x = spmd.shard_tensor(np.ones(2 * mesh.size), mesh, shard, requires_grad=True)
    g = spmd.shard_tensor(np.ones(2 * mesh.size), mesh, shard)
    comm = mesh.get_group("x")
    sent, received = np.zeros(512, np.uint8), np.zeros(512 * mesh.size, np.uint8)

    def step():
        spmd.backward(layer(x), g)
        x.clear_grad()

    with spmd.trace() as events:
        step()
    records = events.count("record")
    others = events.count()

    def collectives():
        for _ in range(records):
            comm.Allgather(sent, received)

    whole, raw, forward = interleaved([step, collectives, lambda: layer(x)], calls=300, before=spmd.barrier)
    above = whole.median - raw.median
    spmd.print_once(
        f"region: a LocalLayer call around one operation on 2 items a rank, {mesh.size} ranks; {records} records and "
        f"{others} other collectives\n"
        f"  forward and backward {whole}\n  forward alone        {forward}\n  the raw records      {raw}\n"
        f"  beyond collectives   {1e6 * above:9.2f} us (bar: 40)"
    )
    return above


if __name__ == "__main__":
    main()
