"""Operations of single-shot detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from trirow_driver.graph.operation import Floats, Operation, Shape, check_features, elements
from trirow_golden import float32

__all__ = ["DetectionOutput", "PriorBox"]


@dataclass(frozen=True, eq=False)
class PriorBox(Operation):
    """Boxes around each pixel of a feature map, and their variances.

    Takes the feature map, and the image for its size. See `trirow_golden.float32.prior_box`.

    Parameters
    ----------
    min_sizes, max_sizes, aspect_ratios, flip, clip, variances, step, offset
        As there.
    image_size : (int, int), optional
        Height and width instead of those of the second input.
    """

    min_sizes: tuple[float, ...]
    max_sizes: tuple[float, ...] = ()
    aspect_ratios: tuple[float, ...] = ()
    flip: bool = True
    clip: bool = False
    variances: tuple[float, ...] = (0.1,)
    step: tuple[float, float] | None = None
    offset: float = 0.5
    image_size: tuple[int, int] | None = None
    arity = 2

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (1, 2, 4 * boxes)."""
        for shape in shapes:
            check_features(shape)
        (one,) = self._boxes((1, 1), (1, 1))
        return ((1, 2, one.shape[2] * shapes[0][2] * shapes[0][3]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return boxes and variances."""
        features, image = inputs
        size = self.image_size or (image.shape[2], image.shape[3])
        return self._boxes((features.shape[2], features.shape[3]), size)

    def _boxes(self, map_size: tuple[int, int], image_size: tuple[int, int]) -> tuple[Floats]:
        y = float32.prior_box(
            map_size,
            image_size,
            min_sizes=self.min_sizes,
            max_sizes=self.max_sizes,
            aspect_ratios=self.aspect_ratios,
            flip=self.flip,
            clip=self.clip,
            variances=self.variances,
            step=self.step,
            offset=self.offset,
        )
        return (y,)


@dataclass(frozen=True, eq=False)
class DetectionOutput(Operation):
    """Decode boxes, drop those that overlap better ones, and keep the best.

    Takes offsets, scores and prior boxes. How many boxes there are depends on the data: `infer`
    says how many there can be. See `trirow_golden.float32.detection_output`.

    Parameters
    ----------
    num_classes, share_location, background_label, code_type, variance_encoded_in_target,
    confidence_threshold, nms_threshold, eta, top_k, keep_top_k
        As there.
    """

    num_classes: int
    share_location: bool = True
    background_label: int = 0
    code_type: Literal["corner", "center_size"] = "corner"
    variance_encoded_in_target: bool = False
    confidence_threshold: float = -inf
    nms_threshold: float = 0.3
    eta: float = 1.0
    top_k: int = -1
    keep_top_k: int = -1
    arity = 3

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (1, 1, boxes at most, 7)."""
        location, confidence, priors = shapes
        if len(priors) != 3 or priors[:2] != (1, 2) or priors[2] % 4:
            raise ValueError(f"priors must have the shape (1, 2, P * 4), not {priors}")
        count = priors[2] // 4
        classes = 1 if self.share_location else self.num_classes
        for name, shape, values in (
            ("offsets", location, count * classes * 4),
            ("scores", confidence, count * self.num_classes),
        ):
            if elements(shape[1:]) != values:
                raise ValueError(f"{name} must be {values} for {count} boxes, not shape {shape}")
        most = count * self.num_classes
        if self.keep_top_k >= 0:
            most = min(most, self.keep_top_k)
        return ((1, 1, location[0] * most, 7),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return a row for each box: image, label, score, left, top, right, bottom."""
        location, confidence, priors = inputs
        images = location.shape[0]
        y = float32.detection_output(
            location.reshape(images, -1),
            confidence.reshape(images, -1),
            priors,
            num_classes=self.num_classes,
            share_location=self.share_location,
            background_label=self.background_label,
            code_type=self.code_type,
            variance_encoded_in_target=self.variance_encoded_in_target,
            confidence_threshold=self.confidence_threshold,
            nms_threshold=self.nms_threshold,
            eta=self.eta,
            top_k=self.top_k,
            keep_top_k=self.keep_top_k,
        )
        return (y,)
