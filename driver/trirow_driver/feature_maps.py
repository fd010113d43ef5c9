"""Feature maps by name, some of which are channels of others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trirow_driver.plan import Slice

__all__ = ["FeatureMaps"]

_Int8 = npt.NDArray[np.int8]


class FeatureMaps:
    """Feature maps by name; slices of others are read and written through them.

    Parameters
    ----------
    features : mapping of str to int8 array of shape (N, H, W, C)
    slices : mapping of str to Slice, optional
    """

    def __init__(
        self, features: Mapping[str, _Int8], slices: Mapping[str, Slice] | None = None
    ) -> None:
        self._known = dict(features)
        self._slices = dict(slices or {})

    def root(self, name: str) -> str:
        """Return the feature map that has the memory of another."""
        return self._slices[name].whole if name in self._slices else name

    def __contains__(self, name: object) -> bool:
        return name in self._known

    @property
    def known(self) -> dict[str, _Int8]:
        """All that are there; those that are read as channels of another are not among them."""
        return dict(self._known)

    def read(self, name: str) -> _Int8:
        """Return a feature map.

        Raises
        ------
        KeyError
            If there is none.
        """
        part = self._slices.get(name)
        if name in self._known or part is None:
            return self._known[name]
        return self._known[part.whole][..., part.first : part.first + part.channels]

    def write(self, name: str, values: _Int8) -> None:
        """Keep a feature map; a whole is there as soon as one slice of it is."""
        self._known[name] = values
        part = self._slices.get(name)
        if part is None:
            return
        ends = (p.first + p.channels for p in self._slices.values() if p.whole == part.whole)
        empty = np.zeros((*values.shape[:3], max(ends)), np.int8)
        whole = self._known.setdefault(part.whole, empty)
        whole[..., part.first : part.first + part.channels] = values
