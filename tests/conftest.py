"""How tests report on several ranks, and how a run ends when one rank fails.

pytest knows only its own process: a rank that fails would go on to the next
test while the others wait for it in this one, and nobody would see why.  So on
several ranks the outcome of each test is agreed.  Where it failed on all, the
run goes on; where on some, it ends there with a status that says so, after a
moment in which other ranks can write their reports too.
"""

import sys
import time

import pytest

GRACE = 2.0  # seconds that a rank which has failed waits for the others to come to the end of the test
_EMPTY = 5  # pytest's status of a run that had nothing to do


class Ranks:
    """This process among the ranks of the run, and how they agree."""

    def __init__(self):
        from mpi4py import MPI

        self.mpi = MPI
        self.rank = MPI.COMM_WORLD.rank
        self.size = MPI.COMM_WORLD.size
        self.comm = MPI.COMM_WORLD.Dup() if self.size > 1 else MPI.COMM_WORLD

    def write(self, text):
        """To the terminal, past pytest's capturing: all in one write, so that ranks do not interleave."""
        prefix = f"[rank {self.rank}] "
        sys.__stderr__.write("".join(f"{prefix}{line}\n" for line in text.rstrip("\n").split("\n")))
        sys.__stderr__.flush()

    def outcomes(self, failed):
        """Whether each rank has failed, or None where this one has and others do not come in time."""
        flags = bytearray(self.size)
        request = self.comm.Iallgather(bytearray([failed]), flags)
        end = time.monotonic() + GRACE
        while not request.Test():
            # Where this rank has not failed and another is stuck, that one's faulthandler_timeout ends the job.
            if failed and time.monotonic() > end:
                return None
            time.sleep(0.0005)  # leaves the core to ranks that still work; MPI's own waiting would not
        return flags

    def agree(self, failed, what):
        """End the job where some ranks have failed and others not."""
        flags = self.outcomes(failed)
        if flags is not None and (all(flags) or not any(flags)):
            return
        if failed:
            others = "do not come to its end" if flags is None else "have not"
            self.write(f"{what}: failed on this rank, other ranks {others}; the run ends here")
        time.sleep(0.2)  # until what ranks have written is through
        self.mpi.COMM_WORLD.Abort(1)


class Reporter:
    """Hooks for runs on several ranks."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.failed = False

    def pytest_runtest_logreport(self, report):
        self._look_at(report, f"{report.nodeid} ({report.when})")

    def pytest_collectreport(self, report):
        self._look_at(report, f"collecting {report.nodeid}")

    def _look_at(self, report, what):
        if not report.failed:
            return
        self.failed = True
        sections = [f"--- {title}\n{text}" for title, text in report.sections]
        self.ranks.write("\n".join([f"FAILED {what}", report.longreprtext, *sections]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.failed = False
        result = yield
        self.ranks.agree(self.failed, item.nodeid)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus):
        self.ranks.agree(exitstatus not in (0, _EMPTY), f"pytest, status {int(exitstatus)}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        # The first to leave with a failure ends the job; by now all have printed their summaries.
        self.ranks.agree(False, "the end of pytest")


def pytest_configure(config):
    if config.getoption("--with-mpi") or config.getoption("--only-mpi"):
        config.ranks = Ranks()
        if config.ranks.size > 1:
            config.pluginmanager.register(Reporter(config.ranks), "spmdlayer-ranks")


def pytest_report_header(config):
    ranks = getattr(config, "ranks", None)
    if ranks is None:
        return "MPI: not used; --with-mpi runs the tests on ranks too"
    vendor, version = ranks.mpi.get_vendor()
    return f"MPI: {vendor} {'.'.join(map(str, version))}, rank {ranks.rank} of {ranks.size}"
