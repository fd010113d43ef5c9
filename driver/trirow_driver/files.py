"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


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
