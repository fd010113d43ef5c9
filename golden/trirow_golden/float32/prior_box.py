"""Default boxes of single-shot detectors: PriorBox of the SSD fork of Caffe."""

from collections.abc import Sequence

import numpy as np

from trirow_golden.float32.checks import FloatArray, check_positive


def prior_box(
    map_size: tuple[int, int],
    image_size: tuple[int, int],
    *,
    min_sizes: Sequence[float],
    max_sizes: Sequence[float] = (),
    aspect_ratios: Sequence[float] = (),
    flip: bool = True,
    clip: bool = False,
    variances: Sequence[float] = (0.1,),
    step: tuple[float, float] | None = None,
    offset: float = 0.5,
) -> FloatArray:
    """Return the boxes around each pixel of a feature map, and their variances.

    Liu et al., "SSD: Single Shot MultiBox Detector", 2016. The boxes of a pixel are, for each
    minimum size: the square of this size; with maximum sizes the square of the geometric mean of
    the two; the boxes of each aspect ratio (width over height) other than 1 with the area of the
    first.

    Parameters
    ----------
    map_size : (int, int)
        Height and width of the feature map.
    image_size : (int, int)
        Height and width of the image (the layer's ``img_h`` and ``img_w``, or its second input).
    min_sizes : sequence of float
        Sides of squares in pixels of the image, at least one. The fraction is cut off, as Caffe
        does; 1 or more is left.
    max_sizes : sequence of float
        As many as `min_sizes` and greater, or none; the fraction is cut off, too.
    aspect_ratios : sequence of float
        Positive. 1 is always among them; one that is there already, also from flipping, is not
        taken twice.
    flip : bool
        Take the reciprocal of each aspect ratio, too.
    clip : bool
        Clip the boxes to the image.
    variances : sequence of float
        One for all coordinates or one for each of the four, positive.
    step : (float, float), optional
        Distance of pixels of the map in y and x, in pixels of the image, positive. By default the
        image's size over the map's.
    offset : float
        Where the centre is within a pixel of the map, in steps.

    Returns
    -------
    float32 array of shape (1, 2, 4 * boxes)
        Left, top, right and bottom of all boxes, as parts of the image's width and height; then
        the variances of each.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """
    for name, pair in (("map_size", map_size), ("image_size", image_size)):
        if min(pair) < 1:
            raise ValueError(f"{name} must be at least 1x1, not {pair!r}")
    sides = np.array(_box_sides(min_sizes, max_sizes, aspect_ratios, flip), np.float32)
    if len(variances) not in (1, 4) or not min(variances) > 0:
        raise ValueError(f"variances must be 1 or 4 positive numbers, not {tuple(variances)!r}")
    if step is None:
        step = (image_size[0] / map_size[0], image_size[1] / map_size[1])
    if not min(step) > 0:
        raise ValueError(f"step must be positive, not {step!r}")
    ys, xs = ((np.arange(map_size[axis]) + offset) * step[axis] for axis in range(2))
    boxes = np.empty((*map_size, len(sides), 4))
    boxes[..., 0] = xs[np.newaxis, :, np.newaxis] - sides[:, 0] / 2
    boxes[..., 1] = ys[:, np.newaxis, np.newaxis] - sides[:, 1] / 2
    boxes[..., 2] = xs[np.newaxis, :, np.newaxis] + sides[:, 0] / 2
    boxes[..., 3] = ys[:, np.newaxis, np.newaxis] + sides[:, 1] / 2
    boxes /= (image_size[1], image_size[0]) * 2
    if clip:
        boxes = np.clip(boxes, 0, 1)
    shape = (1, 1, boxes.size)
    spread = np.broadcast_to(np.asarray(variances, np.float32), boxes.shape)
    return np.concatenate([boxes.reshape(shape), spread.reshape(shape)], axis=1).astype(np.float32)


def _box_sides(
    min_sizes: Sequence[float],
    max_sizes: Sequence[float],
    aspect_ratios: Sequence[float],
    flip: bool,
) -> list[tuple[float, float]]:
    """Return width and height of the boxes around a pixel, in pixels of the image."""
    if not min_sizes or min(min_sizes) < 1:
        raise ValueError(f"min_sizes must be one or more of at least 1, not {tuple(min_sizes)!r}")
    if len(max_sizes) not in (0, len(min_sizes)):
        raise ValueError(
            f"max_sizes must be none or {len(min_sizes)}, as many as min_sizes, "
            f"not {len(max_sizes)}"
        )
    ratios = [1.0]
    for ratio in aspect_ratios:
        check_positive("aspect_ratios", ratio)
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    sides = []
    for i, small in enumerate(map(int, min_sizes)):
        sides.append((float(small), float(small)))
        if max_sizes:
            if max_sizes[i] <= min_sizes[i]:
                raise ValueError(
                    f"max_sizes must be greater than min_sizes, not {max_sizes[i]!r} for "
                    f"{min_sizes[i]!r}"
                )
            mean = float(small * int(max_sizes[i])) ** 0.5
            sides.append((mean, mean))
        sides += [(small * ratio**0.5, small / ratio**0.5) for ratio in ratios[1:]]
    return sides
