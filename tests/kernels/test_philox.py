"""Philox against the known answers of its authors, and both implementations against each other."""

import numpy as np
import pytest

from spmdlayer.kernels import philox, philox4x32

# Counter and key as 32-bit words, and what ten rounds give: kat_vectors of Random123.
KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.fixture(params=["numba", "numpy"])
def implementation(request, monkeypatch):
    if request.param == "numba":
        fill = pytest.importorskip("spmdlayer.kernels.philox4x32_numba").fill
    else:
        fill = philox4x32.fill_with_numpy
    monkeypatch.setattr(philox4x32, "_implementation", lambda: fill)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_known_answers(counter, key, words):
    found = philox(key[0] | key[1] << 32, np.array([counter[0] | counter[1] << 32], np.uint64), *counter[2:])
    assert found[:, 0].tolist() == [words[0] << 32 | words[1], words[2] << 32 | words[3]]


@pytest.mark.usefixtures("implementation")
def test_each_counter_by_itself():
    counters = np.array([[5, 2**63 + 1], [20_000, 0]], np.uint64)
    found = philox(9, counters, 3, 1)
    assert found.shape == (2, 2, 2)
    many = philox(9, np.arange(30_000, dtype=np.uint64), 3, 1)  # more than one block
    np.testing.assert_array_equal(many[:, [5, 20_000, 0]], found.reshape(2, 4)[:, [0, 2, 3]])
    assert philox(9, np.empty((0, 3), np.uint64)).shape == (2, 0, 3)
    assert philox(9, counters[:, ::-1].T, 3, 1)[0, 0, 0] == found[0, 0, 1]
