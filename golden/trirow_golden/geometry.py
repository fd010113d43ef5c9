"""Sizes of feature maps: how kernel, stride, padding and dilation determine the output."""


def output_size(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int] = (1, 1),
    ceil: bool = False,
) -> tuple[int, int]:
    """Return the height and width of a convolution's or pool's output.

    Rows and columns that the last stride does not reach are dropped (floor), as in ONNX and TFLite,
    or with `ceil` get a last window that reaches beyond the padding, as Caffe's pools do.

    Parameters
    ----------
    size : (int, int)
        Height and width of the input, in pixels.
    kernel : (int, int)
        Height and width of the kernel, each at least 1.
    stride : (int, int)
        Step in y and x, each at least 1.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right, each at least 0. It may exceed the kernel.
    dilation : (int, int)
        Distance of neighbouring taps in y and x, each at least 1.
    ceil : bool
        Round up. A last window that would start at or beyond the end of the input, which is where
        the trailing padding begins, is dropped (Caffe's clipping, ONNX's ``ceil_mode``). Unlike
        Caffe this holds without padding too, where Caffe would keep a window of no pixel at all.

    Returns
    -------
    (int, int)
        Height and width of the output, each at least 1.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the kernel does not fit into the padded input (with
        `ceil`: by a whole stride or more).
    """
    _check_window(kernel, stride, pad, dilation)
    if min(size) < 0:
        raise ValueError(f"Input size must not be negative, not {_by(size)}")
    top, left, bottom, right = pad
    padded = (size[0] + top + bottom, size[1] + left + right)
    height = _axis_output(size[0], kernel[0], stride[0], (top, bottom), dilation[0], ceil)
    width = _axis_output(size[1], kernel[1], stride[1], (left, right), dilation[1], ceil)
    if min(height, width) < 1:
        dilated = "" if tuple(dilation) == (1, 1) else f" with dilation {_by(dilation)}"
        raise ValueError(
            f"Output of kernel {_by(kernel)}{dilated} on input {_by(size)} with padding {pad!r} is "
            f"empty: the padded input is only {_by(padded)}"
        )
    return height, width


def same_padding(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    upper: bool = True,
) -> tuple[int, int, int, int]:
    """Return the padding that makes the output ``ceil(size / stride)``.

    It is the least one; of an odd amount the greater half goes to the bottom and right (SAME of
    TFLite, SAME_UPPER of ONNX), or without `upper` to the top and left (SAME_LOWER).

    Parameters
    ----------
    size, kernel, stride, dilation : (int, int)
        As for `output_size`.
    upper : bool
        Which side gets the greater half.

    Returns
    -------
    (int, int, int, int)
        Padding at the top, left, bottom and right.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    _check_window(kernel, stride, (0, 0, 0, 0), dilation)
    if min(size) < 1:
        raise ValueError(f"Input size must be at least 1x1, not {_by(size)}")
    leading, trailing = [], []
    for axis in range(2):
        steps = -(-size[axis] // stride[axis]) - 1
        covered = steps * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        total = max(covered - size[axis], 0)
        less = total // 2
        leading.append(less if upper else total - less)
        trailing.append(total - leading[-1])
    return leading[0], leading[1], trailing[0], trailing[1]


def transposed_output_size(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int] = (1, 1),
    output_padding: tuple[int, int] = (0, 0),
) -> tuple[int, int]:
    """Return the height and width of a transposed convolution's output.

    ``(size - 1) * stride + (kernel - 1) * dilation + 1 + output_padding``, less the padding on both
    sides: the size for which `output_size` gives `size`.

    Parameters
    ----------
    size : (int, int)
        Height and width of the input, each at least 1.
    kernel, stride, dilation : (int, int)
        As for `output_size`; the stride is that of the output.
    pad : (int, int, int, int)
        Rows and columns cut off at the top, left, bottom and right, each at least 0.
    output_padding : (int, int)
        Rows and columns added at the bottom and right, at least 0 and below the stride or the
        dilation.

    Returns
    -------
    (int, int)
        Height and width of the output, each at least 1.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the output is empty.
    """
    _check_window(kernel, stride, pad, dilation)
    if min(size) < 1:
        raise ValueError(f"Input size must be at least 1x1, not {_by(size)}")
    if any(
        not 0 <= extra < max(stride[axis], dilation[axis])
        for axis, extra in enumerate(output_padding)
    ):
        raise ValueError(
            "output_padding must be at least 0 and below the stride or the dilation, not "
            f"{_by(output_padding)} with stride {_by(stride)} and dilation {_by(dilation)}"
        )
    height, width = (
        (size[axis] - 1) * stride[axis]
        + (kernel[axis] - 1) * dilation[axis]
        + 1
        + output_padding[axis]
        - pad[axis]
        - pad[axis + 2]
        for axis in range(2)
    )
    if min(height, width) < 1:
        raise ValueError(
            f"Output of transposed kernel {_by(kernel)} on input {_by(size)} is empty: padding "
            f"{pad!r} cuts it down to {_by((height, width))}"
        )
    return height, width


def _axis_output(
    size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int, ceil: bool
) -> int:
    """Return the number of windows along one axis; below 1 where none fits."""
    room = size + sum(pad) - (kernel - 1) * dilation - 1
    if not ceil:
        return room // stride + 1
    windows = -(-room // stride) + 1
    return windows - 1 if (windows - 1) * stride >= size + pad[0] else windows


def _check_window(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> None:
    """Refuse parameters that no window can have."""
    for name, pair in (("Kernel", kernel), ("Stride", stride), ("Dilation", dilation)):
        if min(pair) < 1:
            raise ValueError(f"{name} must be at least 1x1, not {_by(pair)}")
    if min(pad) < 0:
        raise ValueError(f"Padding (top, left, bottom, right) must not be negative, not {pad!r}")


def _by(pair: tuple[int, int]) -> str:
    """Write a height and a width as ``HxW``."""
    return f"{pair[0]}x{pair[1]}"
