"""The softmax cross-entropy kernel and its NumPy twin, against NumPy on float64 and finite differences."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmdlayer.kernels import softmax, softmax_cross_entropy

TOLERANCE = {"float32": 3e-6, "float64": 1e-14}
SHAPES = [(1, 1), (1, 7), (5, 2), (7, 10), (33, 63), (33, 64), (3, 65), (300, 10), (2, 5000)]


@pytest.fixture(params=["numba", "numpy"])
def implementation(request, monkeypatch):
    """Both implementations, behind the public function."""
    if request.param == "numba":
        fill = pytest.importorskip("spmdlayer.kernels.softmax_numba").fill
    else:
        fill = softmax.fill_with_numpy
    monkeypatch.setattr(softmax, "_implementation", lambda: fill)


def reference(logits, labels, weights=1.0):
    """Losses and gradient in float64, straight from the definition."""
    logits = logits.astype(np.float64)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    sums = exponentials.sum(axis=1)
    rows = np.arange(len(labels))
    losses = np.log(sums) + logits.max(axis=1) - logits[rows, labels]
    onehot = np.zeros_like(logits)
    onehot[rows, labels] = 1
    return losses * weights, (exponentials / sums[:, None] - onehot) * np.reshape(weights, (-1, 1))


def problem(shape, dtype, scale=3.0, seed=0):
    generator = np.random.default_rng(seed)
    logits = (generator.standard_normal(shape) * scale).astype(dtype)
    return logits, generator.integers(0, shape[1], shape[0])


def assert_like(result, expected, dtype, scale=1.0):
    for got, right in zip(result, expected, strict=True):
        assert got.dtype == dtype and got.shape == right.shape and got.flags.c_contiguous
        np.testing.assert_allclose(got, right, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


@pytest.mark.usefixtures("implementation")
class TestBoth:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_losses_and_gradient(self, shape, dtype):
        logits, labels = problem(shape, dtype)
        assert_like(softmax_cross_entropy(logits, labels), reference(logits, labels), dtype, scale=10)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_weights(self, dtype):
        logits, labels = problem((9, 5), dtype)
        weights = np.array([0, 1, 2, 0.5, -1, 0, 3, 1, 1])
        result = softmax_cross_entropy(logits, labels, weights)
        assert_like(result, reference(logits, labels, weights), dtype, scale=10)
        assert result[0][0] == 0 and not result[1][0].any()

    @pytest.mark.parametrize("classes", [3, 70])
    def test_finite_differences(self, classes):
        logits, labels = problem((4, classes), "float64", scale=1.0)
        weights = np.array([1.0, 2.0, 0.5, 3.0])
        gradient = softmax_cross_entropy(logits, labels, weights)[1]
        step = 1e-6
        for column in range(classes):
            above, below = logits.copy(), logits.copy()
            above[:, column] += step
            below[:, column] -= step
            up, down = (softmax_cross_entropy(moved, labels, weights)[0] for moved in (above, below))
            np.testing.assert_allclose(gradient[:, column], (up - down) / (2 * step), atol=1e-8)

    @pytest.mark.parametrize("classes", [0, 1, 10])
    def test_no_rows(self, classes):
        losses, gradient = softmax_cross_entropy(np.zeros((0, classes), "float32"), np.zeros(0, int))
        assert losses.shape == (0,) and gradient.shape == (0, classes)
        assert losses.dtype == gradient.dtype == np.float32

    def test_one_class_costs_nothing(self):
        losses, gradient = softmax_cross_entropy(np.array([[5.0], [-1e30]]), [0, 0])
        assert losses.tolist() == [0, 0] and gradient.tolist() == [[0], [0]]

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("classes", [3, 100])
    def test_large_logits(self, dtype, classes):
        huge = float(np.finfo(dtype).max) * 0.9
        logits = np.full((3, classes), -huge, dtype)
        logits[0, 1] = huge
        logits[1] = huge
        logits[2] = np.linspace(-2000, 0, classes)
        losses, gradient = softmax_cross_entropy(logits, [1, 0, classes - 1])
        assert losses[0] == 0 and not gradient[0].any()
        np.testing.assert_allclose(losses[1], np.log(classes), rtol=1e-6)
        np.testing.assert_allclose(gradient[1], 1 / classes - np.eye(classes)[0], atol=1e-6)
        assert_like((losses[2:], gradient[2:]), reference(logits[2:], [classes - 1]), dtype)

    @pytest.mark.parametrize("classes", [4, 100])
    def test_wrong_by_a_lot_is_the_difference_of_logits(self, classes):
        logits = np.zeros((1, classes), "float32")
        logits[0, 2] = 1000
        losses, gradient = softmax_cross_entropy(logits, [0])
        assert losses[0] == 1000 and gradient[0, 0] == -1 and gradient[0, 2] == 1

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("classes", [1, 3, 100])
    @pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf])
    def test_nan_and_infinity_spoil_their_row_only(self, value, classes, dtype):
        for column in {0, classes // 2, classes - 1}:
            logits, labels = problem((40, classes), dtype)
            logits[7, column] = value
            losses, gradient = softmax_cross_entropy(logits, labels)
            assert np.isnan(losses[7]) and np.isnan(gradient[7]).all()
            kept = np.delete(np.arange(40), 7)
            expected = reference(logits[kept], labels[kept])
            assert_like((losses[kept], gradient[kept]), expected, dtype, scale=10)

    @pytest.mark.parametrize("classes", [3, 100])
    def test_minus_infinity_is_probability_zero(self, classes):
        logits = np.zeros((3, classes), "float32")
        logits[:2, 1] = -np.inf
        logits[2] = -np.inf
        losses, gradient = softmax_cross_entropy(logits, [0, 1, 0])
        np.testing.assert_allclose(losses[0], np.log(classes - 1), rtol=1e-6)
        assert gradient[0, 1] == 0
        assert losses[1] == np.inf and gradient[1, 1] == -1
        assert np.isnan(losses[2]) and np.isnan(gradient[2]).all()

    @pytest.mark.parametrize("labels", [[0, 1, 3, 0], [0, 1, -1, 3], np.array([0, 1, 2**63, 0], "uint64")])
    def test_labels_out_of_range(self, labels):
        with pytest.raises(ValueError, match=r"labels: row 2 has label .* with 3 classes labels lie between 0 and 2"):
            softmax_cross_entropy(np.zeros((4, 3)), labels)

    @pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint64"])
    def test_labels_of_any_integer(self, dtype):
        logits, labels = problem((6, 4), "float32")
        assert_like(softmax_cross_entropy(logits, labels.astype(dtype)), reference(logits, labels), "float32", scale=10)

    @pytest.mark.parametrize("order", ["fortran", "every second column", "backwards"])
    def test_any_memory_order(self, order):
        logits, labels = problem((6, 4), "float32")
        given_logits = {
            "fortran": np.asfortranarray(logits),
            "every second column": np.repeat(logits, 2, axis=1)[:, ::2],
            "backwards": logits[::-1].copy()[::-1],
        }[order]
        before = given_logits.copy()
        assert_like(softmax_cross_entropy(given_logits, labels), reference(logits, labels), "float32", scale=10)
        np.testing.assert_array_equal(given_logits, before)

    def test_read_only_and_foreign_byte_order(self):
        logits, labels = problem((6, 4), "float64")
        logits.flags.writeable = labels.flags.writeable = False
        expected = reference(logits, labels)
        assert_like(softmax_cross_entropy(logits, labels), expected, "float64", scale=10)
        swapped = softmax_cross_entropy(logits.astype(">f8"), labels.astype(">i4"))
        assert_like(swapped, expected, "float64", scale=10)


@pytest.mark.parametrize(
    ("logits", "labels", "weights", "error", "message"),
    [
        (np.zeros((2, 3), int), [0, 0], None, TypeError, "logits: dtype int64 .* float32 or float64"),
        (np.zeros((2, 3), "float16"), [0, 0], None, TypeError, "logits: dtype float16"),
        (np.zeros(3), [0], None, ValueError, r"logits: shape \(3,\)"),
        (np.zeros((2, 0)), [0, 0], None, ValueError, r"logits: shape \(2, 0\)"),
        (np.zeros((2, 3)), [0.0, 1.0], None, TypeError, "labels: dtype float64"),
        (np.zeros((2, 3)), [True, False], None, TypeError, "labels: dtype bool"),
        (np.zeros((2, 3)), [0], None, ValueError, r"labels: shape \(1,\) .* \(2,\)"),
        (np.zeros((2, 3)), [0, 0], [1.0], ValueError, r"weights: shape \(1,\) .* \(2,\)"),
    ],
)
def test_bad_input(logits, labels, weights, error, message):
    with pytest.raises(error, match=message):
        softmax_cross_entropy(logits, labels, weights)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 80),
    classes=st.integers(1, 80),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 99),
    scale=st.floats(0, 50),
)
def test_twins_agree(rows, classes, dtype, seed, scale):
    fill = pytest.importorskip("spmdlayer.kernels.softmax_numba").fill
    logits, labels = problem((rows, classes), dtype, scale, seed)
    weights = np.random.default_rng(seed).random(rows).astype(dtype)
    results = []
    for function in (fill, softmax.fill_with_numpy):
        losses, gradient = np.empty(rows, dtype), np.empty((rows, classes), dtype)
        assert function(logits, labels, weights, losses, gradient) == -1
        results.append((losses, gradient))
    assert_like(results[0], results[1], dtype, scale=10 + scale)


COMPILE = """
import sys
import numpy as np
from spmdlayer.kernels import softmax, softmax_cross_entropy
for dtype in sys.argv[1:]:
    losses, _ = softmax_cross_entropy(np.zeros((4, 2), dtype), [0, 1, 0, 1])
    assert losses.dtype == dtype and np.allclose(losses, np.log(2)), losses
print(softmax._implementation().__module__)
"""


def start(code, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | variables
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_cache_is_shared_by_processes_that_compile_at_once(tmp_path):
    pytest.importorskip("numba")
    orders = [("float32", "float64"), ("float64", "float32")]
    jobs = [start(COMPILE, *order, XDG_CACHE_HOME=str(tmp_path)) for order in orders]
    for job in jobs:
        output = job.communicate(timeout=60)[0]
        assert job.returncode == 0 and output.strip().endswith("softmax_numba"), output
    assert len(list(tmp_path.rglob("*.nbc"))) == 2  # a file for each dtype
    job = start(COMPILE, "float32", "float64", XDG_CACHE_HOME=str(tmp_path))
    assert job.communicate(timeout=60)[0].strip().endswith("softmax_numba") and job.returncode == 0


def test_cache_that_cannot_be_written_is_done_without():
    pytest.importorskip("numba")
    job = start(COMPILE, "float32", XDG_CACHE_HOME=os.devnull)
    output = job.communicate(timeout=60)[0]
    assert job.returncode == 0 and output.strip().endswith("softmax_numba"), output


def test_works_without_numba():
    job = start("import sys\nsys.modules['numba'] = None\n" + COMPILE, "float32", "float64")
    output = job.communicate(timeout=60)[0]
    assert job.returncode == 0 and output.strip().endswith("kernels.softmax"), output
