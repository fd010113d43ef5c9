"""Whole boards in the compiled simulator, reached through a pseudo-terminal: golden's bytes."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import trirow.sim
from trirow.main import main
from trirow_driver.device import DeviceError, SerialDevice
from trirow_driver.program import INPUT
from trirow_hw.boards.board import BOARDS
from trirow_sim.board.connect import ConnectError, connected, simulated_design
from trirow_sim.board.simulated import SimulatedBoard, SimulatedBoardError
from trirow_sim.case import Case
from trirow_sim.compiled import ToolchainError, find_toolchain
from trirow_sim.simulate import RunError, simulate, simulate_graph

from ..sim.board.kit import CHIP, TINY, chained

PAD = (1, 1, 1, 1)
CASES = [
    Case(shape=(6, 5, 5), out=7, pad=PAD, seed=1),
    Case("add", (4, 5, 6), mode="fixed", seed=2),
    Case(shape=(5, 4, 40), out=5, kernel=(5, 5), pad=(2, 2, 2, 2), seed=3),  # sums of parts
]
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(autouse=True)
def tools():
    pytest.importorskip("serial")
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))


def run_case(device, case, config, **options):
    nodes, features, slices = case.build()
    return simulate_graph(
        nodes, features, config, slices=slices, device=device, memory=CHIP.name, **options
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_layer_equals_golden(case):
    with connected("", TINY.config, design=TINY) as device:
        run = run_case(device, case, TINY.config)
        assert device.repeated == 0
    assert run.ok
    assert run.choice.engine == "board"
    (layer, *_) = run.report.layers
    assert (layer.engine, layer.memory) == ("board", CHIP.name)


def test_chain_is_counted_layer_by_layer():
    """Each layer is a run, with about the cycles of the memory model."""
    nodes, features = chained(
        Case(shape=(6, 6, 8), out=8, pad=PAD),
        Case("depthwise", (6, 6, 8), pad=PAD, stride=(2, 2)),
        Case(shape=(3, 3, 8), out=6, kernel=(1, 1)),
    )
    seen, stages = [], []
    with connected("", TINY.config, design=TINY) as device:
        run = simulate_graph(
            nodes,
            features,
            TINY.config,
            device=device,
            memory=CHIP.name,
            progress=lambda *values: seen.append(values),
            building=stages.append,
        )
        assert run.report.layers[-1].cycles == device.read_register("cycles")
    assert run.ok
    assert stages == ["loading", "running", "reading back"]
    done, whole, last = seen[-1]
    assert done == whole
    assert last == sum(layer.cycles for layer in run.report.layers)
    for number, (node, layer) in enumerate(zip(nodes, run.report.layers, strict=True)):
        given = features[INPUT] if number == 0 else run.outputs[number - 1]
        model = simulate([node.layer], given, TINY.config, memory="sdram16", engine="pysim")
        assert model.ok
        (expected,) = model.report.layers
        print(f"{layer.name}: {layer.cycles} cycles, {expected.cycles} in the model")
        # Registers and arbiter before the controller: a few cycles for each read of a short layer.
        assert layer.cycles == pytest.approx(expected.cycles, rel=0.05, abs=50)
        assert layer.bytes_read == expected.bytes_read
        assert layer.bytes_written == expected.bytes_written


def test_broken_rule_ends_with_its_text():
    """The chip wants more time from ACTIVATE to READ than the controller was built for."""
    slower = replace(CHIP, t_rcd=CHIP.t_rcd + 10)
    began = time.monotonic()
    with (
        pytest.raises(SimulatedBoardError) as caught,
        SimulatedBoard(TINY, chip=slower) as board,
        SerialDevice(board.port, TINY.baud, timeout=60) as device,
    ):
        device.write(0, bytes(range(64)))
    assert time.monotonic() - began < 50
    text = str(caught.value)
    assert " tRCD: bank 0: 2 cycles after ACTIVATE, at least 25 ns" in text
    assert text.startswith("simulated board: SDRAM: cycle ")
    assert len(text.splitlines()) == 1


def test_broken_rule_at_power_up_is_no_hang():
    with (
        pytest.raises(SimulatedBoardError, match=r"SDRAM: cycle \d+: tRFC: "),
        SimulatedBoard(TINY, chip=replace(CHIP, t_rfc=95.0)) as board,
        SerialDevice(board.port, TINY.baud, timeout=60),
    ):
        pass


def test_wrong_configuration_is_refused():
    other = TINY.config.override(weight_buffer_bytes=8192)
    with (
        pytest.raises(ConnectError, match="board has weight_buffer_bytes 4096, image wants 8192"),
        connected("", other, design=TINY),
    ):
        pass


def test_image_larger_than_the_chip_is_refused():
    with connected("", TINY.config, design=TINY) as device:
        nodes, features, _ = Case(shape=(1500, 1500, 16), out=4, kernel=(1, 1)).build()
        with pytest.raises(ValueError, match="does not fit the 33,554,432 bytes of IS42S16160G-7"):
            simulate_graph(nodes, features, TINY.config, device=device, memory=CHIP.name)


def test_failed_run_names_pass_and_layer():
    case = CASES[0]
    with connected("", TINY.config, design=TINY) as device:
        with pytest.raises(RunError, match=r"WATCHDOG .*pass 1 of \d+ of layer 'conv'"):
            run_case(device, case, TINY.config, watchdog=3)
        assert run_case(device, case, TINY.config).ok


def test_device_that_is_gone_is_an_error():
    board = SimulatedBoard(TINY)
    with SerialDevice(board.port, TINY.baud, timeout=60) as device:
        board.close()
        with pytest.raises(DeviceError, match="check that the board is connected"):
            device.read(0, 4)


def digits(*arguments):
    """Run the digits as a user does; return what is printed."""
    arguments += ("--model", str(DIGITS / "weights.npz"))
    arguments += ("--image", str(DIGITS / "images" / "digit_7.png"))
    result = CliRunner().invoke(main, ["sim", *arguments])
    assert result.exit_code == 0, result.output
    print(result.stdout)
    assert "Every output equals golden" in result.stdout
    assert "The network says: class 7" in result.stdout


@pytest.mark.slow
def test_digits_on_a_small_board(monkeypatch):
    board = replace(BOARDS["ulx3s-25f"], preset="tiny", settings={}, clock_mhz=100)
    monkeypatch.setattr(trirow.sim, "BOARDS", {**BOARDS, board.name: board})
    digits("--board", board.name, "--port", "simulated", "--baud", str(TINY.baud))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ulx3s-25f", "ulx3s-85f"])
def test_digits_on_a_whole_board(name):
    """At the board's own clock and 3 Mbaud."""
    digits("--board", name, "--port", "simulated")


@pytest.mark.slow
def test_layer_on_a_whole_board():
    board = BOARDS["ulx3s-85f"]
    with connected("", board.config, design=simulated_design(board)) as device:
        assert run_case(device, CASES[0], board.config).ok
