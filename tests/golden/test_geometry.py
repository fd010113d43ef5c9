"""Sizes against counts of positions, one after the other."""

import numpy as np
import pytest

from trirow_golden import output_size, same_padding, transposed_output_size

NO_PAD = (0, 0, 0, 0)


def count_windows(size, kernel, stride, leading, trailing, dilation, ceil):
    """Count the windows along one axis by moving one to the end."""
    end = leading + size + trailing
    reach = (kernel - 1) * dilation + 1
    if not ceil:
        return sum(start + reach <= end for start in range(0, end, stride))
    if end + stride <= reach:
        return 0
    starts = [0]
    while starts[-1] + reach < end:  # the end is not reached yet
        starts.append(starts[-1] + stride)
    if starts[-1] >= leading + size:
        starts.pop()
    return len(starts)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_output_size_counts_windows(seed, ceil):
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    empty = 0
    for _ in range(500):
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (12, 5, 5, 4)
        )
        pad = tuple(int(v) for v in rng.integers(0, 5, 4))
        expected = tuple(
            count_windows(
                size[axis],
                kernel[axis],
                stride[axis],
                pad[axis],
                pad[axis + 2],
                dilation[axis],
                ceil,
            )
            for axis in range(2)
        )
        if min(expected) > 0:
            assert output_size(size, kernel, stride, pad, dilation, ceil) == expected
            continue
        empty += 1
        with pytest.raises(ValueError, match="is empty"):
            output_size(size, kernel, stride, pad, dilation, ceil)
    assert empty > 5


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "floor", "ceil"),
    [
        (112, 3, 2, (0, 0), 55, 56),  # Caffe's pools of 3 with stride 2
        (12, 2, 2, (0, 0), 6, 6),  # nothing to round
        (11, 2, 2, (0, 0), 5, 6),
        (5, 2, 2, (1, 1), 3, 3),  # a fourth window would start at 6, the trailing padding
        (6, 2, 2, (1, 1), 4, 4),
        (4, 1, 3, (0, 0), 2, 2),
        (6, 1, 3, (0, 0), 2, 2),  # a third window would start at 6, where nothing is left
        (4, 3, 3, (0, 2), 2, 2),
        (4, 3, 3, (0, 1), 1, 2),
        (2, 3, 2, (0, 0), 0, 1),  # smaller than the kernel
    ],
)
def test_rounding_up(size, kernel, stride, pad, floor, ceil):
    arguments = ((size, 9), (kernel, 9), (stride, 1), (pad[0], 0, pad[1], 0))
    if floor:
        assert output_size(*arguments) == (floor, 1)
    assert output_size(*arguments, ceil=True) == (ceil, 1)


def test_dilation_larger_than_the_input():
    assert output_size((4, 4), (2, 1), (1, 1), (3, 0, 3, 0), (9, 9)) == (1, 4)
    message = r"^Output of kernel 2x1 with dilation 9x9 on input 4x4 .* only 9x4$"
    with pytest.raises(ValueError, match=message):
        output_size((4, 4), (2, 1), (1, 1), (2, 0, 3, 0), (9, 9))
    with pytest.raises(ValueError, match=r"^Dilation must be at least 1x1, not 1x0$"):
        output_size((4, 4), (2, 1), (1, 1), NO_PAD, (1, 0))


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "expected"),
    [
        ((224, 224), (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
        ((224, 224), (7, 7), (2, 2), (1, 1), (2, 2, 3, 3)),
        ((5, 6), (3, 4), (1, 1), (1, 1), (1, 1, 1, 2)),
        ((5, 5), (1, 1), (3, 2), (1, 1), NO_PAD),  # 1x1 kernel: nothing to pad
        ((7, 7), (3, 3), (1, 1), (3, 2), (3, 2, 3, 2)),
        ((1, 1), (2, 5), (4, 4), (1, 1), (0, 2, 1, 2)),
    ],
)
def test_same_padding(size, kernel, stride, dilation, expected):
    assert same_padding(size, kernel, stride, dilation) == expected
    top, left, bottom, right = expected
    swapped = (bottom, right, top, left)
    assert same_padding(size, kernel, stride, dilation, upper=False) == swapped


def test_same_padding_gives_the_size_over_the_stride_and_no_less_does():
    rng = np.random.default_rng(0)
    print("seed 0")
    for _ in range(500):
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (20, 6, 5, 4)
        )
        pad = same_padding(size, kernel, stride, dilation)
        expected = tuple(-(-s // step) for s, step in zip(size, stride, strict=True))
        assert output_size(size, kernel, stride, pad, dilation) == expected
        assert 0 <= pad[2] - pad[0] <= 1
        assert 0 <= pad[3] - pad[1] <= 1
        if pad[2]:
            less = (pad[0], pad[1], pad[2] - 1, pad[3])
            if size[0] + pad[0] + pad[2] > (kernel[0] - 1) * dilation[0] + 1:
                assert output_size(size, kernel, stride, less, dilation)[0] < expected[0]


def test_transposed_size_is_the_one_that_a_convolution_shrinks():
    rng = np.random.default_rng(0)
    print("seed 0")
    checked = 0
    for _ in range(500):
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (8, 6, 5, 4)
        )
        pad = tuple(int(v) for v in rng.integers(0, 3, 4))
        padding = tuple(int(rng.integers(0, step)) for step in stride)
        try:
            out = transposed_output_size(size, kernel, stride, pad, dilation, padding)
        except ValueError:
            continue
        checked += 1
        assert output_size(out, kernel, stride, pad, dilation) == size
    assert checked > 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": (0, 3)}, "^Input size must be at least 1x1, not 0x3$"),
        ({"kernel": (0, 3)}, "^Kernel must be at least 1x1, not 0x3$"),
        ({"stride": (0, 3)}, "^Stride must be at least 1x1, not 0x3$"),
        ({"dilation": (3, 0)}, "^Dilation must be at least 1x1, not 3x0$"),
    ],
)
@pytest.mark.parametrize("function", [same_padding, transposed_output_size])
def test_wrong_parameters(function, change, message):
    good = {"size": (4, 4), "kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1)}
    if function is transposed_output_size:
        good["pad"] = NO_PAD
    with pytest.raises(ValueError, match=message):
        function(**{**good, **change})


@pytest.mark.parametrize(
    ("pad", "output_padding", "message"),
    [
        ((0, -1, 0, 0), (0, 0), "must not be negative"),
        (NO_PAD, (2, 0), "^output_padding must be at least 0 and below .*, not 2x0 with stride"),
        (NO_PAD, (0, -1), "^output_padding must be .*, not 0x-1 with stride 2x2 and dilation 1x1$"),
        ((5, 0, 5, 0), (0, 0), r"^Output of transposed kernel 3x3 on input 4x4 is empty: .* -1x9$"),
    ],
)
def test_wrong_transposed(pad, output_padding, message):
    with pytest.raises(ValueError, match=message):
        transposed_output_size((4, 4), (3, 3), (2, 2), pad, output_padding=output_padding)
    assert transposed_output_size((4, 4), (3, 3), (2, 2), NO_PAD, (1, 1), (1, 1)) == (10, 10)
    assert transposed_output_size((4, 4), (1, 1), (1, 1), NO_PAD, (3, 3), (2, 2)) == (6, 6)
