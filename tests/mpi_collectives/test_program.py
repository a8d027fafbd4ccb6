"""A program of mpi4py that gets gradients by changing the module of its collectives."""

from mpi_helpers import launch


def test_a_program_of_mpi4py_with_gradients():
    """Least squares by gradient descent; the data is spread over the ranks, nothing is distributed."""
    job = launch(
        2,
        """
import numpy as np, spmdlayer as spmd
from spmdlayer import mpi
rank, size = spmd.get_rank(), spmd.get_world_size()
rows = np.random.default_rng(0).standard_normal((40, 3))
mine, target = rows[rank::size], (rows @ [1.0, -2.0, 3.0])[rank::size]
w = spmd.tensor(np.zeros(3), requires_grad=True)
for step in range(200):
    everywhere = mpi.bcast(w, 0)
    loss = mpi.reduce(((mine @ everywhere - target) ** 2).sum())
    (loss if rank == 0 else w.sum() * 0).backward()
    with spmd.no_grad():
        w -= 0.01 * w.grad
    w.clear_grad()
if rank == 0:
    print(np.round(w.detach().numpy(), 3))
""",
    )
    assert job.status == 0, job.stderr
    assert "[ 1. -2.  3.]" in job.stdout
