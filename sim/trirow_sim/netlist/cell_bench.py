"""Run cells on given inputs through Verilator, to compare their models with something else."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trirow_sim.compiled.library import cache_folder, made, run_tool
from trirow_sim.compiled.toolchain import Toolchain, find_toolchain

__all__ = ["Cell", "CellBench"]

_TOP = "bench"
_WORD = 32
#: More than 64 bits, so that Verilator's ports are arrays of words.
_LEAST_BITS = 65
_FLAGS = ("-std=c++17", "-O0", "-DVL_IGNORE_UNKNOWN_ARCH")

_DRIVER = """
#include <cstdio>
#include "Vbench.h"
#include "verilated.h"
int main() {
    VerilatedContext context;
    Vbench top{&context};
    const auto read = [&] { return fread(&top.i, 4, WORDS_IN, stdin) == WORDS_IN; };
    while (!context.gotFinish() && read()) {
        top.eval();
        fwrite(&top.o, 4, WORDS_OUT, stdout);
    }
    top.final();
}
"""


@dataclass(frozen=True)
class Cell:
    """A cell with parameters.

    Parameters
    ----------
    kind : str
        Name of its module.
    inputs : mapping of str to int
        Ports, and the bit of the bench's input that each begins at; ports of several bits take as
        many as `widths` says.
    outputs : sequence of str
        Ports of the bench's output, one after the other.
    parameters : mapping of str to str
        As Verilog has them: texts with quotes.
    widths : mapping of str to int
        Bits of the ports that have more than one.
    """

    kind: str
    inputs: Mapping[str, int]
    outputs: Sequence[str]
    parameters: Mapping[str, str] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)

    @property
    def bits(self) -> int:
        """Bits of all outputs."""
        return sum(self.widths.get(port, 1) for port in self.outputs)


class CellBench:
    """A program that feeds the same inputs to some cells, and gives all their outputs.

    Parameters
    ----------
    cells : sequence of Cell
    input_bits : int
    sources : sequence of path
        Verilog with their models.
    folder : Path
        For what is built.
    options : sequence of str
        More for Verilator.

    Raises
    ------
    ToolchainError
        If a tool is missing, or does not take the sources.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        input_bits: int,
        sources: Sequence[Path],
        folder: Path,
        options: Sequence[str] = (),
    ) -> None:
        self._cells = cells
        self._in_words = -(-max(input_bits, _LEAST_BITS) // _WORD)
        self._out_words = -(-max(sum(cell.bits for cell in cells), _LEAST_BITS) // _WORD)
        self._program = folder / _TOP
        self._build(sources, folder, options)

    def _build(self, sources: Sequence[Path], folder: Path, options: Sequence[str]) -> None:
        toolchain = find_toolchain()
        source, generated = folder / f"{_TOP}.v", folder / "cpp"
        source.write_text(self._verilog())
        (folder / "driver.cpp").write_text(_DRIVER)
        command = [str(toolchain.verilator), "--cc", str(source), *map(str, sources)]
        command += ["--top-module", _TOP, "-Mdir", str(generated), "-Wno-fatal", "-Wno-lint"]
        run_tool([*command, *options], env=os.environ | {"VERILATOR_ROOT": str(toolchain.root)})
        include = toolchain.root / "include"
        files = [*generated.glob("*.cpp"), folder / "driver.cpp", *_runtime(toolchain)]
        flags = [*_FLAGS, f"-I{generated}", f"-I{include}", f"-I{include / 'vltstd'}"]
        flags += [f"-DWORDS_IN={self._in_words}", f"-DWORDS_OUT={self._out_words}"]
        command = [*toolchain.compiler, *flags, *map(str, files), "-o", str(self._program)]
        run_tool([*command, "-pthread"])

    def _verilog(self) -> str:
        bits_in, bits_out = self._in_words * _WORD, self._out_words * _WORD
        lines = [f"module {_TOP} (input [{bits_in - 1}:0] i, output [{bits_out - 1}:0] o);"]
        place = 0
        for k, cell in enumerate(self._cells):
            pins = [
                f".{port}(i[{at} +: {cell.widths.get(port, 1)}])"
                for port, at in cell.inputs.items()
            ]
            for port in cell.outputs:
                width = cell.widths.get(port, 1)
                pins.append(f".{port}(o[{place} +: {width}])")
                place += width
            values = ", ".join(f".{key}({value})" for key, value in cell.parameters.items())
            lines.append(f"    {cell.kind} #({values}) c{k} ({', '.join(pins)});")
        return "\n".join([*lines, "endmodule", ""])

    def run(self, inputs: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.bool_]]:
        """Return the outputs of each cell, evaluated after each row of inputs.

        Parameters
        ----------
        inputs : bool array of shape (rows, bits)
            A clock rises where its bit rises from a row to the next.

        Returns
        -------
        list of bool array of shape (rows, bits)

        Raises
        ------
        RuntimeError
            If the simulation stops, with what it says.
        """
        rows = np.zeros((len(inputs), self._in_words * _WORD), np.uint8)
        rows[:, : inputs.shape[1]] = inputs
        given = np.packbits(rows, axis=1, bitorder="little").tobytes()
        result = subprocess.run([self._program], input=given, capture_output=True, check=False)
        if result.returncode:
            text = (result.stdout[-2000:] + result.stderr).decode(errors="replace")
            said = [line for line in text.splitlines() if "is not modelled" in line]
            raise RuntimeError(said[0] if said else text)
        got = np.frombuffer(result.stdout, np.uint8).reshape(len(inputs), self._out_words * 4)
        bits = np.unpackbits(got, axis=1, bitorder="little").astype(bool)
        ends = np.cumsum([cell.bits for cell in self._cells])
        return [bits[:, end - cell.bits : end] for cell, end in zip(self._cells, ends, strict=True)]


def _runtime(toolchain: Toolchain) -> list[Path]:
    """Return Verilator's own objects, compiled once for all benches, in the cache."""
    include = toolchain.root / "include"
    key = hashlib.sha256(repr((toolchain, _FLAGS)).encode()).hexdigest()[:32]
    folder = cache_folder() / f"{key}-runtime"
    names = ("verilated", "verilated_threads")
    with made(folder, f"{names[-1]}.o") as part:
        if part is not None:
            for name in names:
                command = [*toolchain.compiler, *_FLAGS, f"-I{include}"]
                command += [f"-I{include / 'vltstd'}", "-c", str(include / f"{name}.cpp")]
                run_tool([*command, "-o", str(part / f"{name}.o")])
    return [folder / f"{name}.o" for name in names]
