"""Each operation of `trirow sim`, end to end."""

import json
import shlex

import pytest
from click.testing import CliRunner

from trirow.layer_options import LAYER_OPTIONS, layer_case
from trirow.main import main
from trirow.sim import sim
from trirow_sim.case import OPERATIONS


def run(*arguments):
    return CliRunner().invoke(main, ["sim", *map(str, arguments)])


def parsed(arguments):
    """Return the layer that options describe."""
    with sim.make_context("sim", [str(word) for word in arguments]) as context:
        values = {name: context.params[name] for name in (*LAYER_OPTIONS, "seed")}
        return layer_case(context, values)


OPERATIONS_AND_OPTIONS = [
    ("conv --shape 4x5x4 --out 4 --groups 2 --kernel 1x2 --activation relu6 --mode fixed", 80),
    ("conv --shape 4x4x4 --out 3 --kernel 2 --pad same --weight-zero-point -9", 48),
    ("conv --shape 3x3x4 --out 3 --kernel 1 --residual --activation leaky", 27),
    ("conv --shape 3x3x4 --out 3 --kernel 1 --activation prelu", 27),
    ("depthwise --shape 4x4x3 --multiplier 2 --kernel 3x1", 96),
    ("transposed --shape 3x3x2 --out 3 --kernel 2 --stride 2 --output-padding 1x0 --pad 0", 126),
    ("fc --shape 2x2x4 --out 5 --activation sigmoid", 5),
    ("maxpool --shape 5x5x4 --ceil", 36),
    ("avgpool --shape 4x4x4 --kernel 3 --stride 2 --pad 1 --count-padding", 16),
    ("add --shape 2x3x4 --batch 2 --mode fixed --extreme", 48),
    ("maximum --shape 2x3x4", 24),
    ("concat --shape 2x3x4 --out 2", 36),
    ("slice --shape 2x3x7 --out 4", 24),
    ("upsample --shape 2x2x3 --factor 3", 108),
    ("shuffle --shape 2x2x6 --groups 3", 24),
    ("multiply --shape 2x2x6 --batch 3", 72),
]


def test_every_operation_is_tested():
    assert {line.split()[0] for line, _ in OPERATIONS_AND_OPTIONS} == set(OPERATIONS)


@pytest.mark.parametrize(("line", "outputs"), OPERATIONS_AND_OPTIONS)
def test_operation(line, outputs, tmp_path):
    """Run each operation as its own command prints it, and count the outputs."""
    path = tmp_path / "result.json"
    op = line.split()[0]
    case = parsed(["--op", *line.split()])
    bits = ["--set", "weight_bits=9"] if case.weight_zero_point else []
    command = shlex.split(case.command(memory="ideal", engine="pysim", json=path))
    assert command[:2] == ["trirow", "sim"]
    result = run(*command[2:], *bits)
    assert result.exit_code == 0, result.output
    content = json.loads(path.read_text())
    assert content["network"]["match"]
    assert content["network"]["outputs"] == outputs
    place = "host" if op == "multiply" else "rtl"
    assert {layer["place"] for layer in content["layers"]} == {place}
    if case.batch > 1:
        assert f" {case.batch} x 2x" in result.stdout


def test_operation_on_the_host():
    result = run("--op", "multiply", "--shape", "3x4x4")
    assert result.exit_code == 0, result.output
    for part in (
        "on the host",
        "Nothing to simulate: no layer runs on the accelerator.",
        "Layer 'multiply' runs on the host, ",
        "the accelerator has no multiplier for two feature maps.",
    ):
        assert part in result.stdout
    for part in ("Engine", "equal", "clock cycles"):
        assert part not in result.stdout
