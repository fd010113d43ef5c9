import pytest

from trirow_hw.boards.board import BOARDS, Board
from trirow_hw.config import PRESETS


def test_names_are_keys():
    assert all(name == board.name for name, board in BOARDS.items())
    assert {"ulx3s-85f", "ulx3s-45f", "ulx3s-25f", "icesugar-pro", "icebreaker"} <= set(BOARDS)


def test_settings_replace_fields_of_the_preset():
    board = BOARDS["ulx3s-45f"]
    assert board.config.in_lanes * board.config.out_lanes == 64
    assert board.config.bus_bytes == PRESETS[board.preset].bus_bytes
    assert BOARDS["ulx3s-85f"].config == PRESETS["ecp5-85f"]


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_pinout_is_of_the_board(board: Board):
    platform = board.platform_class()()
    assert platform.device == board.device
    clock = platform.lookup(platform.default_clk).clock
    assert clock.frequency == board.oscillator_mhz * 1e6
    assert ("uart", 0) in platform.resources
    assert (("sdram", 0) in platform.resources) == bool(board.chips)
    if board.family == "ecp5":
        assert platform.speed == board.speed
        packages = type(platform)._nextpnr_package_options
        assert packages[platform.package].upper() == board.package
