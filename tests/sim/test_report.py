import io
import json
import os

import pytest
from rich.console import Console

from trirow_sim.files import replacing, write_json
from trirow_sim.report import KEYS, LayerReport, NetworkReport

# Section "The command" of the design: what a layer has in JSON.
LAYER_KEYS = [
    *("name", "match", "mismatches", "outputs", "cycles", "macs", "multipliers", "utilisation"),
    *("bytes_read", "bytes_written", "macs_useful", "bytes_ideal", "stalls", "place", "engine"),
    *("config", "memory", "seconds", "cycles_per_second"),
]


def layer(name="conv1", **values):
    fields = {
        "match": True,
        "mismatches": 0,
        "outputs": 100,
        "cycles": 1000,
        "macs": 12_000,
        "macs_useful": 11_000,
        "multipliers": 16,
        "bytes_read": 4096,
        "bytes_written": 100,
        "bytes_ideal": 4000,
        "stalls": {"features": 10, "weights": 20, "output": 0, "dependency": 0},
        "engine": "pysim",
        "config": "tiny",
        "memory": "ddr",
        "seconds": 0.5,
        "in_shape": (5, 6, 7),
        "out_shape": (5, 5, 4),
        "kernel": (3, 2),
    }
    return LayerReport(name, **{**fields, **values})


def test_keys_of_a_layer():
    assert list(KEYS) == LAYER_KEYS
    assert list(layer().to_dict()) == LAYER_KEYS


def test_layer():
    content = layer().to_dict()
    assert content["utilisation"] == 12_000 / 1000 / 16
    assert content["cycles_per_second"] == 2000
    assert content["place"] == "rtl"
    assert content["stalls"] == {"features": 10, "weights": 20, "output": 0, "dependency": 0}


def test_network_sums():
    second = layer(
        "conv2",
        match=False,
        mismatches=3,
        cycles=3000,
        seconds=1.5,
        stalls={"features": 1, "weights": 2, "output": 3, "dependency": 4},
    )
    report = NetworkReport((layer(), second), clock_mhz=50, name="net")
    content = report.to_dict()
    assert list(content) == ["layers", "network"]
    assert [entry["name"] for entry in content["layers"]] == ["conv1", "conv2"]
    network = content["network"]
    assert list(network) == [*LAYER_KEYS, "clock_mhz", "milliseconds"]
    assert network == {
        "name": "net",
        "match": False,
        "mismatches": 3,
        "outputs": 200,
        "cycles": 4000,
        "macs": 24_000,
        "multipliers": 16,
        "utilisation": 24_000 / 4000 / 16,
        "bytes_read": 8192,
        "bytes_written": 200,
        "macs_useful": 22_000,
        "bytes_ideal": 8000,
        "stalls": {"features": 11, "weights": 22, "output": 3, "dependency": 4},
        "place": "rtl",
        "engine": "pysim",
        "config": "tiny",
        "memory": "ddr",
        "seconds": 2.0,
        "cycles_per_second": 2000,
        "clock_mhz": 50,
        "milliseconds": 0.08,
    }


def test_default_clock():
    assert NetworkReport((layer(cycles=123_000),)).milliseconds == 1.23


def test_strays_are_no_match():
    assert NetworkReport((layer(),)).match
    report = NetworkReport((layer(),), strays=1)
    assert not report.match
    assert report.to_dict()["network"]["match"] is False


def test_nothing_is_divided_by_zero():
    content = NetworkReport((layer(cycles=0, seconds=0.0),)).to_dict()
    for entry in (content["layers"][0], content["network"]):
        assert (entry["utilisation"], entry["cycles_per_second"]) == (0, 0)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"^a report needs at least one layer$"):
        NetworkReport(())
    for clock in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"^clock_mhz must be finite and above 0, not {clock}"):
            NetworkReport((layer(),), clock)


def text(report):
    file = io.StringIO()
    Console(file=file, width=110).print(report.table())
    return file.getvalue() + "\n".join(report.lines())


def test_table():
    shown = text(
        NetworkReport(
            (
                layer("[red]odd[/]", stride=(2, 2)),
                layer("conv2", match=False, mismatches=3, cycles=3210, stride=(1, 2)),
            )
        )
    )
    for part in (
        "[red]odd[/]",
        "5x6x7",
        "5x5x4",
        "3x2 stride 2",
        "3x2 stride 1x2",
        "75.0%",
        "all 100 equal",
        "3 of 100 differ",
        "all layers",
        "4,210",
        "0.042 ms at 100 MHz",
        "for features in 20 cycles, for weights in 40 cycles.",
        "1.05 times the least possible",
    ):
        assert part in shown
    assert "exceed" not in shown


def test_table_of_one_layer_has_no_sum():
    stalls = dict.fromkeys(("features", "weights", "output", "dependency"), 0)
    shown = text(NetworkReport((layer(macs=17_000, stalls=stalls),)))
    assert "all layers" not in shown
    assert "never waited" in shown
    assert "106.2%" in shown
    assert "Utilisation can exceed 100 %" in shown


def host(name, **values):
    zeros = ("cycles", "macs", "macs_useful", "bytes_read", "bytes_written", "bytes_ideal")
    values |= dict.fromkeys(zeros, 0) | {"stalls": dict.fromkeys(layer().stalls, 0)}
    return layer(name, place="host", kernel=None, **values)


def test_layers_on_the_host():
    both = NetworkReport((layer("conv"), host("product")))
    shown = text(both)
    assert "on the host" in shown
    assert shown.count("all 100 equal") == 2  # the layer on the accelerator, and the sum
    assert both.utilisation == layer().utilisation
    assert both.lines()[:-1] == NetworkReport((layer("conv"),)).lines()
    assert both.lines()[-1].startswith("Layer 'product' runs on the host, ")
    assert both.lines()[-1].endswith("the accelerator has no multiplier for two feature maps.")
    wrong = host("other", match=False, mismatches=3)
    assert "3 of 100 differ" in text(NetworkReport((layer(), wrong)))
    (line,) = NetworkReport((host("a"), host("b"))).lines()
    assert line.startswith("Layers 'a', 'b' run on the host, ")
    assert "equal" not in text(NetworkReport((host("a"), host("b"))))


def test_images_and_layers_without_a_kernel():
    shown = text(NetworkReport((layer(batch=3, kernel=None),)))
    assert "3 x 5x6x7" in shown
    assert "3 x 5x5x4" in shown
    assert "3x2" not in shown


def test_write_json(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    write_json(path, {"a": [1, 2.5, True]})
    assert json.loads(path.read_text()) == {"a": [1, 2.5, True]}
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})

    def fail(source, target):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_json(path, {})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_follows_links(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    with replacing(link) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_replacing_writes_to_what_is_no_file():
    with replacing(os.devnull) as path:
        assert str(path) == os.devnull
