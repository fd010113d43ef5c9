"""Files that are cut, flipped or spliced are refused in one line, or are networks all the same."""

import random

import numpy as np
import pytest

from trirow_driver.caffe import CaffeFileError, load_caffe, read_mean, write_mean

from .kit import write_net
from .test_importer import BIAS, CONV, INPUTS, WEIGHTS

TEXT = (
    INPUTS["Input"]
    + CONV
    + """
    layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {
        kernel_size: 2 stride: 2 } }
    layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param {
        num_output: 2 } }
    layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }"""
)
BLOBS = {"conv": [WEIGHTS, BIAS], "fc": [np.ones((2, 24)), np.ones(2)]}


def mutated(dice, content):
    """Return bytes with a few changes of one kind."""
    content = bytearray(content)
    kind = dice.randrange(4)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(content))
        if kind == 0:
            content[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            content[at] = dice.randrange(256)
        elif kind == 2:
            del content[at : at + dice.randint(1, 20)]
        else:
            start = dice.randrange(len(content))
            content[at:at] = content[start : start + dice.randint(1, 20)]
        if not content:
            break
    if dice.random() < 0.2:
        del content[dice.randrange(len(content) + 1) :]
    return bytes(content)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_else_is_raised(request, tmp_path, seed):
    print(f'repeat with: pytest "{request.node.nodeid}"')
    dice = random.Random(seed)
    files = [*write_net(tmp_path, TEXT, BLOBS), tmp_path / "mean.binaryproto"]
    write_mean(files[2], load_caffe(*files[:2]).params["conv"][1])
    contents = [file.read_bytes() for file in files]
    messages = []
    for number in range(250):
        which = number % 3
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
        files[which].write_bytes(mutated(dice, contents[which]))
        try:
            if which == 2:
                read_mean(files[2])
            else:
                load_caffe(*files[:2])
        except CaffeFileError as error:
            messages.append(str(error))
    assert len(messages) > 50
    # A line break is not printable either.
    assert all(text.isprintable() for text in messages)
