import re

import numpy as np
import pytest
from PIL import Image

from trirow_driver.picture import PictureError, load_picture


@pytest.fixture
def colours():
    return np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.fixture
def path(colours, tmp_path):
    Image.fromarray(colours).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def test_rgb_and_bgr(colours, path):
    values = load_picture(path)
    assert values.shape == (1, 5, 7, 3)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values[0], colours)
    np.testing.assert_array_equal(load_picture(path, channels="bgr")[0], colours[..., ::-1])


def test_grey(colours, path, tmp_path):
    values = load_picture(path, channels="grey")
    assert values.shape == (1, 5, 7, 1)
    luma = colours @ np.array([0.299, 0.587, 0.114])
    assert np.abs(values[0, ..., 0] - luma).max() <= 1
    grey = colours[..., 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(
        load_picture(tmp_path / "grey.png", channels="grey")[0, ..., 0], grey
    )
    for channel in range(3):
        np.testing.assert_array_equal(load_picture(tmp_path / "grey.png")[0, ..., channel], grey)


def test_mean_and_scale(colours, path):
    values = load_picture(path, mean=10, scale=1 / 255)
    np.testing.assert_allclose(values[0], (colours.astype(np.float64) - 10) / 255, rtol=1e-5)
    values = load_picture(path, channels="bgr", mean=(1.0, 2.0, 3.0), scale=2)
    np.testing.assert_array_equal(values[0], (colours[..., ::-1] - np.array([1.0, 2, 3])) * 2)


def test_resize(colours, path):
    assert load_picture(path, (5, 7)).tobytes() == load_picture(path).tobytes()
    values = load_picture(path, (10, 3), channels="grey")
    assert values.shape == (1, 10, 3, 1)
    wide = Image.fromarray(np.repeat(np.arange(0, 200, 10, dtype=np.uint8)[None], 4, 0))
    wide.save(path)
    halved = load_picture(path, (4, 10), channels="grey")[0, 0, :, 0]
    np.testing.assert_allclose(halved, np.arange(5, 200, 20), atol=3)


def test_turned_picture(colours, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the top is at the right
    Image.fromarray(colours).save(tmp_path / "turned.png", exif=exif)
    values = load_picture(tmp_path / "turned.png")
    np.testing.assert_array_equal(values[0], np.rot90(colours, -1))


@pytest.mark.parametrize("mode", ["RGBA", "P", "1", "CMYK"])
def test_other_modes(colours, tmp_path, mode):
    path = tmp_path / "picture.tiff"
    Image.fromarray(colours).convert(mode).save(path)
    assert load_picture(path).shape == (1, 5, 7, 3)


# Errors


def refused(path, text):
    with pytest.raises(PictureError, match=f"^{re.escape(f'{path}: {text}')}"):
        load_picture(path)


def test_wrong_files(path, tmp_path):
    refused(tmp_path / "none.png", "cannot be read: No such file or directory")
    refused(tmp_path, "cannot be read: Is a directory")
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:5]):
        path.write_bytes(content)
        refused(path, "is no picture in a known format")
    path.write_bytes(whole[:-40])
    refused(path, "cannot be read: ")


def test_damaged_file(path):
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    refused(path, "cannot be read: ")


def test_deep_picture(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(path)
    refused(path, "must have 8 bits a channel, but has more (mode I;16)")


def test_far_too_large_picture(path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    refused(path, "cannot be read: Image size (35 pixels) exceeds limit")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channels": "yuv"}, "channels must be one of rgb, bgr, grey, not 'yuv'"),
        ({"mean": (1.0, 2.0)}, "mean must be 1 finite number or 3 for channels rgb, not 1, 2"),
        ({"mean": float("nan")}, "mean must be 1 finite number or 3 for channels rgb, not nan"),
        (
            {"channels": "grey", "mean": (1.0, 2.0, 3.0)},
            "mean must be 1 finite number for channels grey, not 1, 2, 3",
        ),
        ({"scale": float("inf")}, "scale must be finite, not inf"),
        ({"size": (0, 4)}, "size must be at least 1x1, not 0x4"),
    ],
)
def test_wrong_arguments(path, options, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        load_picture(path, **options)
