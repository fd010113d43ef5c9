"""Detection output against OpenCV and against plain loops over the definition."""

import math

import numpy as np
import pytest

from trirow_golden.float32 import decode_boxes, detection_output, suppress_overlaps

from .kit import assert_close, opencv

IMAGES, PRIORS, CLASSES = 2, 40, 3


def operands(seed, share_location=True):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    centre, size = rng.uniform(0, 1, (PRIORS, 2)), rng.uniform(0.1, 0.4, (PRIORS, 2))
    boxes = np.concatenate([centre - size / 2, centre + size / 2], axis=1).ravel()
    priors = np.stack([boxes, np.tile([0.1, 0.1, 0.2, 0.2], PRIORS)])[np.newaxis]
    values = PRIORS * 4 * (1 if share_location else CLASSES)
    location = rng.standard_normal((IMAGES, values))
    confidence = rng.uniform(0, 1, (IMAGES, PRIORS * CLASSES))
    return [array.astype(np.float32) for array in (location, confidence, priors)]


def overlap(a, b):
    sides = [max(min(a[2 + i], b[2 + i]) - max(a[i], b[i]), 0) for i in range(2)]
    common = sides[0] * sides[1]
    areas = [max(c[2] - c[0], 0) * max(c[3] - c[1], 0) for c in (a, b)]
    return common / (sum(areas) - common) if common else 0


def decoded(offsets, prior, variance, code_type):
    scaled = [o * v for o, v in zip(offsets, variance, strict=True)]
    if code_type == "corner":
        return [p + s for p, s in zip(prior, scaled, strict=True)]
    low, high = [], []
    for axis in range(2):
        size = prior[2 + axis] - prior[axis]
        centre = (prior[axis] + prior[2 + axis]) / 2 + scaled[axis] * size
        half = math.exp(scaled[2 + axis]) * size / 2
        low.append(centre - half)
        high.append(centre + half)
    return low + high


def by_hand(
    location, confidence, priors, share_location, code_type, background_label,
    confidence_threshold, nms_threshold, eta, top_k, keep_top_k,
):  # fmt: skip
    """Detect as the SSD fork of Caffe does, with loops."""
    offsets = location.reshape(IMAGES, PRIORS, -1, 4).astype(float)
    scores = confidence.reshape(IMAGES, PRIORS, CLASSES)
    prior, variance = priors.reshape(2, PRIORS, 4).astype(float)
    rows = []
    for image in range(IMAGES):
        found = []
        for label in range(CLASSES):
            if label == background_label:
                continue
            threshold, kept = nms_threshold, []
            good = [p for p in range(PRIORS) if scores[image, p, label] > confidence_threshold]
            good.sort(key=lambda p: -scores[image, p, label])
            for p in good[:top_k] if top_k >= 0 else good:
                where = offsets[image, p, 0 if share_location else label]
                box = decoded(where, prior[p], variance[p], code_type)
                if all(overlap(box, other) <= threshold for other in kept):
                    kept.append(box)
                    found.append([image, label, scores[image, p, label], *box])
                    if threshold > 0.5:
                        threshold *= eta
        if 0 <= keep_top_k < len(found):
            worst_first = sorted(found, key=lambda row: row[2])
            for row in worst_first[: len(found) - keep_top_k]:
                found.remove(row)
        rows += found
    return np.array(rows).reshape(1, 1, -1, 7)


@pytest.mark.parametrize("share_location", [True, False])
@pytest.mark.parametrize("code_type", ["corner", "center_size"])
@pytest.mark.parametrize(
    ("background_label", "confidence_threshold", "nms_threshold", "eta", "top_k", "keep_top_k"),
    [
        (0, 0.3, 0.45, 1.0, 20, 10),
        (0, 0.01, 0.3, 1.0, 400, 200),
        (1, 0.6, 0.9, 0.8, 30, 100),
        (2, 0.0, 0.2, 1.0, 10, 5),
        (0, 0.98, 0.45, 1.0, -1, 50),
    ],
)
def test_detection_output(
    background_label, confidence_threshold, nms_threshold, eta, top_k, keep_top_k, code_type,
    share_location,
):  # fmt: skip
    arrays = operands(top_k + 1, share_location)
    parameters = {
        "share_location": share_location,
        "code_type": code_type,
        "background_label": background_label,
        "confidence_threshold": confidence_threshold,
        "nms_threshold": nms_threshold,
        "eta": eta,
        "top_k": top_k,
        "keep_top_k": keep_top_k,
    }
    result = detection_output(*arrays, num_classes=CLASSES, **parameters)
    assert_close(result, by_hand(*arrays, **parameters))
    text = f"""detection_output_param {{ num_classes: {CLASSES}
        share_location: {str(share_location).lower()} code_type: {code_type.upper()}
        background_label_id: {background_label} confidence_threshold: {confidence_threshold}
        nms_param {{ nms_threshold: {nms_threshold} top_k: {top_k} eta: {eta} }}
        keep_top_k: {keep_top_k} }}"""
    expected = opencv("DetectionOutput", arrays, text)
    if eta != 1:  # OpenCV ignores it
        result = detection_output(*arrays, num_classes=CLASSES, **parameters | {"eta": 1.0})
    assert_close(in_order(result), in_order(expected))


def in_order(rows):
    """Sort rows by image, label and falling score; drop empty ones.

    In these two OpenCV deviates from Caffe: it sorts the rows of an image by score, whatever the
    label, and always returns keep_top_k rows for each image, zeros behind those that are boxes.
    """
    rows = rows[0, 0]
    rows = rows[rows[:, 2] > 0]
    return rows[np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))]


def test_variance_encoded_in_target():
    location, confidence, priors = operands(7)
    result = detection_output(
        location, confidence, priors, num_classes=CLASSES, code_type="center_size",
        variance_encoded_in_target=True, confidence_threshold=0.5, top_k=20, keep_top_k=20,
    )  # fmt: skip
    text = f"""detection_output_param {{ num_classes: {CLASSES} code_type: CENTER_SIZE
        share_location: true background_label_id: 0 confidence_threshold: 0.5 keep_top_k: 20
        variance_encoded_in_target: true nms_param {{ nms_threshold: 0.3 top_k: 20 }} }}"""
    # OpenCV refuses priors with variances here, which Caffe ignores
    expected = opencv("DetectionOutput", [location, confidence, priors[:, :1]], text)
    assert_close(in_order(result), in_order(expected))


def test_defaults():
    """Without parameters only the overlaps drop boxes; OpenCV has no such defaults."""
    arrays = operands(3)
    parameters = {
        "share_location": True, "code_type": "corner", "background_label": 0,
        "confidence_threshold": -1, "nms_threshold": 0.3, "eta": 1, "top_k": -1, "keep_top_k": -1,
    }  # fmt: skip
    assert_close(detection_output(*arrays, num_classes=CLASSES), by_hand(*arrays, **parameters))
    parameters["background_label"] = -1
    result = detection_output(*arrays, num_classes=CLASSES, background_label=-1)
    assert set(result[0, 0, :, 1]) == {0, 1, 2}
    assert_close(result, by_hand(*arrays, **parameters))


def test_nothing_found():
    for parameters in ({"confidence_threshold": 2}, {"top_k": 0}, {"keep_top_k": 0}):
        result = detection_output(*operands(4), num_classes=CLASSES, **parameters)
        assert_close(result, np.empty((1, 1, 0, 7)))


def test_equal_scores_keep_their_order():
    left = np.arange(40, dtype=np.float32) * 2
    boxes = np.stack([left, 0 * left, left + 1, 0 * left + 1], axis=1)
    priors = np.stack([boxes.ravel(), np.ones(160, np.float32)])[np.newaxis]
    location, confidence = np.zeros((1, 160), np.float32), np.full((1, 80), 0.5, np.float32)
    result = detection_output(location, confidence, priors, num_classes=2, keep_top_k=30)
    np.testing.assert_array_equal(result[0, 0, :, 3:], boxes[:30])


def test_score_at_the_threshold():
    location, _, priors = operands(5)
    confidence = np.full((IMAGES, PRIORS * CLASSES), 0.3, np.float32)
    for threshold, found in ((0.3, False), (0.299, True)):
        result = detection_output(
            location, confidence, priors, num_classes=CLASSES, confidence_threshold=threshold
        )
        assert (result.size > 0) == found


@pytest.mark.parametrize(
    ("threshold", "eta", "kept"),
    [(0.4, 1, [0, 3]), (0.5, 0.8, [0, 1, 3]), (0.6, 1, [0, 1, 3]), (0.52, 0.8, [0, 3])],
)
def test_suppress_overlaps(threshold, eta, kept):
    # 1 covers half of 0, 2 is 0 again, 3 has no area
    boxes = np.array([[0, 0, 4, 1], [0, 0, 2, 1], [0, 0, 4, 1], [3, 0, 1, 1]], np.float32)
    assert suppress_overlaps(boxes, threshold, eta).tolist() == kept
    assert suppress_overlaps(boxes[:0], threshold).tolist() == []


def test_wrong_code_type():
    with pytest.raises(ValueError, match="code_type must be 'corner' or 'center_size', not 'edge'"):
        decode_boxes(np.zeros((1, 4), np.float32), np.zeros((2, 1, 4), np.float32), "edge", False)


LOCATION, CONFIDENCE, BOXES = (np.zeros(shape, np.float32) for shape in ((2, 8), (2, 6), (1, 2, 8)))


@pytest.mark.parametrize(
    ("arrays", "parameters", "text"),
    [
        ((LOCATION, CONFIDENCE, BOXES[0]), {}, r"priors must be float32 of shape \(1, 2, P \* 4\)"),
        ((LOCATION, CONFIDENCE, BOXES[:, :1]), {}, r"priors must have the shape .*, not \(1, 1, 8"),
        ((LOCATION, CONFIDENCE, BOXES[..., :6]), {}, r"priors must have the shape .* \(1, 2, 6\)"),
        ((LOCATION, CONFIDENCE, BOXES[..., :4]), {}, r"location must have the shape \(2, 4\), not"),
        (
            (LOCATION, CONFIDENCE[:1], BOXES),
            {},
            r"confidence must have the shape \(2, 6\), not \(1",
        ),
        ((LOCATION, LOCATION, BOXES), {}, r"confidence must have the shape \(2, 6\), not \(2, 8\)"),
        (
            (LOCATION, CONFIDENCE, BOXES),
            {"share_location": False},
            r"location must have the shape \(2, 24\), not \(2, 8\)",
        ),
        (
            (LOCATION, CONFIDENCE, BOXES),
            {"num_classes": 0},
            "num_classes must be at least 1, not 0",
        ),
        ((LOCATION, CONFIDENCE, BOXES), {"nms_threshold": -1}, "nms_threshold must be at least 0,"),
        (
            (LOCATION, CONFIDENCE, BOXES),
            {"eta": 1.5},
            r"eta must be above 0 and at most 1, not 1\.5",
        ),
    ],
)
def test_wrong(arrays, parameters, text):
    with pytest.raises(ValueError, match=text):
        detection_output(*arrays, **{"num_classes": 3} | parameters)


def test_wrong_type():
    with pytest.raises(TypeError, match=r"confidence must be float32 .*, not float64"):
        detection_output(LOCATION, CONFIDENCE.astype(np.float64), BOXES, num_classes=3)
