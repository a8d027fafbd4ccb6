"""How MPI starts and how a job ends, in jobs of their own."""

import textwrap

import pytest
from mpi_helpers import assert_all, launch

from spmdlayer.runtime import get_rank, get_world_size, init_parallel_env, mpi, subgroup

# One rank fails while the others wait for it in a collective; the last line is what it does.
FAILING = """
import os, sys, threading
import numpy as np
from spmdlayer.runtime import barrier, get_rank, init_parallel_env
init_parallel_env()
if get_rank() == 1:
    {fails}
barrier()
"""
FAILURES = {
    "exception": ("raise ValueError('bad news')", 1, "bad news"),
    "in a thread": (
        "thread = threading.Thread(target=lambda: 1 / 0, name='worker'); thread.start(); thread.join()",
        1,
        "ZeroDivisionError",
    ),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "sys.exit with a text": ("sys.exit('bad news')", 1, "bad news"),
    "SystemExit": ("raise SystemExit(4)", 4, ""),
    "os._exit": ("os._exit(5)", None, ""),  # the launcher's doing: mostly 5, at times how it ended the other rank
}


@pytest.mark.parametrize("failure", FAILURES)
def test_one_failing_rank_ends_the_job(failure):
    fails, status, words = FAILURES[failure]
    job = launch(2, FAILING.format(fails=fails))
    assert job.status == status if status is not None else job.status not in (0, None), job
    assert words in job.stderr
    if words:
        lines = [line for line in job.stderr.splitlines() if words in line and "raise " not in line]
        assert len(lines) == 1 and lines[0].startswith("[rank 1] "), job.stderr  # once, and it says whose


def test_a_traceback_is_printed_once_and_names_the_line():
    job = launch(3, FAILING.format(fails="raise ValueError('bad news')"))
    assert job.stderr.count("Traceback") == 1
    assert job.stderr.count("ValueError: bad news") == 1
    assert "[rank 1] Traceback" in job.stderr


@pytest.mark.parametrize(
    "ends",
    [
        "sys.exit()",
        "sys.exit(0)",
        "raise SystemExit",
        "exec('try: sys.exit(3)\\nexcept SystemExit as error: assert error.code == 3')",
        "exec('try: raise ValueError\\nexcept ValueError: pass')",
    ],
)
def test_what_is_no_failure_ends_well(ends):
    code = textwrap.dedent("""
        import sys
        from spmdlayer.runtime import barrier
        barrier()
        print("here", flush=True)
        """)
    job = launch(2, code + ends)
    assert job.status == 0, job
    assert job.stdout.count("here") == 2


def test_a_users_excepthook_is_kept():
    hook = "sys.excepthook = lambda *what: print('the hook:', what[1], file=sys.stderr)\n"
    job = launch(2, "import sys\n" + hook + FAILING.format(fails="raise ValueError('bad news')"))
    assert job.status == 1
    assert "the hook: bad news" in job.stderr


def test_a_failing_child_process_does_not_end_the_job():
    code = textwrap.dedent("""
        import multiprocessing, sys
        from spmdlayer.runtime import barrier
        barrier()
        child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
        child.start()
        child.join()
        assert child.exitcode == 3
        barrier()
        print("here", flush=True)
        """)
    job = launch(2, code)
    assert job.status == 0, job
    assert job.stdout.count("here") == 2


def test_import_starts_no_mpi():
    code = "import sys, spmdlayer; assert 'mpi4py.MPI' not in sys.modules; spmdlayer.get_rank(); assert {started}"
    job = launch(0, code.format(started="'mpi4py.MPI' in sys.modules"))
    assert job.status == 0, job


def test_the_first_mesh_starts_mpi():
    code = "import sys, spmdlayer; spmdlayer.init_mesh((1,)); assert sys.modules['mpi4py.MPI'].Is_initialized()"
    assert launch(0, code).status == 0


def test_after_the_end_of_mpi_it_says_so():
    code = "from mpi4py import MPI; MPI.Finalize(); import spmdlayer; spmdlayer.get_rank()"
    job = launch(0, code)
    assert job.status == 1
    assert "finalised" in job.stderr


def test_the_allocator_is_left_alone_when_asked():
    """Freed memory is given back at once then, and stays otherwise."""
    code = textwrap.dedent("""
        import numpy as np, spmdlayer
        spmdlayer.init_parallel_env()
        resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
        x = np.ones(8 << 20)
        del x
        before = resident()
        x = np.ones(8 << 20)
        held = resident() - before
        print(held > 32 << 20)
        """)
    assert launch(0, code, SPMDLAYER_MALLOC="0").stdout.strip() == "True"
    assert launch(0, code).stdout.strip() == "False"


def test_uneven_ends_of_programs_are_waited_for():
    """A rank may work on by itself after the others have ended."""
    code = textwrap.dedent("""
        import time
        import numpy as np, spmdlayer
        from spmdlayer.comm import channel
        mesh = spmdlayer.init_mesh((spmdlayer.get_world_size(),))
        channel(mesh, 0).allreduce(np.ones(3), "sum")
        if spmdlayer.get_rank() == 0:
            time.sleep(3)
            print("done", flush=True)
        """)
    job = launch(3, code)
    assert (job.status, job.stdout.split()) == (0, ["done"])


@pytest.mark.mpi
def test_rank_and_size():
    init_parallel_env()
    assert (get_rank(), get_world_size()) == (mpi().COMM_WORLD.rank, mpi().COMM_WORLD.size)


@pytest.mark.mpi(min_size=3)
def test_subgroups_need_only_their_ranks_and_are_kept():
    world = mpi().COMM_WORLD
    group = subgroup(world, (2, 0))
    if world.rank in (0, 2):
        assert group.allgather(world.rank) == [2, 0]
        assert subgroup(world, [2, 0]) is group
        assert subgroup(world, (0, 2)).allgather(world.rank) == [0, 2]
    else:
        assert group is None


@pytest.mark.mpi
def test_subgroups_are_freed_with_their_parent():
    MPI = mpi()
    parent = MPI.COMM_WORLD.Dup()
    group = subgroup(parent, tuple(range(parent.size)))
    assert group.allreduce(1) == parent.size
    parent.Free()
    assert_all(group == MPI.COMM_NULL)
