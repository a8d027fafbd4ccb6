"""What a trace counts."""

import threading
from pathlib import Path

import numpy as np
import pytest
from mpi_helpers import assert_all

from spmdlayer.comm import channel
from spmdlayer.config import state
from spmdlayer.debug.tracing import trace
from spmdlayer.mesh import init_mesh
from spmdlayer.runtime import get_world_size

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def line():
    return channel(init_mesh((get_world_size(),), ("x",)), "x")


def test_each_collective_is_one_event(line):
    n, x = line.size, np.ones(12)
    with trace() as t:
        line.allreduce(x, "sum")
        line.reduce_scatter([x] * n, "max")
        line.allgather(x, [(12,)] * n)
        line.allgather_into_dim(x, 0, [12] * n)
        line.alltoall([x] * n, [(12,)] * n)
        line.bcast(x if line.rank == 0 else None, 0, (12,), x.dtype)
        line.record(b"abc")
    names = ["allreduce", "reduce_scatter", "allgather", "allgather", "alltoall", "bcast", "record"]
    assert [event.name for event in t.events] == names
    assert all(event.axis == "x" and event.seconds >= 0 and event.phase == "forward" for event in t.events)
    sent = [event.bytes for event in t.events]
    assert sent[1:3] == [96 * (n - 1), 96 * (n - 1)]
    assert sent[4] == 96 * (n - 1)


def test_records_count_only_when_asked_for(line):
    with trace() as t:
        line.record(b"abc")
        line.allreduce(np.ones(3), "sum")
    assert t.count() == 1
    assert t.count("record") == 1
    assert t.count(records=True) == 2
    assert t.bytes("record") == 3 * (line.size - 1)
    assert t.bytes() < t.bytes(records=True)


def test_axes_and_phases():
    mesh = init_mesh((1, get_world_size()), ("a", "b"))
    x = np.ones(3)
    with trace() as t:
        channel(mesh, "a").allreduce(x, "sum")  # one rank: nothing to do
        channel(mesh, "b").allreduce(x, "sum")
        channel(mesh, None).allgather(x, [(3,)] * mesh.size)
        channel(mesh, ("a", "b")).allreduce(x, "max")
        state.phase = "backward"
        try:
            channel(mesh, "b").allreduce(x, "sum")
        finally:
            state.phase = "forward"
    assert t.count() == 4
    assert t.count(axis="b", phase="forward", name="allreduce") == 2
    assert t.count(phase="backward") == 1
    assert t.count("allgather", axis="mesh") == 1
    assert t.count(axis="c") == 0


def test_source_is_the_users_line(line):
    with trace() as t:
        line.allreduce(np.ones(3), "sum")
    (event,) = t.events
    file, number = event.source.rsplit(":", 1)
    assert Path(file).name == "test_tracing.py"
    assert 'line.allreduce(np.ones(3), "sum")' in Path(__file__).read_text().splitlines()[int(number) - 1]


def test_traces_nest(line):
    x = np.ones(3)
    with trace() as outer:
        line.allreduce(x, "sum")
        with trace() as inner:
            line.allreduce(x, "sum")
        line.allreduce(x, "sum")
    line.allreduce(x, "sum")
    assert (outer.count(), inner.count()) == (3, 1)


def test_nothing_is_recorded_after_an_exception(line):
    with pytest.raises(ZeroDivisionError), trace() as t:
        raise ZeroDivisionError
    line.allreduce(np.ones(3), "sum")
    assert t.count() == 0


def test_an_empty_alltoall_sends_nothing(line):
    with trace() as t:
        line.alltoall([np.ones(0)] * line.size, [(0,)] * line.size)
    assert t.bytes() == 0


def test_the_table(line):
    with trace() as t:
        line.allreduce(np.ones(1000), "sum")
    head, row = str(t).splitlines()
    assert head.split()[:3] == ["name", "axis", "bytes"]
    assert row.split()[:2] == ["allreduce", "x"]
    assert "test_tracing.py" in row


def test_tracing_changes_no_result(line):
    x = np.arange(6.0).reshape(2, 3)
    plain = line.allreduce(x, "sum")
    with trace():
        traced = line.allreduce(x, "sum")
    assert_all(np.array_equal(plain, traced) and traced.flags.c_contiguous)


def test_collectives_of_another_thread_are_seen(line):
    if not line.threads:
        pytest.skip("this MPI is not for several threads")
    with trace() as t:
        thread = threading.Thread(target=line.allreduce, args=(np.ones(3), "sum"))
        thread.start()
        thread.join()
    assert t.count() == 1
