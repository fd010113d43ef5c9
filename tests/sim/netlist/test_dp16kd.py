"""The model of the block RAM against a memory of single bits that follows FPGA-TN-02204."""

import numpy as np
import pytest

from trirow_sim.compiled import ToolchainError
from trirow_sim.netlist.build import MODELS
from trirow_sim.netlist.cell_bench import Cell, CellBench

# Places of the ports in the bench's input.
PLACES = {}
for _port, _width in (("DI", 18), ("AD", 14), ("CE", 1), ("OCE", 1), ("CLK", 1), ("WE", 1)):
    for _letter in "AB":
        PLACES[_port + _letter] = (sum(width for _, width in PLACES.values()), _width)
for _letter in "AB":
    for _port, _width in ((f"CS{_letter}", 3), (f"RST{_letter}", 1)):
        PLACES[_port] = (sum(width for _, width in PLACES.values()), _width)
BITS = sum(width for _, width in PLACES.values())


def cell(widths, modes=("NORMAL", "NORMAL"), registers=("NOREG", "NOREG"), select=0, **more):
    inputs = {}
    for name, (place, width) in PLACES.items():
        for k in range(width):
            inputs[name if width == 1 else f"{name}{k}"] = place + k
    parameters = {}
    for k, letter in enumerate("AB"):
        parameters[f"DATA_WIDTH_{letter}"] = str(widths[k])
        parameters[f"WRITEMODE_{letter}"] = f'"{modes[k]}"'
        parameters[f"REGMODE_{letter}"] = f'"{registers[k]}"'
        parameters[f"CSDECODE_{letter}"] = f'"0b{select:03b}"'
    outputs = [f"DO{letter}{k}" for letter in "AB" for k in range(18)]
    return Cell("DP16KD", inputs, outputs, parameters | more)


class Reference:
    """1,024 words of 18 bits, as bits one after the other."""

    def __init__(self, widths, modes, registers, select, contents=None):
        self.widths, self.modes, self.registers, self.select = widths, modes, registers, select
        self.bits = np.zeros(18 * 1024, bool) if contents is None else contents.copy()
        self.latch = [np.zeros(36, bool), np.zeros(36, bool)]
        self.output = [np.zeros(36, bool), np.zeros(36, bool)]

    def place(self, width, address):
        """Bits of a word: addresses count bits of 8 of the 9 of a byte."""
        if width < 9:
            return [9 * (address // 8) + address % 8 // width * width + k for k in range(width)]
        return [width * (address // {9: 8, 18: 16, 36: 32}[width]) + k for k in range(width)]

    def enabled(self, width, address):
        """Bits of a word that a write changes."""
        if width < 18:
            return np.ones(width, bool)
        return np.array([address >> k // 9 & 1 for k in range(width)], bool)

    def edge(self, ports):
        """Both clocks rise; ports are dictionaries of what their inputs are."""
        active = [port["CE"] and port["CS"] == self.select for port in ports]
        writes = [on and port["WE"] for on, port in zip(active, ports, strict=True)]
        old = self.bits.copy()
        written = [set(), set()]
        for k, port in enumerate(ports):
            if writes[k]:
                width = self.widths[k]
                data = port["DI"][:width]
                if width == 36:
                    data = [*ports[0]["DI"], *ports[1]["DI"]]
                places = self.place(width, port["AD"])
                for bit, place, on in zip(
                    data, places, self.enabled(width, port["AD"]), strict=True
                ):
                    if on:
                        self.bits[place] = bit
                        written[k].add(place)
        for k, port in enumerate(ports):
            if port["OCE"]:
                self.output[k] = self.latch[k]
            if not active[k]:
                continue
            places = self.place(self.widths[k], port["AD"])
            met = {place // 9 for place in written[1 - k]}
            word = [
                old[place] ^ (place // 9 in met) if place not in written[k] else self.bits[place]
                for place in places
            ]
            before = [old[place] ^ (place // 9 in met) for place in places]
            if writes[k] and self.modes[k] == "NORMAL":
                continue
            if writes[k] and self.modes[k] == "READBEFOREWRITE":
                word = before
            self.latch[k] = np.array([*word, *[False] * (36 - len(word))])

    def outputs(self):
        a, b = (
            self.output[k] if self.registers[k] == "OUTREG" else self.latch[k] for k in range(2)
        )
        if self.widths[1] == 36:
            return np.concatenate([b[:18], b[18:]])
        return np.concatenate([a[:18], b[:18]])


def stimuli(rng, cycles, addresses=64, write_b=True):
    """Rows with the clocks low and high, few addresses so that they meet."""
    rows = np.zeros((2 * cycles, BITS), bool)
    ports = []
    for cycle in range(cycles):
        both = []
        for letter in "AB":
            port = {
                "DI": rng.integers(0, 2, 18).astype(bool),
                "AD": int(rng.integers(0, addresses)),
                "CE": rng.random() < 0.8,
                "OCE": rng.random() < 0.7,
                "WE": rng.random() < 0.5 and (letter == "A" or write_b),
                "CS": int(rng.choice([0, 0, 0, 5])),
                "RST": False,
            }
            both.append(port)
        if both[0]["WE"] and both[1]["WE"]:
            both[1]["AD"] ^= 1 << 13  # what two writes leave in one word is not defined
        ports.append(both)
        for letter, port in zip("AB", both, strict=True):
            for name, value in port.items():
                place, width = PLACES[name + letter]
                if name != "DI":
                    value = [value >> k & 1 for k in range(width)]
                rows[2 * cycle : 2 * cycle + 2, place : place + width] = value
            rows[2 * cycle + 1, PLACES[f"CLK{letter}"][0]] = True
    return rows, ports


def compare(bench, cases, rows, ports, contents=None):
    for case, got in zip(cases, bench.run(rows), strict=True):
        reference = Reference(*case, contents)
        for cycle, both in enumerate(ports):
            assert np.array_equal(got[2 * cycle], reference.outputs()), (case, cycle, "low")
            reference.edge(both)
            assert np.array_equal(got[2 * cycle + 1], reference.outputs()), (case, cycle, "high")


MODES = ("NORMAL", "WRITETHROUGH", "READBEFOREWRITE")
NOREG = ("NOREG", "NOREG")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_ports(tmp_path, seed):
    """All widths against all others, all modes, with and without output registers."""
    rng = np.random.default_rng(seed)
    cases = [((a, b), ("NORMAL", "NORMAL"), NOREG, 0) for a in (1, 4, 18) for b in (2, 9, 18)]
    cases += [((18, 9), (mode, other), NOREG, 0) for mode in MODES for other in MODES]
    cases += [((4, 18), ("WRITETHROUGH", "READBEFOREWRITE"), ("OUTREG", "NOREG"), 0)]
    cases += [((9, 9), ("NORMAL", "WRITETHROUGH"), ("OUTREG", "OUTREG"), 5)]
    bench = CellBench([cell(*case) for case in cases], BITS, MODELS, tmp_path)
    compare(bench, cases, *stimuli(rng, 1500))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_pseudo_dual_port(tmp_path, seed):
    """36 bits, as Yosys has most memories: port A writes, port B reads."""
    rng = np.random.default_rng(seed)
    cases = [((36, 36), ("NORMAL", "NORMAL"), NOREG, 0)]
    cases += [((36, width), ("NORMAL", "NORMAL"), NOREG, 0) for width in (1, 9, 18)]
    cases += [((9, 36), ("NORMAL", "NORMAL"), ("NOREG", "OUTREG"), 0)]
    # Port A's outputs mean nothing when it has 36 bits: port A only writes here.
    bench = CellBench([cell(*case) for case in cases], BITS, MODELS, tmp_path)
    rows, ports = stimuli(rng, 1500, addresses=256, write_b=False)
    for case, got in zip(cases, bench.run(rows), strict=True):
        reference = Reference(*case)
        first = 0 if case[0][1] == 36 else 18
        for cycle, both in enumerate(ports):
            reference.edge(both)
            wanted = reference.outputs()[first:]
            assert np.array_equal(got[2 * cycle + 1][first:], wanted), (case, cycle)


def test_first_contents(tmp_path):
    """INITVAL_00 to 3F hold 16 words each, 20 bits apart (FPGA-TN-02204, Yosys' mapping)."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 18, 1024)
    values = {}
    for k in range(64):
        value = sum(int(word) << 20 * j for j, word in enumerate(words[16 * k : 16 * k + 16]))
        values[f"INITVAL_{k:02X}"] = f"320'h{value:080x}"
    contents = np.array([word >> k & 1 for word in words for k in range(18)], bool)
    cases = [((18, 9), ("NORMAL", "NORMAL"), NOREG, 0)]
    bench = CellBench([cell(*cases[0], **values)], BITS, MODELS, tmp_path)
    compare(bench, cases, *stimuli(rng, 2000, addresses=1 << 14), contents)


def test_falling_edge(tmp_path):
    inverted = {"CLKAMUX": '"INV"', "CLKBMUX": '"INV"'}
    case = ((18, 18), ("NORMAL", "NORMAL"), NOREG, 0)
    bench = CellBench([cell(*case, **inverted)], BITS, MODELS, tmp_path)
    rows, ports = stimuli(np.random.default_rng(4), 300)
    for letter in "AB":
        rows[:, PLACES[f"CLK{letter}"][0]] ^= True
    compare(bench, [case], rows, ports)


def one(parameters, tmp_path):
    case = ((18, 18), ("NORMAL", "NORMAL"), NOREG, 0)
    return CellBench([cell(*case, **parameters)], BITS, MODELS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {"DATA_WIDTH_A": "3"},
        {"DATA_WIDTH_B": "72"},
        {"REGMODE_A": '"LATCH"'},
        {"WRITEMODE_B": '"THROUGH"'},
        {"CSDECODE_B": '"0b0x0"'},
        {"CLKAMUX": '"1"'},
    ],
    ids=lambda value: "-".join(value),
)
def test_what_is_not_modelled_stops(tmp_path, parameters):
    (name,) = parameters
    with pytest.raises(RuntimeError, match=f"{name} = .* is not modelled"):
        one(parameters, tmp_path).run(stimuli(np.random.default_rng(1), 3)[0])


def test_reset_stops(tmp_path):
    rows, _ = stimuli(np.random.default_rng(1), 3)
    rows[:, PLACES["RSTB"][0]] = True
    with pytest.raises(RuntimeError, match="a reset is not modelled"):
        one({}, tmp_path).run(rows)


def test_unknown_parameter_does_not_compile(tmp_path):
    with pytest.raises(ToolchainError, match="WEAMUX"):
        one({"WEAMUX": '"INV"'}, tmp_path)
