"""Softmax cross-entropy of rows: the losses and their gradient in one pass."""

import functools

import numpy as np

# From this many classes on, NumPy's reductions along a row are faster than those over a transposed copy.
_MANY_CLASSES = 64


def softmax_cross_entropy(logits, labels, weights=None):
    """The cross-entropy of each row's softmax with its label, and the gradient.

    Parameters
    ----------
    logits : numpy.ndarray, shape (rows, classes), float32 or float64
        In any memory order.
    labels : array_like of integers, shape (rows,)
        The right class of each row, 0 to classes - 1.
    weights : array_like, shape (rows,), optional
        What each row's loss is multiplied by.

    Returns
    -------
    losses : numpy.ndarray, shape (rows,), dtype of logits
        ``weights[i] * (log(sum(exp(logits[i]))) - logits[i, labels[i]])``.
    gradient : numpy.ndarray, shape (rows, classes), dtype of logits
        Of each row's loss by the row: ``weights[i] * (softmax(logits[i]) - onehot(labels[i]))``.

    Raises
    ------
    TypeError
        If logits are neither float32 nor float64, or labels no integers.
    ValueError
        If shapes do not fit together, or a label is out of range.

    Notes
    -----
    The largest logit is taken off first, so large ones do not overflow.  A
    logit of -inf has probability 0; a row with NaN or +inf, or with nothing
    but -inf, gives NaN.
    """
    logits, labels, weights = _checked(logits, labels, weights)
    losses, gradient = np.empty(len(labels), logits.dtype), np.empty_like(logits)
    if len(labels):
        wrong = _implementation()(logits, labels, weights, losses, gradient)
        if wrong >= 0:
            raise ValueError(
                f"labels: row {wrong} has label {labels[wrong]}, but with {logits.shape[1]} classes "
                f"labels lie between 0 and {logits.shape[1] - 1}"
            )
    return losses, gradient


def _checked(logits, labels, weights):
    """The arguments as floats, int64 and floats, in arrays that compiled code takes."""
    logits, labels = np.asarray(logits), np.asarray(labels)
    dtype = np.dtype(logits.dtype.type)  # in native byte order
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"logits: dtype {logits.dtype} was given; float32 or float64 is needed")
    if logits.ndim != 2 or (logits.shape[1] == 0 and logits.shape[0] > 0):
        raise ValueError(f"logits: shape {logits.shape} was given; (rows, classes) with a class at least is needed")
    rows = logits.shape[0]
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels: dtype {labels.dtype} was given; integers are needed")
    if labels.shape != (rows,):
        raise ValueError(f"labels: shape {labels.shape} was given; ({rows},) is needed, a label for each row")
    weights = np.ones(rows, dtype) if weights is None else np.asarray(weights)
    if weights.shape != (rows,):
        raise ValueError(f"weights: shape {weights.shape} was given; ({rows},) is needed, a weight for each row")
    # Compiled for one kind of array: contiguous, and writable although only read.
    return np.require(logits, dtype, "CW"), np.require(labels, np.int64, "CW"), np.require(weights, dtype, "CW")


@functools.cache
def _implementation():
    """The compiled kernel, or its NumPy twin where numba is missing or does not work with this NumPy."""
    try:
        from .softmax_numba import fill
    except ImportError:
        return fill_with_numpy
    return fill


def fill_with_numpy(logits, labels, weights, losses, gradient):
    """Fill losses and gradient; returns -1, or the first row whose label is out of range."""
    classes = logits.shape[1]
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        return int(wrong[0])
    axis = 1 if classes >= _MANY_CLASSES else 0
    table = gradient if axis == 1 else np.empty((classes, len(labels)), logits.dtype)
    rows = np.arange(len(labels))
    label_places = (rows, labels) if axis == 1 else (labels, rows)
    with np.errstate(invalid="ignore", over="ignore"):
        np.copyto(table, logits if axis == 1 else logits.T)
        table -= table.max(axis=axis, keepdims=True)
        at_labels = table[label_places]
        np.exp(table, out=table)
        sums = table.sum(axis=axis)
        losses[:] = weights * (np.log(sums) - at_labels)
        table *= np.expand_dims(weights / sums, axis)
        table[label_places] -= weights
    if axis == 0:
        gradient[:] = table.T
    return -1
