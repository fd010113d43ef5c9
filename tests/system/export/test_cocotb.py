"""Exported Verilog between somebody else's bus models: layers give golden's bytes."""

from pathlib import Path

import numpy as np
import pytest

from trirow_hw.export import TOP, core_verilog
from trirow_sim.case import Case
from trirow_sim.compiled import ToolchainError, find_toolchain

from ..kit import BASE, TINY, lay_out

pytest.importorskip("cocotb", reason="cocotb is not installed")
pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed")

from . import verilated

#: Two layers that use all readers, each with one seed for numbers, places and back-pressure.
CASES = {
    1: Case("conv", (6, 7, 5), 6, (3, 3), pad=(1, 1, 1, 1), residual=True, seed=1),
    2: Case("depthwise", (7, 6, 9), kernel=(3, 3), stride=(2, 1), activation="sigmoid", seed=2),
}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("verilated")
    source = folder / f"{TOP}.v"
    source.write_text(core_verilog(TINY))
    verilated.build([source], folder, ["*axi_*", "aclk", "aresetn", "interrupt"])
    return folder


def run_layer(simulator, folder, seed):
    folder.mkdir()
    nodes, features, slices = CASES[seed].build()
    setup = lay_out(nodes, features, TINY, seed, slices=slices)
    (folder / "before.bin").write_bytes(setup.before)
    verilated.run(
        simulator,
        folder,
        Path(__file__).with_name("cocotb_layer.py"),
        seed,
        LAYER_FOLDER=folder,
        LAYER_SEED=seed,
        LAYER_BASE=BASE,
        LAYER_DESCRIPTOR=setup.job.descriptor,
        PYTHONWARNINGS="default",
    )
    found, wanted = (
        np.frombuffer(data, np.uint8) for data in ((folder / "after.bin").read_bytes(), setup.after)
    )
    assert setup.before != setup.after
    wrong = np.flatnonzero(found != wanted)
    assert not wrong.size, (
        f"seed {seed}: {wrong.size} bytes differ, the first at {BASE + wrong[0]:#x}"
    )


def test_layers(simulator, tmp_path, monkeypatch):
    """One test, so that there is one build of the simulator."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    for seed in CASES:
        run_layer(simulator, tmp_path / str(seed), seed)
