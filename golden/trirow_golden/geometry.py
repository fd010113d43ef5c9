"""Sizes of feature maps: how kernel, stride and padding determine the output."""


def output_size(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
) -> tuple[int, int]:
    """Return the height and width of a convolution's or pool's output.

    Rows and columns that the last stride does not reach are dropped (floor), as in ONNX and TFLite.

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

    Returns
    -------
    (int, int)
        Height and width of the output, each at least 1.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the kernel does not fit into the padded input.
    """
    if min(size) < 0:
        raise ValueError(f"Input size must not be negative, not {_by(size)}")
    if min(kernel) < 1:
        raise ValueError(f"Kernel must be at least 1x1, not {_by(kernel)}")
    if min(stride) < 1:
        raise ValueError(f"Stride must be at least 1x1, not {_by(stride)}")
    if min(pad) < 0:
        raise ValueError(f"Padding (top, left, bottom, right) must not be negative, not {pad!r}")
    top, left, bottom, right = pad
    padded = (size[0] + top + bottom, size[1] + left + right)
    if padded[0] < kernel[0] or padded[1] < kernel[1]:
        raise ValueError(
            f"Output of kernel {_by(kernel)} on input {_by(size)} with padding {pad!r} is empty: "
            f"the padded input is only {_by(padded)}"
        )
    return (padded[0] - kernel[0]) // stride[0] + 1, (padded[1] - kernel[1]) // stride[1] + 1


def _by(pair: tuple[int, int]) -> str:
    """Write a height and a width as ``HxW``."""
    return f"{pair[0]}x{pair[1]}"
