"""Run the tests on several numbers of ranks, one after the other, and add up the outcomes.

Runs inside the environment (`make test`).  On one rank pytest runs all tests,
without a launcher; on more, those marked `mpi`.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from environment import ROOT, run_for

SHARED_MEMORY = Path("/dev/shm")
SECONDS = 600
SUMMARY = re.compile(r"^=* ?((?:\d+ \w+, )*\d+ \w+) in [\d.]+s", re.MULTILINE)


def command_for(size, paths):
    """The command that runs the tests on `size` ranks."""
    pytest = [sys.executable, "-m", "pytest", "--quiet", "--color=no", "--with-mpi", *paths]
    if size == 1:
        return pytest
    # Not --only-mpi: beside --with-mpi it has no effect, and alone it disregards mpi_skip and mpi_xfail.
    pytest += ["-m", "mpi and not slow and not slurm"]
    # Failures come on standard error from every rank; dots and summaries of one rank are enough.
    silent = ["sh", "-c", 'exec "$@" > /dev/null', "sh", *pytest]
    return ["mpiexec", "-n", "1", *pytest, ":", "-n", str(size - 1), *silent]


def counts(output):
    """The numbers in pytest's last line: {"passed": 3, ...}; empty where the run did not get there."""
    summaries = SUMMARY.findall(output)
    words = summaries[-1].replace(",", "").split() if summaries else []
    return dict(zip(words[1::2], map(int, words[::2]), strict=True))


def copy_lines(stream, lines):
    """Pass on what arrives on a stream, and keep it."""
    for line in stream:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)


def run(size, paths):
    """Run on `size` ranks, showing the output; returns the status and the counts."""
    read_end, write_end = os.pipe()
    lines = []
    with open(read_end, errors="replace") as stream:
        reader = threading.Thread(target=copy_lines, args=(stream, lines), daemon=True)
        reader.start()
        status, _ = run_for(command_for(size, paths), SECONDS, cwd=ROOT, stdout=write_end, stderr=subprocess.STDOUT)
        os.close(write_end)
        reader.join(timeout=10)  # a rank that outlived its launcher would hold the stream open
    if status == 124:
        print(f"ended after {SECONDS} seconds", flush=True)
    return status, counts("".join(lines))


def remove_left_shared_memory():
    """Remove what aborted jobs of this user left behind; in a container it would soon fill the little there is."""
    mapped, now = set(), time.time()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped.update(re.findall(r"/dev/shm/\S+", maps.read_text()))
        except OSError:  # the process has ended, or is somebody else's
            continue
    for pattern in ("mpich_shm_*", "sm_segment.*"):
        for file in SHARED_MEMORY.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # its job has just ended
                status = file.stat()
                # A job that has just begun has made its file, but not mapped it yet.
                if str(file) not in mapped and status.st_uid == os.getuid() and now - status.st_mtime > 10:
                    file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 3, 4], help="numbers of ranks")
    parser.add_argument("paths", nargs="*", default=["tests"], help="what pytest is to collect")
    options = parser.parse_args()
    passed = failed = 0
    for size in options.sizes:
        remove_left_shared_memory()
        print(f"\n== {size} rank{'s' if size > 1 else ''}", flush=True)
        began = time.monotonic()
        status, outcome = run(size, options.paths)
        good, bad = outcome.get("passed", 0), sum(outcome.get(word, 0) for word in ("failed", "error", "errors"))
        if status not in (0, 5) and not bad:  # 5: nothing of these paths is for ranks
            bad = 1  # the run itself: a rank crashed or hung
        print(f"== {size}: {good} passed, {bad} failed, {time.monotonic() - began:.0f} s", flush=True)
        passed += good
        failed += bad
    remove_left_shared_memory()
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
