"""The cache of libraries, and how Verilog becomes one of them: Verilator, then a C++ compiler."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trirow_sim.compiled.toolchain import Toolchain, ToolchainError

__all__ = ["LIBRARY", "LibraryBuild", "cache_folder", "made", "run_tool", "silent"]

LIBRARY = "libtrirow.so"
"""Name of the library in its folder."""


def cache_folder() -> Path:
    """Return the folder of built libraries: ``$TRIROW_CACHE``, or one in the user's cache."""
    given = os.environ.get("TRIROW_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trirow"


@contextmanager
def made(folder: Path, file: str = LIBRARY) -> Iterator[Path | None]:
    """Give a temporary folder that becomes `folder` at the end; None if `file` is there already.

    So an interrupted build leaves nothing that could be taken for a finished one. Of two processes
    that want the same folder, the second waits for the first.
    """
    if (folder / file).exists():
        yield None
        return
    with _locked(folder):
        if (folder / file).exists():
            yield None
            return
        for left_behind in folder.parent.glob(f"{folder.name}.*.part"):
            shutil.rmtree(left_behind, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            yield part
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder's name; the system releases it when the process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class LibraryBuild:
    """How Verilog and a harness become a library.

    Parameters
    ----------
    top : str
        Name of the top module.
    harness : path
        Source of the C interface; headers are looked for beside it.
    split : int
        Lines of generated C++ a file: several, so that all cores have something to compile.
    optimise : str
        Flag for the compiler.
    optimise_slow : str
        The same for what Verilator expects to run seldom.
    verilator_flags : tuple of str
    runtime : tuple of str
        Verilator's own sources.
    defines : tuple of str
        Macros of the harness, ``NAME=VALUE``.
    include : tuple of path
        More folders of headers.
    """

    top: str
    harness: Path
    split: int = 12_000
    optimise: str = "-O2"
    optimise_slow: str = "-O2"
    verilator_flags: tuple[str, ...] = ("-Wno-fatal", "--no-assert")
    runtime: tuple[str, ...] = ("verilated.cpp", "verilated_threads.cpp")
    defines: tuple[str, ...] = ()
    include: tuple[Path, ...] = field(default=())

    def run(
        self,
        toolchain: Toolchain,
        sources: Sequence[Path],
        folder: Path,
        progress: Callable[[str], None],
    ) -> None:
        """Build the library in a folder; sources in that folder are removed at the end.

        Raises
        ------
        ToolchainError
            If a tool fails.
        """
        generated = folder / "cpp"
        progress("translating to C++")
        command = [str(toolchain.verilator), "--cc", *map(str, sources), "--top-module", self.top]
        command += ["-Mdir", str(generated), "--output-split", str(self.split), "-O3"]
        command += ["--x-assign", "fast", "--x-initial", "fast", *self.verilator_flags]
        run_tool(command, env=os.environ | {"VERILATOR_ROOT": str(toolchain.root)})

        progress("compiling")
        include = toolchain.root / "include"
        headers = [generated, include, include / "vltstd", self.harness.parent, *self.include]
        flags = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-DVL_IGNORE_UNKNOWN_ARCH"]
        flags += [*(f"-I{path}" for path in headers), *(f"-D{text}" for text in self.defines)]

        def compile_one(path: Path) -> Path:
            target = folder / f"{path.stem}.o"
            level = self.optimise_slow if path.stem.endswith("__Slow") else self.optimise
            run_tool([*toolchain.compiler, level, *flags, "-c", str(path), "-o", str(target)])
            return target

        files = [*generated.glob("*.cpp"), *(include / name for name in self.runtime), self.harness]
        # Large files first, so that no core idles at the end.
        files.sort(key=lambda path: -path.stat().st_size)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, files))
        link = ["-shared", "-o", str(folder / LIBRARY), *map(str, objects), "-pthread"]
        run_tool([*toolchain.compiler, *link])
        shutil.rmtree(generated)
        for path in (*objects, *(source for source in sources if source.parent == folder)):
            path.unlink()


def run_tool(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a tool of a build; ToolchainError with its message if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        text = next((line for line in lines if "rror" in line), lines[-1] if lines else "")
        raise ToolchainError(f"{Path(command[0]).name} failed: {text}")


def silent(step: str) -> None:
    """Say nothing about a step."""
