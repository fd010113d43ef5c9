import json

import pytest
from click.testing import CliRunner

from trirow.boards import boards
from trirow_hw.boards.board import BOARDS
from trirow_hw.synthesis.devices import DEVICES


def run(*arguments):
    return CliRunner().invoke(boards, list(arguments))


def test_table():
    result = run()
    assert result.exit_code == 0
    assert result.stderr == ""
    for board in BOARDS.values():
        assert board.name in result.stdout
        assert board.device in result.stdout
    assert "IS42S16160G-7" in result.stdout
    assert "…" not in result.stdout


def test_json(tmp_path):
    path = tmp_path / "boards.json"
    assert run("--json", str(path)).exit_code == 0
    entries = {entry["name"]: entry for entry in json.loads(path.read_text())["boards"]}
    assert list(entries) == list(BOARDS)
    ulx3s = entries["ulx3s-85f"]
    assert ulx3s["device"] == "LFE5U-85F"
    assert ulx3s["preset"] == "ecp5-85f"
    assert ulx3s["config"]["in_lanes"] * ulx3s["config"]["out_lanes"] == 128
    assert ulx3s["memory"] == ["IS42S16160G-7", "AS4C32M16SB-7"]
    assert ulx3s["supported"] is True
    assert entries["icebreaker"]["supported"] is False


def test_bad_usage(tmp_path):
    for arguments in (["--json", str(tmp_path)], ["x"]):
        assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "board", [b for b in BOARDS.values() if b.family == "ecp5"], ids=lambda b: b.name
)
def test_multipliers_fit_the_device(board):
    """The array's multipliers, and four blocks for the 33 x 31 bits of each requantiser."""
    config = board.config
    assert config.multipliers + 4 * config.post_lanes <= DEVICES[board.device].dsps
    bits = 8 * (config.line_buffer_bytes + config.weight_buffer_bytes)
    assert bits <= 18 * 1024 * DEVICES[board.device].block_rams


def test_every_unsupported_board_says_why():
    assert all(board.note for board in BOARDS.values() if not board.supported)
