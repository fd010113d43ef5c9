"""`trirow sim --board`: which options go with it, and what it reports."""

import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

import trirow.sim
import trirow_sim.board.connect
from trirow.main import main
from trirow_driver.device import DeviceError
from trirow_hw.boards.board import BOARDS
from trirow_hw.config import PRESETS
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.board.build import BoardDesign
from trirow_sim.board.simulated import SimulatedBoard

ON_BOARD = ("--board", "ulx3s-25f", "--port", "simulated")
SMALL = ("--shape", "3x4x4", "--out", "4", "--kernel", "1x1")


def run(*arguments):
    return CliRunner().invoke(main, ["sim", *map(str, arguments)])


def refused(text, *arguments, status=2):
    """Check that a command fails with one line and nothing else."""
    result = run(*arguments)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert re.fullmatch(f"Error: {text}", result.stderr.rstrip("\n")), result.stderr
    assert result.exit_code == status


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--port", "x"], r"--port needs --board\..*"),
        (["--baud", "9600"], r"--baud needs --board\..*"),
        (["--sdram", "AS4C32M16SB-7"], r"--sdram needs --board\..*"),
        (["--board", "ulx3s-85f"], r"--board needs --port: the serial port .*"),
        (["--board", "x"], r"Invalid value for '--board': 'x' is not one of 'ulx3s-85f', .*"),
        ([*ON_BOARD, "--baud", "0"], r"Invalid value for '--baud': .*"),
        ([*ON_BOARD, "--config", "tiny"], r"--config does not go with --board\..*"),
        ([*ON_BOARD, "--set", "bus_bytes=8"], r"--set does not go with --board\..*"),
        ([*ON_BOARD, "--memory", "ddr"], r"--memory does not go with --board\..*"),
        ([*ON_BOARD, "--engine", "auto"], r"--engine does not go with --board\..*"),
        ([*ON_BOARD, "--vcd", "x.vcd"], r"--vcd does not go with --board\..*"),
        ([*ON_BOARD, "--trace", "x.json"], r"--trace does not go with --board\..*"),
        (
            ["--board", "icebreaker", "--port", "x"],
            r"board icebreaker is not supported: the core does not fit",
        ),
        (
            [*ON_BOARD, "--sdram", "M12L64322A-6"],
            r"board ulx3s-25f comes with IS42S16160G-7 or AS4C32M16SB-7, not with 'M12L64322A-6'",
        ),
    ],
)
def test_wrong_combination(arguments, text):
    refused(text, *arguments)


def test_port_that_is_not_there(tmp_path):
    pytest.importorskip("serial")
    port = tmp_path / "ttyUSB7"
    text = f"{port}: cannot be opened: No such file or directory; check the name of the port .*"
    refused(text, "--board", "ulx3s-85f", "--port", port, *SMALL)


def test_baud_that_the_clock_is_too_slow_for():
    refused(r"clock_hz must be at least 8 \* 20000000 baud, .*", *ON_BOARD, "--baud", "20000000")


class Failing:
    """A device whose memory fails."""

    name = "failing"

    def write(self, address, data):
        raise DeviceError(f"{self.name}: write of {len(data)} bytes at {address:#x} failed: why")


def test_failed_run(monkeypatch):
    """Once it is open, a failure is not a wrong usage."""

    class Connected:
        def __init__(self, *arguments, **options):
            pass

        def __enter__(self):
            return Failing()

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(trirow.sim, "connected", Connected)
    arguments = ("--board", "ulx3s-85f", "--port", "x", *SMALL)
    refused(r"failing: write of \d+ bytes at 0x1000 failed: why", *arguments, status=1)


@pytest.fixture
def quick(monkeypatch, compiled_cache):
    """Let ulx3s-25f be a small board with a quick line, which tests/system builds too."""
    pytest.importorskip("serial")
    board = replace(BOARDS["ulx3s-25f"], preset="tiny", settings={}, clock_mhz=100)
    monkeypatch.setattr(trirow.sim, "BOARDS", {**BOARDS, board.name: board})
    return (*ON_BOARD, "--baud", 10_000_000)


def test_simulated_board(quick, tmp_path):
    path = tmp_path / "result.json"
    result = run(*quick, *SMALL, "--json", path)
    assert result.exit_code == 0, result.output
    assert re.search(r"Engine board: at /dev/\S+\.", result.stdout)
    assert "at 100 MHz" in result.stdout
    assert "Every output equals golden" in result.stdout
    (layer,) = json.loads(path.read_text())["layers"]
    assert (layer["engine"], layer["memory"]) == ("board", "IS42S16160G-7")
    assert layer["config"] == "tiny"
    assert "at 50 MHz" in run(*quick, *SMALL, "--clock-mhz", "50").stdout


def test_broken_rule_is_one_line(quick, monkeypatch):
    """The controller waits 2 cycles from ACTIVATE to READ, which the chip takes for too few."""

    def slow(design, **options):
        return SimulatedBoard(design, chip=replace(design.chip, t_rcd=25.0), **options)

    monkeypatch.setattr(trirow_sim.board.connect, "SimulatedBoard", slow)
    text = r"simulated board: SDRAM: cycle \d+: tRCD: bank \d: 2 cycles after ACTIVATE, .*"
    refused(text, *quick, *SMALL, status=1)


def test_another_configuration_on_the_board(quick, monkeypatch):
    def other_design(board, *, chip, baud):
        return BoardDesign(PRESETS["tiny"], CHIPS[chip], 100_000_000, baud)

    monkeypatch.setattr(trirow.sim, "simulated_design", other_design)
    board = replace(trirow.sim.BOARDS["ulx3s-25f"], settings={"weight_buffer_bytes": 8192})
    monkeypatch.setattr(trirow.sim, "BOARDS", {**BOARDS, board.name: board})
    refused(r"\S+: board has weight_buffer_bytes 4096, image wants 8192; .*", *quick, *SMALL)
