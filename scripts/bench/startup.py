"""What `import spmdlayer` costs, in processes of its own."""

import statistics
import subprocess
import sys

CODE = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"


def seconds(module):
    """The time of one import in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main():
    """Print the figures; returns the median seconds of importing spmdlayer."""
    ours, numpy = zip(*((seconds("spmdlayer"), seconds("numpy")) for _ in range(7)), strict=True)
    print(
        f"start-up: import spmdlayer {statistics.median(ours):.3f} s ({min(ours):.3f} - {max(ours):.3f}; bar: 0.25), "
        f"of which numpy {statistics.median(numpy):.3f} s"
    )
    return statistics.median(ours)


if __name__ == "__main__":
    main()
