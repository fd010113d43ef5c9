"""The model of the multiplier against integers with delays, as FPGA-TN-02205 has its registers."""

from itertools import product

import numpy as np
import pytest

from trirow_sim.compiled import ToolchainError
from trirow_sim.netlist.build import MODELS
from trirow_sim.netlist.cell_bench import Cell, CellBench

A, B, CLK, CE, RST = 0, 18, 36, 40, 44
SIGNED = {"SIGNEDA": 48, "SIGNEDB": 49}
SOURCES = {"SOURCEA": 50, "SOURCEB": 51}
BITS = 52
STAGES = ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT")


def cell(stages, outputs=(), **more):
    """A multiplier; stages says which clock and enable each register has, None for no register."""
    inputs = {f"{name}{k}": at + k for name, at in (("A", A), ("B", B)) for k in range(18)}
    groups = (("CLK", CLK), ("CE", CE), ("RST", RST))
    inputs |= {f"{name}{k}": at + k for name, at in groups for k in range(4)}
    parameters = {}
    for name, stage in zip(STAGES, stages, strict=True):
        parameters[f"REG_{name}_CLK"] = '"NONE"' if stage is None else f'"CLK{stage[0]}"'
        if stage is not None:
            parameters[f"REG_{name}_CE"] = f'"CE{stage[1]}"'
            parameters[f"REG_{name}_RST"] = '"RST0"'
    pins = [f"P{k}" for k in range(36)]
    return Cell("MULT18X18D", {**inputs, **SIGNED, **SOURCES}, [*pins, *outputs], parameters | more)


def signed(value, sign):
    return value - (1 << 18) if sign and value >> 17 else value


class Reference:
    def __init__(self, stages):
        self.stages = dict(zip(STAGES, stages, strict=True))
        self.held = dict.fromkeys(STAGES, 0)

    def step(self, a, b, signs, rising, enables):
        """Return the product after clocks have risen; registers load what was before."""

        def through(name, value):
            return value if self.stages[name] is None else self.held[name]

        def values():
            factors = through("INPUTA", a), through("INPUTB", b)
            wide = signed(factors[0], signs[0]) * signed(factors[1], signs[1]) % (1 << 36)
            piped = through("PIPELINE", wide)
            return {"INPUTA": a, "INPUTB": b, "PIPELINE": wide, "OUTPUT": piped}

        coming = values()
        for name, stage in self.stages.items():
            if stage is not None and rising[stage[0]] and enables[stage[1]]:
                self.held[name] = coming[name]
        return through("OUTPUT", values()["OUTPUT"])


def compare(bench, cases, rng, signs, cycles=400):
    rows = np.zeros((2 * cycles, BITS), bool)
    steps = []
    for cycle in range(cycles):
        a, b = (
            int(rng.choice([0, 1, 0x1FFFF, 0x20000, 0x3FFFF, rng.integers(0, 1 << 18)]))
            for _ in range(2)
        )
        rising, enables = rng.random(4) < 0.8, rng.random(4) < 0.8
        steps.append((a, b, signs, rising, enables))
        pair = rows[2 * cycle : 2 * cycle + 2]
        for at, value in ((A, a), (B, b)):
            pair[:, at : at + 18] = [value >> k & 1 for k in range(18)]
        pair[:, CE : CE + 4] = enables
        pair[:, SIGNED["SIGNEDA"]], pair[:, SIGNED["SIGNEDB"]] = signs
        pair[1, CLK : CLK + 4] = rising
    for case, got in zip(cases, bench.run(rows), strict=True):
        reference = Reference(case)
        for cycle, step in enumerate(steps):
            wanted = reference.step(*step)
            found = sum(1 << k for k in range(36) if got[2 * cycle + 1][k])
            assert found == wanted, (case, signs, cycle)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Every register alone and with all others, on clock 0; then clocks and enables apart."""
    cases = list(product(*[(None, (0, 0))] * 4))
    cases += [((0, 1), (1, 0), (2, 3), (3, 2)), ((3, 3), None, None, (2, 1))]
    folder = tmp_path_factory.mktemp("multiplier")
    return CellBench([cell(case) for case in cases], BITS, MODELS, folder), cases


@pytest.mark.parametrize("signs", list(product((False, True), repeat=2)))
def test_registers_and_signs(bench, signs):
    compare(*bench, np.random.default_rng(signs[0] + 2 * signs[1]), signs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "text"),
    [
        (RST, "a reset is"),
        (SIGNED["SIGNEDB"], "a change of SIGNEDA or SIGNEDB is"),
        (SOURCES["SOURCEA"], "a shift chain is"),
    ],
)
def test_what_is_not_modelled_stops(bench, place, text):
    rows = np.zeros((6, BITS), bool)
    rows[1::2, CLK] = True
    bench[0].run(rows)
    rows[3:, place] = True
    with pytest.raises(RuntimeError, match=f"{text} not modelled"):
        bench[0].run(rows)


def test_ports_that_are_not_modelled_do_not_compile(tmp_path):
    with pytest.raises(ToolchainError, match="SROA0"):
        CellBench([cell([None] * 4, ["SROA0"])], BITS, MODELS, tmp_path)
