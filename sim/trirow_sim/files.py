"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_json"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path, and rename the file written there to `path` at the end.

    If the block raises, the temporary file is removed and a file at `path` stays as it was. What
    is no file, such as a terminal, is written to directly.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        yield target
        return
    target = target.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


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
