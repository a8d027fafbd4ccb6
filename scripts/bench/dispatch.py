"""What a distributed operation on 4 elements costs where nothing moves, forward and backward; beside torch's DTensor.

torch is compared where it is installed; the bar is 0.35 of its time.
"""

import os
import tempfile
import time
from importlib.util import find_spec

from timing import figure

import spmdlayer as spmd

CHAIN = 100
ROUNDS = 25
NAMES = ("multiply", "add", "tanh")
START, FACTOR = [0.1, 0.2, 0.3, 0.4], [1.0, 0.99, 1.01, 1.0]


def _ours(mesh):
    shard = [spmd.Shard(0)]
    x, w, g = (spmd.shard_tensor(values, mesh, shard) for values in (START, FACTOR, [1.0] * 4))
    x.requires_grad = w.requires_grad = True
    operations = {"multiply": lambda y: y * w, "add": lambda y: y + w, "tanh": spmd.tanh}

    def clear():
        x.clear_grad()
        w.clear_grad()

    return x, operations, lambda y: spmd.backward(y, g), clear


def _torch(rank, size):
    import torch
    import torch.distributed
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (size,))
    local = [torch.tensor(values, dtype=torch.float64).chunk(size)[rank] for values in (START, FACTOR, [1.0] * 4)]
    x, w, g = (DTensor.from_local(piece.clone(), mesh, [Shard(0)]) for piece in local)
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    operations = {"multiply": lambda y: y * w, "add": lambda y: y + w, "tanh": torch.tanh}

    def clear():
        x.grad = w.grad = None

    return x, operations, lambda y: y.backward(g), clear


def _process_group():
    """Let torch's processes meet over a file that rank 0 names."""
    import torch.distributed

    comm = spmd.init_mesh((spmd.get_world_size(),)).get_group(0)
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{os.path.join(folder, 'store')}", rank=comm.rank, world_size=comm.size
    )
    return torch.distributed


def _once(library, name):
    """Seconds an operation: (forward, backward)."""
    x, operations, backward, clear = library
    operation, y = operations[name], x
    start = time.perf_counter()
    for _ in range(CHAIN):
        y = operation(y)
    middle = time.perf_counter()
    backward(y)
    end = time.perf_counter()
    clear()
    return (middle - start) / CHAIN, (end - middle) / CHAIN


def measure(libraries, name):
    """For each library the Figures of forward and backward, measured in turn."""
    samples = [[] for _ in libraries]
    for round_ in range(ROUNDS + 2):
        for library, kept in zip(libraries, samples, strict=True):
            spmd.barrier()
            seconds = _once(library, name)
            if round_ >= 2:
                kept.append(seconds)
    return [[figure(column) for column in zip(*kept, strict=True)] for kept in samples]


def main():
    """Print the table; returns {name: our time over torch's}, empty without torch."""
    size = spmd.get_world_size()
    libraries, group, ratios = [_ours(spmd.init_mesh((size,)))], None, {}
    if find_spec("torch") is not None:
        group = _process_group()
        libraries.append(_torch(spmd.get_rank(), size))
    spmd.print_once(
        f"dispatch: a distributed operation on 4 elements, {size} ranks, nothing moves (bar: 0.35 of torch)"
    )
    for name in NAMES:
        figures = measure(libraries, name)
        text = ", ".join(f"{1e6 * forward.median:6.2f} + {1e6 * back.median:6.2f} us" for forward, back in figures)
        if group is not None:
            ours, theirs = (forward.median + back.median for forward, back in figures)
            ratios[name] = ours / theirs
            text += f": {ratios[name]:.2f}"
        spmd.print_once(f"  {name:9} forward + backward {text}")
    if group is not None:
        group.destroy_process_group()
    return ratios


if __name__ == "__main__":
    main()
