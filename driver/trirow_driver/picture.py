"""Pictures as the feature maps that networks take."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = ["CHANNELS", "PictureError", "load_picture"]

CHANNELS = {"rgb": 3, "bgr": 3, "grey": 1}
"""Orders of the channels, and how many each has."""

#: Modes of Pillow whose values have more than 8 bits.
_DEEP = ("I", "F")


class PictureError(ValueError):
    """A picture cannot be used; the message is one line that begins with the file."""


def load_picture(
    path: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    *,
    channels: str = "rgb",
    mean: float | tuple[float, ...] = 0.0,
    scale: float = 1.0,
) -> npt.NDArray[np.float32]:
    """Read a picture as a feature map of real numbers.

    Each byte becomes ``(byte - mean) * scale``. A picture that is stored turned, as cameras do, is
    turned upright first. Transparency is ignored.

    Parameters
    ----------
    path : path-like
        A file in any format that Pillow reads; of an animation the first picture is taken.
    size : (int, int), optional
        Rows and columns to resize to, bilinearly and without keeping the proportions. By default
        the picture's own.
    channels : str
        Order of the channels: ``rgb``, ``bgr`` or ``grey``, which has one.
    mean : float or tuple of float
        What to subtract from each byte; one number, or one for each channel, in their order.
    scale : float
        Factor.

    Returns
    -------
    float32 array of shape (1, H, W, C)
        The feature map.

    Raises
    ------
    PictureError
        If the file cannot be read, or is no picture of 8 bits a channel.
    ValueError
        If another argument is wrong.
    """
    if channels not in CHANNELS:
        raise ValueError(f"channels must be one of {', '.join(CHANNELS)}, not {channels!r}")
    means = np.atleast_1d(np.asarray(mean, np.float32))
    if means.shape not in ((1,), (CHANNELS[channels],)) or not np.isfinite(means).all():
        wanted = "1 finite number" + (" or 3" if CHANNELS[channels] == 3 else "")
        given = ", ".join(f"{value:g}" for value in means.flat)
        raise ValueError(f"mean must be {wanted} for channels {channels}, not {given}")
    if not np.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")
    if size is not None and min(size) < 1:
        raise ValueError(f"size must be at least 1x1, not {size[0]}x{size[1]}")
    picture = _read(Path(path), "L" if channels == "grey" else "RGB", size)
    values = np.asarray(picture, np.float32).reshape(1, picture.height, picture.width, -1)
    if channels == "bgr":
        values = values[..., ::-1]
    result: npt.NDArray[np.float32] = (values - means) * np.float32(scale)
    return result


def _read(path: Path, mode: str, size: tuple[int, int] | None) -> Image.Image:
    try:
        with Image.open(path) as picture:
            if picture.mode.startswith(_DEEP):
                raise PictureError(
                    f"{path}: must have 8 bits a channel, but has more (mode {picture.mode})"
                )
            upright = ImageOps.exif_transpose(picture).convert(mode)
    except UnidentifiedImageError as error:
        raise PictureError(f"{path}: is no picture in a known format") from error
    except OSError as error:
        raise PictureError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise PictureError(f"{path}: cannot be read: {error}") from error
    if size is None or size == (upright.height, upright.width):
        return upright
    return upright.resize((size[1], size[0]), Image.Resampling.BILINEAR)
