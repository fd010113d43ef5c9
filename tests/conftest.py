"""Fixtures for all tests."""

from pathlib import Path

import pytest

from trirow_sim.compiled import ToolchainError, find_toolchain


@pytest.fixture(autouse=True)
def no_built_engine(monkeypatch, tmp_path_factory):
    """Hide what the user has built, so that `auto` takes the same engine everywhere."""
    monkeypatch.setenv("TRIROW_CACHE", str(tmp_path_factory.getbasetemp() / "no-cache"))


@pytest.fixture
def compiled_cache(no_built_engine, monkeypatch):
    """Let a test build the compiled engine, in a cache that all tests and runs share."""
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    folder = Path(__file__).parents[1] / "build" / "test-cache"
    monkeypatch.setenv("TRIROW_CACHE", str(folder))
    return folder
