"""300 operations of mixed families on shards of 1 MiB, against the same NumPy operations and collectives by hand."""

import numpy as np
from timing import interleaved

import spmdlayer as spmd

ROWS, COLUMNS = 512, 256  # a rank's piece: 1 MiB of float64
REPEATS = 15  # of a program of 20 operations


def program(x, xp, w, b, concat, added):
    """20 operations; `added` adds a sum over all ranks' rows to an array."""
    y = xp.tanh(x * 1.01 + b)
    powers = xp.exp(y - y.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    z = added(shares, shares.sum(axis=0) * 0.001)
    z = xp.permute_dims(z.reshape((x.shape[0], 16, 16)), (0, 2, 1)).reshape(x.shape)
    z = xp.where(z > 0.004, z, 0.5) @ w
    return xp.maximum(concat([z[:, 128:], x[:, :128]], axis=1), -1.0) - z


def main():
    """Print the ratio; returns it."""
    size = spmd.get_world_size()
    mesh = spmd.init_mesh((size,))
    comm = mesh.get_group(0)
    random = np.random.default_rng(0)
    values = random.normal(size=(ROWS * size, COLUMNS))
    weight, bias = random.normal(size=(COLUMNS, COLUMNS)) / 16, random.normal(size=COLUMNS)
    x = spmd.shard_tensor(values, mesh, [spmd.Shard(0)])
    w, b = (spmd.shard_tensor(array, mesh, [spmd.Replicate()]) for array in (weight, bias))
    piece = np.ascontiguousarray(np.array_split(values, size)[mesh.rank])

    def ours():
        y = x
        for _ in range(REPEATS):
            y = program(y, spmd, w, b, spmd.concat, lambda array, total: array + total)
        return y

    def reduced(array, total):
        everywhere = np.empty_like(total)
        comm.Allreduce(total, everywhere)
        return array + everywhere

    def by_hand():
        y = piece
        for _ in range(REPEATS):
            y = program(y, np, weight, bias, np.concatenate, reduced)
        return y

    with spmd.trace() as traced:
        y = ours()
    np.testing.assert_allclose(y.to_local().numpy(), by_hand(), rtol=1e-9, atol=1e-9)
    mine, raw = interleaved([ours, by_hand], calls=1, rounds=15, before=spmd.barrier)
    ratio = raw.median / mine.median
    spmd.print_once(
        f"mixed: {20 * REPEATS} operations on 1 MiB a rank, {size} ranks, {traced.count()} collectives\n"
        f"  ours    {mine}\n  by hand {raw}\n  speed   {ratio:.2f} of that by hand (bar: 0.9)"
    )
    return ratio


if __name__ == "__main__":
    main()
