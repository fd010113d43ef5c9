import pytest

from trirow_hw.accelerator import Accelerator
from trirow_hw.config import PRESETS
from trirow_hw.synthesis.check import check_cells, registered_multipliers
from trirow_hw.synthesis.limits import LIMITS, over_limits
from trirow_hw.synthesis.tools import MissingTool, find_yosys
from trirow_hw.synthesis.yosys import synthesise_ecp5


def test_over_limits():
    assert over_limits({"LUT4": 100, "DP16KD": 3}, {"LUT4": 100, "DP16KD": 3, "CCU2C": 0}) == []
    assert over_limits({"LUT4": 1101, "DP16KD": 4}, {"LUT4": 1100, "DP16KD": 3}) == [
        "1,101 LUT4, more than 1,100",
        "4 DP16KD, more than 3",
    ]


def test_limits_are_of_presets():
    assert set(LIMITS) <= set(PRESETS)


def test_smallest_core_is_within_its_limits(tmp_path):
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    config = PRESETS["tiny"]
    core = synthesise_ecp5(Accelerator(config=config), tmp_path, name="core")
    registered = registered_multipliers(core.path, "core")
    assert check_cells(core.cells, registered, config) == []
