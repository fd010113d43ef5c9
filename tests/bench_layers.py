"""Measure the layers of docs/performance.md on the simulated RTL and print them as a table.

``python tests/bench_layers.py`` takes some minutes; ``--quick`` leaves the largest layer out.
Cycles are those of the simulated hardware, so they are the same on every machine.
"""

from __future__ import annotations

import click
from rich.console import Console
from rich.progress import track

from trirow import PRESETS, random_layer, simulate

CONFIG, MEMORY = "ecp5-85f", "nngen"
#: (H, W, C), output channels, kernel, stride, least utilisation, NNgen's on the layer.
LAYERS = [
    ((16, 16, 16), 16, 3, 1, 0.87, 0.734),
    ((15, 17, 13), 10, 3, 1, 0.53, 0.383),
    ((14, 14, 64), 64, 1, 1, 0.85, 0.630),
    ((16, 16, 16), 16, 3, 2, 0.64, 0.520),
    ((28, 28, 64), 64, 3, 1, 0.96, 0.785),
]


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Leave the largest layer out.")
def main(quick: bool) -> None:
    """Run the layers."""
    rows, missed = [], 0
    layers = LAYERS[:-1] if quick else LAYERS
    for shape, channels, kernel, stride, least, peer in track(
        layers, "Simulating", console=Console(stderr=True)
    ):
        layer, features = random_layer(
            *shape,
            channels,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(kernel // 2,) * 4,
            seed=1,
        )
        result = simulate([layer], features, PRESETS[CONFIG], memory=MEMORY)
        report = result.report.to_dict()["layers"][0]
        moved = report["bytes_read"] + report["bytes_written"]
        rows.append(
            f"| {'x'.join(map(str, shape))} -> {channels} | {kernel}x{kernel} | {stride} "
            f"| {report['cycles']:,} | {report['utilisation']:.1%} | {least:.0%} | {peer:.1%} "
            f"| {moved / report['bytes_ideal']:.3f} | {'yes' if report['match'] else 'NO'} |"
        )
        missed += report["utilisation"] < least or not report["match"]
    print("| layer | kernel | stride | cycles | utilisation | target | NNgen | bytes | match |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
