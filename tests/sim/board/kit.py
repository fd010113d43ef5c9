"""Small designs for the tests of simulated boards, quick to build and quick on the line."""

from dataclasses import replace

from trirow_driver.program import INPUT, chain
from trirow_hw.config import PRESETS
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.board.build import BoardDesign

CHIP = CHIPS["IS42S16160G-7"]
#: Ten cycles a bit; all quick tests share its library.
TINY = BoardDesign(PRESETS["tiny"], CHIP, 100_000_000, baud=10_000_000)


def chained(*cases):
    """Return nodes and features of layers of one input each, each fed with the one before."""
    layers = []
    for number, case in enumerate(cases):
        (node,), inputs, _ = replace(case, seed=number + 1).build()
        layer = replace(node.layer, name=f"layer{number}")
        if layers:
            layer = replace(layer, input=layers[-1].result)
        else:
            features = {INPUT: inputs[INPUT]}
        layers.append(layer)
    return chain(layers), features
