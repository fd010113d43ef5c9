"""Operations that only move activations: nearest upsampling and channel shuffle."""

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_features


def upsample_nearest(x: NDArray[np.int8], factor: int = 2) -> NDArray[np.int8]:
    """Repeat every pixel `factor` times in y and x.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    factor : int
        At least 1.

    Returns
    -------
    int8 array of shape (N, factor * H, factor * W, C)
        Pixel (y, x) is pixel (y // factor, x // factor) of the input.

    Raises
    ------
    TypeError, ValueError
        If x is not an int8 feature map, or factor is below 1.
    """
    check_features("x", x)
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor!r}")
    return x.repeat(factor, axis=1).repeat(factor, axis=2)


def channel_shuffle(x: NDArray[np.int8], groups: int) -> NDArray[np.int8]:
    """Deal the channels of the groups out in turn, as ShuffleNet does.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    groups : int
        Groups of adjacent channels, at least 1; they divide C.

    Returns
    -------
    int8 array of shape (N, H, W, C)
        Channel ``j * groups + i`` is the j-th channel of group i.

    Raises
    ------
    TypeError, ValueError
        If x is not an int8 feature map, or groups does not divide its channels.
    """
    check_features("x", x)
    channels = x.shape[3]
    if groups < 1 or channels % groups:
        raise ValueError(f"groups must divide the {channels} channels of x, not {groups!r}")
    split = x.reshape(*x.shape[:3], groups, channels // groups)
    shuffled: NDArray[np.int8] = split.swapaxes(3, 4).reshape(x.shape)
    return shuffled
