"""Fixtures of the system's tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def shared_engines(no_built_engine, monkeypatch):
    """Let all tests here build the compiled engine, in a cache that all tests and runs share."""
    folder = Path(__file__).parents[2] / "build" / "test-cache"
    monkeypatch.setenv("TRIROW_CACHE", str(folder))
