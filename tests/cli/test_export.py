import json
import subprocess
from pathlib import Path

import click
import pytest
from amaranth.back.verilog import YosysError
from click.testing import CliRunner

import trirow.export
from trirow.export import export
from trirow_hw.config import PRESETS

FILES = ["registers.md", "trirow.c", "trirow.h", "trirow.v", "trirow_registers.h"]


def run(*arguments):
    return CliRunner().invoke(export, [*map(str, arguments)])


@pytest.fixture
def quick(monkeypatch):
    """Leave out what takes seconds."""
    asked = []

    def verilog(config):
        asked.append(config)
        return "module trirow(); endmodule\n"

    monkeypatch.setattr(trirow.export, "core_verilog", verilog)
    return asked


def test_all_files(tmp_path):
    folder, listing = tmp_path / "core", tmp_path / "export.json"
    result = run("--set", "weight_buffer_bytes=8192", "-o", folder, "--json", listing)
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "trirow.v").read_text().count("module trirow(") == 1
    assert "| 0x00002000 | size of the weight buffer |" in (folder / "registers.md").read_text()
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    subprocess.run([*command, "trirow.c", "-o", tmp_path / "trirow.o"], check=True, cwd=folder)
    content = json.loads(listing.read_text())
    assert content["configuration"]["weight_buffer_bytes"] == 8192
    assert content["folder"] == str(folder)
    sizes = {file["name"]: file["bytes"] for file in content["files"]}
    assert sizes == {name: (folder / name).stat().st_size for name in FILES}
    for name, size in sizes.items():
        assert name in result.stdout
        assert f"{size:,}" in result.stdout


def test_configuration(tmp_path, quick):
    assert run("--config", "m256", "-o", tmp_path).exit_code == 0
    assert run("-o", tmp_path).exit_code == 0
    assert quick == [PRESETS["m256"], PRESETS["tiny"]]


def test_other_files_stay(tmp_path, quick):
    (tmp_path / "mine.v").write_text("mine")
    (tmp_path / "trirow.v").write_text("old")
    result = run("-o", tmp_path)
    assert result.exit_code == 0
    assert (tmp_path / "mine.v").read_text() == "mine"
    assert (tmp_path / "trirow.v").read_text() == "module trirow(); endmodule\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.v", *FILES]
    line = next(line for line in result.stdout.splitlines() if "mine.v" in line)
    assert "was there before" in line


def test_without_yosys(tmp_path, monkeypatch):
    def verilog(config):
        raise YosysError("Could not find\nan acceptable Yosys binary")

    monkeypatch.setattr(trirow.export, "core_verilog", verilog)
    result = run("-o", tmp_path / "core")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "Error: Verilog needs Yosys: `pip install 'trirow[export]'` "
        "(Could not find an acceptable Yosys binary)"
    ]
    assert not (tmp_path / "core").exists()


def test_yosys_is_looked_for(tmp_path, monkeypatch):
    """Where Amaranth finds none, the command says so."""
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "system")
    monkeypatch.setenv("YOSYS", str(tmp_path / "none"))
    result = run("-o", tmp_path / "core")
    assert result.exit_code == 2
    assert "needs Yosys" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def refused(monkeypatch, text, *arguments):
    """Check that the command is refused before anything is made."""

    def verilog(config):
        raise AssertionError("too late")

    monkeypatch.setattr(trirow.export, "core_verilog", verilog)
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in " ".join(result.stderr.split())


def test_bad_usage(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    refused(monkeypatch, "Missing option '-o'")
    refused(monkeypatch, f"{file} is not a folder", "-o", file)
    refused(monkeypatch, "of 'b' does not exist", "-o", tmp_path / "a" / "b")
    refused(monkeypatch, "does not exist", "-o", file / "b")
    refused(monkeypatch, "Invalid value for '--config'", "--config", "huge", "-o", tmp_path)
    refused(monkeypatch, "Invalid value for '--set'", "--set", "lanes=3", "-o", tmp_path)
    refused(monkeypatch, "bus_bytes", "--set", "bus_bytes=3", "-o", tmp_path)
    refused(monkeypatch, "is a folder", "-o", tmp_path, "--json", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folder_that_cannot_be_written(tmp_path, monkeypatch, quick):
    monkeypatch.setattr(trirow.export.os, "access", lambda path, mode: False)
    result = run("-o", tmp_path / "core")
    assert result.exit_code == 2
    assert f"the folder {tmp_path} cannot be written to" in " ".join(result.stderr.split())
    assert not quick


def test_failing_disk(tmp_path, monkeypatch, quick):
    """What goes wrong while files are written is one line, and leaves no half of a file."""
    (tmp_path / "trirow.v").write_text("old")

    def write(path, text, encoding):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    result = CliRunner().invoke(export, ["-o", str(tmp_path)], standalone_mode=False)
    assert isinstance(result.exception, click.ClickException)
    assert result.exception.exit_code == 2
    assert result.exception.message == f"{tmp_path}: cannot be written: No space left on device"
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["trirow.v"]
    assert (tmp_path / "trirow.v").read_text() == "old"
