"""The examples as users start them, on 1 to 4 ranks."""

from pathlib import Path

import numpy as np
import pytest
from mpi_helpers import launch

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"

LOCAL_LOSSES = ["1.5", "6.0", "9.5", "5.0"]  # means of items 1:3, 4:7, 7:9 and 0:5 of arange(10) + rank
GRADIENTS = [
    "0, 0.5, 0.5, 0, 0, 0, 0, 0, 0, 0",
    "0, 0, 0, 0, 0.3333, 0.3333, 0.3333, 0, 0, 0",
    "0, 0, 0, 0, 0, 0, 0, 0.5, 0.5, 0",
    "0.2, 0.2, 0.2, 0.2, 0.2, 0, 0, 0, 0, 0",
]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_local_loss(size):
    job = launch(size, [EXAMPLES / "local_loss.py"])
    assert job.status == 0, job.stderr
    total = sum(map(float, LOCAL_LOSSES[:size]))
    expected = [f"[Rank {r}] local_loss={LOCAL_LOSSES[r]}" for r in range(size)]
    expected += [f"global_loss (distributed)={total}"]
    expected += [f"[Rank {r}] gradient=[{GRADIENTS[r]}]" for r in range(size)]
    assert job.stdout.splitlines() == expected


def digits_curve(size, folder):
    """The loss curve of a short training on some ranks; it has learnt something."""
    curve = folder / f"{size}.txt"
    options = ["--epochs", "8", "--batch", "256", "--picture", "", "--curve", curve]
    job = launch(size, [EXAMPLES / "digits.py", *options], timeout=55)
    assert job.status == 0, job.stderr
    assert float(job.stdout.rsplit("accuracy", 1)[1].split("%")[0]) > 90.0
    return np.loadtxt(curve)


@pytest.fixture(scope="module")
def curve_of_one_rank(tmp_path_factory):
    pytest.importorskip("sklearn")
    return digits_curve(1, tmp_path_factory.mktemp("digits"))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_loss_curve_of_digits_does_not_depend_on_the_number_of_ranks(curve_of_one_rank, size, tmp_path):
    np.testing.assert_allclose(digits_curve(size, tmp_path), curve_of_one_rank, atol=2e-5)


def test_digits_draws_its_loss_curve(tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.png"
    job = launch(2, [EXAMPLES / "digits.py", "--epochs", "2", "--picture", picture], timeout=55)
    assert job.status == 0, job.stderr
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def control_values(size, folder):
    """The costs along the way of a small control problem on some ranks."""
    values = folder / f"control{size}.txt"
    options = ["--size", "14", "--steps", "8", "--picture", "", "--values", values]
    job = launch(size, [EXAMPLES / "poisson_control.py", *options], timeout=55)
    assert job.status == 0, job.stderr
    return np.loadtxt(values)


def test_the_control_of_a_plate_does_not_depend_on_the_number_of_ranks(tmp_path):
    one = control_values(1, tmp_path)
    assert one.size == 8 and np.all(np.diff(one) < 0) and one[-1] < 0.75 * one[0]
    for size in (2, 4):
        np.testing.assert_allclose(control_values(size, tmp_path), one, rtol=1e-5)
