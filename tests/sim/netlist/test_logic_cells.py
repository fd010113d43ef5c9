"""The models of the logic cells against those that Yosys brings along."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from trirow_sim.netlist.build import MODELS
from trirow_sim.netlist.cell_bench import Cell, CellBench

KINDS = ("LUT4", "PFUMX", "L6MUX21", "CCU2C", "TRELLIS_FF", "TRELLIS_DPR16X4")


@pytest.fixture(scope="module")
def yosys_models(tmp_path_factory):
    """Yosys' models under names that begin with REF_, without the delays."""
    spec = importlib.util.find_spec("pyosys")
    if spec is None:
        pytest.skip("pyosys is missing, and Yosys' models with it")
    share = Path(spec.origin).parent / "share" / "ecp5"
    text = "".join((share / name).read_text() for name in ("common_sim.vh", "ccu2c_sim.vh"))
    text = re.sub(r"\bspecify\b.*?\bendspecify\b", "", text, flags=re.DOTALL)
    wanted = (*KINDS, "LUT2")
    modules = []
    for module in re.findall(r"^module .*?^endmodule", text, flags=re.DOTALL | re.MULTILINE):
        if re.match(r"module (\w*)", module)[1] in wanted:
            modules.append(re.sub(rf"\b({'|'.join(wanted)})\b(?= *[(#])", r"REF_\1", module))
    assert len(modules) == len(wanted)
    path = tmp_path_factory.mktemp("yosys") / "models.v"
    path.write_text("\n".join(modules))
    return path


def cells(rng):
    """Cells, each with the inputs of the bench from bit 1 on; bit 0 is the clock."""
    made = []

    def add(kind, inputs, outputs, widths=None, **parameters):
        places, at = {}, 1
        for port in inputs:
            if port in ("CLK", "WCK"):
                places[port] = 0
                continue
            places[port] = at
            at += (widths or {}).get(port, 1)
        made.append(Cell(kind, places, outputs, parameters, widths or {}))

    tables = [0x0000, 0xFFFF, 0x96AA, *(int(value) for value in rng.integers(0, 1 << 16, 12))]
    for table in tables:
        add("LUT4", "ABCD", "Z", INIT=f"16'h{table:04x}")
    add("PFUMX", ("ALUT", "BLUT", "C0"), "Z")
    add("L6MUX21", ("D0", "D1", "SD"), "Z")
    pins = ("CIN", "A0", "B0", "C0", "D0", "A1", "B1", "C1", "D1")
    for k, table in enumerate(tables):
        inject = {f"INJECT1_{i}": '"YES"' if k >> i & 1 else '"NO"' for i in range(2)}
        other = f"16'h{tables[-k - 1]:04x}"
        add("CCU2C", pins, ("S0", "S1", "COUT"), INIT0=f"16'h{table:04x}", INIT1=other, **inject)
    for mux in ("1", "CE", "INV"):
        for reset in ("SET", "RESET"):
            add(
                "TRELLIS_FF",
                ("CLK", "LSR", "CE", "DI"),
                "Q",
                CEMUX=f'"{mux}"',
                REGSET=f'"{reset}"',
            )
    widths = {"DI": 4, "WAD": 4, "RAD": 4, "DO": 4}
    first = "".join(f"{value:x}" for value in rng.integers(0, 16, 16))
    add(
        "TRELLIS_DPR16X4",
        ("DI", "WAD", "RAD", "WRE", "WCK"),
        ["DO"],
        widths,
        INITVAL=f"64'h{first}",
    )
    return made


@pytest.mark.parametrize("seed", [1])
def test_equal_to_the_models_of_yosys(tmp_path, yosys_models, seed):
    """All inputs of tables and carry chains, and random ones for what has state."""
    rng = np.random.default_rng(seed)
    ours = cells(rng)
    assert {cell.kind for cell in ours} == set(KINDS)
    theirs = [Cell(f"REF_{c.kind}", c.inputs, c.outputs, c.parameters, c.widths) for c in ours]
    bench = CellBench([*ours, *theirs], 14, [*MODELS, yosys_models], tmp_path)
    values = np.arange(1 << 9)[:, None] >> np.arange(9) & 1
    rows = np.zeros((2 * len(values) + 4000, 14), bool)
    rows[: 2 * len(values), 1:10] = np.repeat(values, 2, axis=0)
    rows[2 * len(values) :, 1:] = np.repeat(rng.integers(0, 2, (2000, 13)), 2, axis=0)
    rows[1::2, 0] = True
    got = bench.run(rows)
    for cell, left, right in zip(ours, got[: len(ours)], got[len(ours) :], strict=True):
        assert np.array_equal(left, right), cell
        assert left.any() or cell.parameters.get("INIT") == "16'h0000"


def test_table_by_hand(tmp_path):
    """Entry D C B A of the table: 0x8000 is an AND, 0xFFFE an OR, 0x00F0 is C without D."""
    places = {name: k for k, name in enumerate("ABCD")}
    tables = [Cell("LUT4", places, "Z", {"INIT": f"16'h{t:04x}"}) for t in (0x8000, 0xFFFE, 0xF0)]
    rows = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(bool)
    both, some, third = CellBench(tables, 4, MODELS, tmp_path).run(rows)
    assert np.array_equal(both[:, 0], rows.all(axis=1))
    assert np.array_equal(some[:, 0], rows.any(axis=1))
    assert np.array_equal(third[:, 0], rows[:, 2] & ~rows[:, 3])


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [("TRELLIS_FF", "SRMODE"), ("TRELLIS_FF", "CEMUX"), ("TRELLIS_DPR16X4", "WCKMUX")],
)
def test_what_is_not_modelled_stops(tmp_path, kind, parameter):
    found = Cell(kind, {}, ["DO"] if kind == "TRELLIS_DPR16X4" else "Q", {parameter: '"ASYNC"'})
    with pytest.raises(RuntimeError, match=f"{kind}: .*{parameter}.* is not modelled"):
        CellBench([found], 1, MODELS, tmp_path).run(np.zeros((1, 1), bool))
