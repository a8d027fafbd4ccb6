"""All benchmarks, a few minutes: `make bench`, or `mpiexec -n 2 python scripts/bench/run.py`.

Each compares in one run with NumPy, the raw mpi4py call or torch (where it is installed), and prints
ratios or differences; nothing here is a test.
"""

import dispatch
import halo
import mixed
import region
import reshard
import startup
import tape
from timing import machine

import spmdlayer as spmd


def main():
    rank = spmd.get_rank()
    if rank == 0:
        from mpi4py import MPI

        print(machine(MPI.Get_library_version().splitlines()[0].strip("\0")))
        startup.main()
        tape.main()
    spmd.barrier()
    region.main()
    reshard.main()
    halo.main()
    mixed.main()
    dispatch.main()


if __name__ == "__main__":
    main()
