"""Fixtures of the tests of what is exported."""

import re

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.export import core_verilog


@pytest.fixture(scope="session")
def text():
    """The smallest core as Verilog."""
    return core_verilog(PRESETS["tiny"])


@pytest.fixture(scope="session")
def ports(text):
    """Direction and width of the core's ports by name."""
    module = re.search(r"^module trirow\(.*?^endmodule", text, re.M | re.S)[0]
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", module, re.M)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}
