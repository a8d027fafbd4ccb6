"""How `make` finds out whether an MPI works, and adds up what the tests on several numbers of ranks say."""

import importlib
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("environment")


@pytest.fixture
def run_tests(environment):
    return importlib.import_module("run_tests")


@pytest.fixture
def probe_with(environment, monkeypatch, tmp_path):
    """Probes this Python with a launcher that is a shell script."""

    def probe(script):
        tested = environment.Environment("system")
        tested.path, tested.python = tmp_path, Path(sys.executable)
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "mpiexec").write_text(f"#!/bin/sh\nshift 2\n{script}\n")
        (folder / "mpiexec").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return tested.probe()

    return probe


def test_probe_refuses_a_launcher_of_another_mpi(probe_with):
    # Each process takes itself for the only rank, and all end well.
    works, reason = probe_with('for rank in 0 1; do echo "ranks [0] Some MPI 1.0"; done')
    assert not works and "do not see each other" in reason


def test_probe_refuses_a_launcher_that_fails(probe_with):
    works, reason = probe_with("echo mpiexec: there are no slots >&2; exit 7")
    assert not works and "status 7" in reason and "no slots" in reason


def test_probe_refuses_a_launcher_that_hangs(probe_with, environment, monkeypatch):
    monkeypatch.setattr(environment, "PROBE_SECONDS", 0.2)
    works, reason = probe_with("sleep 60")
    assert not works and "status 124" in reason


def test_probe_takes_ranks_that_see_each_other(probe_with):
    assert probe_with('echo "ranks [0, 1] Some MPI 1.0"') == (True, "Some MPI 1.0")


def test_variables_let_the_user_decide(environment, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    variables = environment.Environment("mpich").variables()
    assert variables["OMP_NUM_THREADS"] == "3" and variables["OPENBLAS_NUM_THREADS"] == "1"
    assert variables["PATH"].startswith(str(environment.ROOT / ".venv-mpich" / "bin"))


def test_unknown_mpi_is_an_error(environment, monkeypatch):
    monkeypatch.setenv("MPI", "lam")
    with pytest.raises(SystemExit, match="MPI=lam: unknown; give mpich, openmpi or system"):
        environment.choose()


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("12 passed in 0.10s\n", {"passed": 12}),
        ("== 1 failed, 2 passed, 3 skipped in 61.00s (0:01:01) ==\n", {"failed": 1, "passed": 2, "skipped": 3}),
        ("5 passed in 1.0s\n1 failed, 4 passed in 1.1s\n", {"failed": 1, "passed": 4}),
        ("1 error in 0.2s\n", {"error": 1}),
        ("rank 1 went away\n", {}),
    ],
)
def test_counts_of_pytest_output(run_tests, output, counts):
    assert run_tests.counts(output) == counts
