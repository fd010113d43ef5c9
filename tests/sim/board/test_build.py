from dataclasses import replace

import pytest

import trirow_sim.board.build
from trirow_hw.boards.board import BOARDS
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.board.build import BoardDesign, build_board
from trirow_sim.board.connect import simulated_design
from trirow_sim.compiled import ToolchainError

from .kit import TINY

KEY = trirow_sim.board.build._key
TOOLS = trirow_sim.board.build.find_toolchain


def test_is_built_once(compiled_cache):
    library = build_board(TINY)
    steps = []
    assert build_board(TINY, steps.append) == library
    assert steps == []


@pytest.mark.parametrize(
    "changes",
    [
        {"config": TINY.config.override(bus_bytes=8)},
        {"chip": replace(TINY.chip, t_rcd=20.0)},
        {"clock_hz": 90_000_000},
        {"baud": 3_000_000},
        {"startup_us": 2.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_design_is_another_library(compiled_cache, changes):
    assert KEY(replace(TINY, **changes), TOOLS()) != KEY(TINY, TOOLS())


def test_failed_build_leaves_nothing(compiled_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("TRIROW_CACHE", str(tmp_path))
    monkeypatch.setattr(trirow_sim.board.build, "board_verilog", lambda top: "module")
    monkeypatch.setattr(BoardDesign, "top", lambda design: None)
    with pytest.raises(ToolchainError, match="verilator_bin failed: "):
        build_board(TINY)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clock_hz": 50_000_000}, "clock_hz must be at least 8 \\* 10000000 baud"),
        ({"clock_hz": 200_000_000}, "clock_hz of IS42S16160G-7 must be from"),
    ],
)
def test_unsuitable_design(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


def test_design_of_a_board():
    board = BOARDS["ulx3s-45f"]
    design = simulated_design(board)
    assert design.config == board.config
    assert (design.clock_hz, design.baud) == (85_000_000, 3_000_000)
    assert design.chip == CHIPS["IS42S16160G-7"]
    other = simulated_design(board, chip="AS4C32M16SB-7", clock_mhz=90, baud=1_000_000)
    assert (other.chip.name, other.clock_hz, other.baud) == ("AS4C32M16SB-7", 90_000_000, 10**6)
