"""Boxes from the outputs of single-shot detectors: DetectionOutput of the SSD fork of Caffe."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_array
from trirow_golden.float32.checks import FloatArray

CodeType = Literal["corner", "center_size"]


def detection_output(
    location: FloatArray,
    confidence: FloatArray,
    priors: FloatArray,
    *,
    num_classes: int,
    share_location: bool = True,
    background_label: int = 0,
    code_type: CodeType = "corner",
    variance_encoded_in_target: bool = False,
    confidence_threshold: float = -np.inf,
    nms_threshold: float = 0.3,
    eta: float = 1.0,
    top_k: int = -1,
    keep_top_k: int = -1,
) -> FloatArray:
    """Decode boxes, drop those that overlap better ones of their class, and keep the best.

    Liu et al., "SSD: Single Shot MultiBox Detector", 2016. Boxes are (left, top, right, bottom).

    Parameters
    ----------
    location : float32 array of shape (N, P * 4) or (N, P * num_classes * 4)
        Offsets of P boxes from the priors; each class has its own without `share_location`.
    confidence : float32 array of shape (N, P * num_classes)
        Scores.
    priors : float32 array of shape (1, 2, P * 4)
        Boxes and their variances, as `prior_box` returns them.
    num_classes : int
        Number of classes with the background, at least 1.
    share_location : bool
        All classes have the same boxes.
    background_label : int
        Class that is not reported; -1 if there is none.
    code_type : "corner" or "center_size"
        What the offsets refer to, as in `decode_boxes`.
    variance_encoded_in_target : bool
        The offsets are not to be multiplied by the variances.
    confidence_threshold : float
        Only scores above it count.
    nms_threshold : float
        Intersection over union with a better box up to which a box is kept, at least 0.
    eta : float
        Factor for the threshold after each box that is kept, while it is above 0.5; above 0, up to
        1.
    top_k : int
        Boxes of a class that are looked at, the best ones; -1 is all.
    keep_top_k : int
        Boxes of an image that are kept, the best ones; -1 is all.

    Returns
    -------
    float32 array of shape (1, 1, boxes, 7)
        Rows of image, label, score, left, top, right, bottom, sorted by image, label and falling
        score; equal scores by box. Without any box there is no row, where Caffe reports a row of -1
        for each image.

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape, or a parameter is outside its range.
    """
    check_array("priors", priors, np.float32, "(1, 2, P * 4)")
    if priors.shape[:2] != (1, 2) or priors.shape[2] % 4:
        raise ValueError(f"priors must have the shape (1, 2, P * 4), not {priors.shape}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, not {num_classes!r}")
    if not nms_threshold >= 0:
        raise ValueError(f"nms_threshold must be at least 0, not {nms_threshold!r}")
    if not 0 < eta <= 1:
        raise ValueError(f"eta must be above 0 and at most 1, not {eta!r}")
    count, box_classes = priors.shape[2] // 4, 1 if share_location else num_classes
    for name, array, values in (
        ("location", location, count * box_classes * 4),
        ("confidence", confidence, count * num_classes),
    ):
        check_array(name, array, np.float32, f"(N, {values})")
        if array.shape != (len(location), values):
            raise ValueError(
                f"{name} must have the shape {(len(location), values)}, not {array.shape}"
            )
    boxes = decode_boxes(
        location.reshape(len(location), count, box_classes, 4),
        priors.reshape(2, count, 1, 4),
        code_type,
        variance_encoded_in_target,
    )
    scores = confidence.reshape(len(confidence), count, num_classes)
    rows: list[FloatArray] = []
    for image in range(len(location)):
        found = []
        for label in range(num_classes):
            if label == background_label:
                continue
            of_label = boxes[image, :, 0 if share_location else label]
            best = _best_first(scores[image, :, label], confidence_threshold, top_k)
            for index in best[suppress_overlaps(of_label[best], nms_threshold, eta)]:
                found.append((image, label, scores[image, index, label], *of_label[index]))
        kept = np.array(found, np.float32).reshape(-1, 7)
        if 0 <= keep_top_k < len(kept):
            kept = kept[np.sort(_best_first(kept[:, 2], -np.inf, keep_top_k))]
        rows.append(kept)
    return np.concatenate([np.empty((0, 7), np.float32), *rows])[np.newaxis, np.newaxis]


def decode_boxes(
    offsets: FloatArray, priors: FloatArray, code_type: CodeType, variance_encoded: bool
) -> FloatArray:
    """Return the boxes that are meant by offsets from priors.

    Parameters
    ----------
    offsets : float32 array of shape (..., 4)
        Offsets; the variances of the priors are their units, unless `variance_encoded`.
    priors : float32 array of shape (2, ..., 4)
        Boxes, and their variances.
    code_type : "corner" or "center_size"
        The offsets are those of the corners, or those of the centre, in widths and heights of the
        prior, and the logarithms of width and height over the prior's.
    variance_encoded : bool
        The offsets have the variances in them already.

    Returns
    -------
    float32 array of shape (..., 4)

    Raises
    ------
    ValueError
        If code_type is none of these.
    """
    prior, variance = priors
    scaled = offsets if variance_encoded else offsets * variance
    if code_type == "corner":
        corners: FloatArray = prior + scaled
        return corners
    if code_type != "center_size":
        raise ValueError(f"code_type must be 'corner' or 'center_size', not {code_type!r}")
    size = prior[..., 2:] - prior[..., :2]
    centre = (prior[..., :2] + prior[..., 2:]) / 2 + scaled[..., :2] * size
    half: FloatArray = np.exp(scaled[..., 2:]) * size / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def suppress_overlaps(boxes: FloatArray, threshold: float, eta: float = 1.0) -> NDArray[np.intp]:
    """Return the indices of the boxes that overlap no kept one before them too much.

    This is greedy non-maximum suppression, of boxes that are sorted already, the best first.

    Parameters
    ----------
    boxes : float32 array of shape (n, 4)
        Left, top, right, bottom.
    threshold, eta : float
        As `nms_threshold` and `eta` of `detection_output`.

    Returns
    -------
    int array
        Ascending.
    """
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if (_overlap(box, boxes[kept]) <= np.float32(threshold)).all():
            kept.append(index)
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return np.array(kept, np.intp)


def _best_first(scores: FloatArray, threshold: float, count: int) -> NDArray[np.intp]:
    """Return the indices of the scores above a threshold, at most count unless that is negative."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > threshold]
    return order if count < 0 else order[:count]


def _overlap(box: FloatArray, others: FloatArray) -> FloatArray:
    """Return intersection over union of a box of shape (4,) with others of shape (n, 4)."""
    corner = np.maximum(box[:2], others[:, :2])
    common = np.prod(np.maximum(np.minimum(box[2:], others[:, 2:]) - corner, 0), axis=1)
    union = _area(box) + _area(others) - common
    shared: FloatArray = np.divide(common, union, out=np.zeros_like(common), where=common > 0)
    return shared


def _area(boxes: FloatArray) -> FloatArray:
    """Return the areas of boxes of shape (..., 4), 0 for those whose corners are swapped."""
    area: FloatArray = np.prod(np.maximum(boxes[..., 2:] - boxes[..., :2], 0), axis=-1)
    return area
