"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from trirow_driver.files import replacing

__all__ = ["replacing", "write_json"]


def write_json(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a file of JSON, which appears whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
