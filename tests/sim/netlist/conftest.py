"""Fixtures of the tests of the primitives' models."""

import pytest

from trirow_sim.compiled import ToolchainError, find_toolchain


@pytest.fixture(autouse=True)
def toolchain():
    """Skip what needs Verilator and a compiler where they are missing."""
    try:
        return find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
