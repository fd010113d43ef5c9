"""Prior boxes against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import prior_box

from .kit import assert_close, opencv, random

MAP, IMAGE = (5, 7), (60, 80)


def settings(**parameters):
    """Return the parameters as text; a sequence becomes a repeated field."""
    lines = []
    for name, value in parameters.items():
        values = value if isinstance(value, tuple) else (value,)
        lines += [f"{name}: {str(v).lower()}" for v in values]
    return "prior_box_param { " + " ".join(lines) + " }"


def reference(**parameters):
    x, image = random(1, 1, 2, *MAP), random(1, 1, 3, *IMAGE)
    return opencv("PriorBox", [x, image], settings(**parameters))


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("ratios", [(), (2.0,), (2.0, 3.0), (2.0, 0.5, 3.0, 1.0)])
@pytest.mark.parametrize("max_sizes", [(), (45.0,)])
def test_boxes(max_sizes, ratios, flip, clip):
    variances = (0.1, 0.1, 0.2, 0.3)
    expected = reference(
        min_size=20.0, max_size=max_sizes, aspect_ratio=ratios, flip=flip, clip=clip,
        variance=variances,
    )  # fmt: skip
    result = prior_box(
        MAP, IMAGE, min_sizes=(20.0,), max_sizes=max_sizes, aspect_ratios=ratios, flip=flip,
        clip=clip, variances=variances,
    )  # fmt: skip
    assert_close(result, expected)


def test_step_and_offset():
    expected = reference(
        min_size=10, step_h=11.5, step_w=9.0, offset=0.25, variance=0.3, clip=False
    )
    result = prior_box(MAP, IMAGE, min_sizes=(10,), step=(11.5, 9.0), offset=0.25, variances=(0.3,))
    assert_close(result, expected)


@pytest.mark.parametrize("max_sizes", [(), (40.0, 45.0)])
def test_several_sizes(max_sizes):
    expected = reference(
        min_size=(10, 20), max_size=max_sizes, aspect_ratio=4, flip=True, variance=0.1, clip=False
    )
    result = prior_box(MAP, IMAGE, min_sizes=(10, 20), max_sizes=max_sizes, aspect_ratios=(4,))
    assert_close(result, expected)


def test_order_of_boxes():
    result = prior_box(
        (1, 1), (100, 100), min_sizes=(10, 20), max_sizes=(40, 45), aspect_ratios=(4.0,)
    ).reshape(2, -1, 4)
    sides = (result[0, :, 2:] - result[0, :, :2]) * 100
    expected = [(10, 10), (20, 20), (20, 5), (5, 20), (20, 20), (30, 30), (40, 10), (10, 40)]
    assert_close(sides, np.array(expected), 1e-3)
    assert_close((result[0, :, 2:] + result[0, :, :2]) / 2, np.full((8, 2), 0.5))


# Caffe keeps sizes in an int while it computes the boxes, OpenCV in a float.
def test_fraction_is_cut_off():
    whole = prior_box(MAP, IMAGE, min_sizes=(35,), max_sizes=(76,), aspect_ratios=(2,))
    result = prior_box(MAP, IMAGE, min_sizes=(35.84,), max_sizes=(76.8,), aspect_ratios=(2,))
    np.testing.assert_array_equal(result, whole)
    expected = reference(
        min_size=35, max_size=76, aspect_ratio=2, flip=True, clip=False, variance=0.1
    )
    assert_close(result, expected)


# OpenCV's defaults are others: it clips, and wants the variance.
def test_defaults():
    expected = reference(min_size=30, aspect_ratio=2, clip=False, variance=0.1)
    assert_close(prior_box(MAP, IMAGE, min_sizes=(30,), aspect_ratios=(2,)), expected)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"map_size": (0, 1)}, r"map_size must be at least 1x1, not \(0, 1\)"),
        ({"image_size": (1, 0)}, r"image_size must be at least 1x1, not \(1, 0\)"),
        ({"min_sizes": ()}, r"min_sizes must be one or more of at least 1, not \(\)"),
        ({"min_sizes": (2, 0.5)}, r"min_sizes must be one or more of at least 1, not \(2, 0\.5\)"),
        ({"max_sizes": (9, 9)}, "max_sizes must be none or 1, as many as min_sizes, not 2"),
        ({"max_sizes": (4,)}, "max_sizes must be greater than min_sizes, not 4 for 4"),
        ({"aspect_ratios": (2, 0)}, "aspect_ratios must be positive, not 0"),
        ({"variances": (1, 1)}, r"variances must be 1 or 4 positive numbers, not \(1, 1\)"),
        ({"variances": (0,)}, r"variances must be 1 or 4 positive numbers, not \(0,\)"),
        ({"step": (0, 1)}, r"step must be positive, not \(0, 1\)"),
    ],
)
def test_wrong(parameters, text):
    with pytest.raises(ValueError, match=text):
        prior_box(**{"map_size": MAP, "image_size": IMAGE, "min_sizes": (4,)} | parameters)
