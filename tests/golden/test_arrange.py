"""Upsampling and channel shuffle, position by position."""

import numpy as np
import pytest

from trirow_golden import channel_shuffle, upsample_nearest


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_upsample(factor):
    print("seed 0")
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5), dtype=np.int8)
    y = upsample_nearest(x, factor)
    assert y.dtype == np.int8
    assert y.shape == (2, 3 * factor, 4 * factor, 5)
    for row, column in np.ndindex(y.shape[1:3]):
        np.testing.assert_array_equal(y[:, row, column], x[:, row // factor, column // factor])


def test_upsample_by_2_unless_told():
    assert upsample_nearest(np.zeros((1, 2, 3, 1), np.int8)).shape == (1, 4, 6, 1)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (1, [0, 1, 2, 3, 4, 5]),
        (2, [0, 3, 1, 4, 2, 5]),
        (3, [0, 2, 4, 1, 3, 5]),
        (6, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_shuffle(groups, expected):
    x = np.zeros((2, 2, 3, 6), np.int8) + np.arange(6, dtype=np.int8)
    y = channel_shuffle(x, groups)
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, np.broadcast_to(expected, x.shape))


def test_wrong_arguments():
    x = np.zeros((1, 2, 2, 6), np.int8)
    with pytest.raises(ValueError, match=r"^factor must be at least 1, not 0$"):
        upsample_nearest(x, 0)
    with pytest.raises(TypeError, match=r"^x must be int8 of shape \(N, H, W, C\), not float64 "):
        upsample_nearest(x.astype(float))
    for groups in (0, -2, 4, 12):
        message = rf"^groups must divide the 6 channels of x, not {groups}$"
        with pytest.raises(ValueError, match=message):
            channel_shuffle(x, groups)
    with pytest.raises(ValueError, match=r"^x must be int8 of shape \(N, H, W, C\), not int8 of "):
        channel_shuffle(x[0], 2)
