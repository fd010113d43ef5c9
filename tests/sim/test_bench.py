import os
import signal
from pathlib import Path

import pytest

import trirow_sim.bench as module
from trirow_hw.config import PRESETS
from trirow_sim.bench import Bench, read_rows
from trirow_sim.report import KEYS, LayerReport
from trirow_sim.simulate import RunError

TINY = PRESETS["tiny"]
HEADER = "net,layer,op,in_c,in_h,in_w,out_c,out_h,out_w,kh,kw,stride,pad,dilation,group,macs\n"
TABLE = (
    HEADER
    + """\
one,first,conv,3,7,6,5,4,3,3,3,2,SAME,1,1,0
one,pool,poolmax,5,4,3,5,2,1,2,2,2,same,1,1,0
two,depthwise,conv,8,5,5,8,5,5,3,3,1,1,1,8,1800
one,last,conv,5,4,3,4,4,3,1,1,1,0,1,1,240

one,wide,conv,5,3,8,4,1,6,3,3,1,0,1,1,0
two,dilated,conv,4,5,5,4,1,1,3,3,1,0,2,1,0
"""
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "layers.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "layers.csv"
    path.write_text(TABLE)
    return read_rows(path)


@pytest.fixture(scope="module")
def results(rows):
    return Bench(TINY, "ideal", "pysim").run(rows)


def outcomes(results):
    """Return what came out of rows, without the time that it took."""
    found = []
    for result in results:
        report = result.report and result.report.to_dict()
        for key in ("seconds", "cycles_per_second"):
            if report:
                del report[key]
        found.append((result.row, report, result.unsupported, result.error))
    return found


# Tables


def test_rows(rows):
    names = ["first", "pool", "depthwise", "last", "wide", "dilated"]
    assert [row.layer for row in rows] == names
    assert [row.net for row in rows] == ["one", "one", "two", "one", "one", "two"]
    assert [row.index for row in rows] == list(range(6))
    assert [row.line for row in rows] == [2, 3, 4, 5, 7, 8]
    reasons = ["", "operation poolmax", "", "", "", ""]
    assert [row.unsupported for row in rows] == reasons
    first, last = rows[0], rows[3]
    assert (first.in_shape, first.out_shape) == ((7, 6, 3), (4, 3, 5))
    assert (first.kernel, first.stride, first.pad) == ((3, 3), (2, 2), (1, 0, 1, 1))
    assert (last.pad, last.macs) == ((0, 0, 0, 0), 240)
    assert (rows[2].groups, rows[2].dilation, rows[2].macs) == (8, 1, 1800)
    assert (rows[5].groups, rows[5].dilation) == (1, 2)


def test_columns_in_any_order_and_a_byte_order_mark(tmp_path):
    lines = [line.split(",") for line in TABLE.split("\n\n")[0].splitlines()]
    path = tmp_path / "layers.csv"
    path.write_text("\ufeff" + "\r\n".join(" , ".join(reversed(line[:-1])) for line in lines))
    assert [row.layer for row in read_rows(path)] == ["first", "pool", "depthwise", "last"]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("net", "", "line 2, column 'net': must not be empty"),
        ("layer", " ", "line 2, column 'layer': must not be empty"),
        ("in_c", "0", "line 2, column 'in_c': must be an integer of at least 1, not '0'"),
        ("kh", "3.0", "line 2, column 'kh': must be an integer of at least 1, not '3.0'"),
        ("stride", "", "line 2, column 'stride': must be an integer of at least 1, not ''"),
        ("group", "-1", "line 2, column 'group': must be an integer of at least 1, not '-1'"),
        ("pad", "-1", "line 2, column 'pad': must be an integer of at least 0 or SAME, not '-1'"),
        (
            "out_w",
            "4",
            "line 2, column 'out_w': is 4, but input, kernel, stride, pad and",
        ),
        ("group", "2", "line 2, column 'group': 2 does not divide the 3 of column 'in_c'"),
        ("group", "3", "line 2, column 'group': 3 does not divide the 5 of column 'out_c'"),
        ("kh", "99", "line 2: Output of kernel 99x3 on input 7x6"),
        ("layer", "a,b", "line 2: has 17 fields, and the header 16"),
        ("layer", '"a', "is not a CSV file in UTF-8: unexpected end of data"),
    ],
)
def test_wrong_field(tmp_path, column, value, text):
    names = HEADER.strip().split(",")
    fields = TABLE.splitlines()[1].split(",")
    fields[names.index("pad")] = "1"
    fields[names.index(column)] = value
    path = tmp_path / "layers.csv"
    path.write_text(HEADER + ",".join(fields) + "\n")
    with pytest.raises(ValueError, match=r"layers\.csv: ") as error:
        read_rows(path)
    assert str(error.value).startswith(f"{path}: {text}")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "line 1: must have the names of the columns, but is empty"),
        (b"net,layer\n", "line 1: column 'op' is missing"),
        (HEADER.replace("macs", "kw").encode(), "line 1: column 'kw' appears twice"),
        (HEADER.encode(), "has no rows"),
        (b"\x89PNG\xff", "is not a CSV file in UTF-8: "),
    ],
)
def test_wrong_file(tmp_path, content, text):
    path = tmp_path / "layers.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"layers\.csv: ") as error:
        read_rows(path)
    assert str(error.value).startswith(f"{path}: {text}")


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"x\.csv: cannot be read: No such file or directory$"):
        read_rows(tmp_path / "x.csv")


def test_table_of_standard_networks():
    shared = Path(__file__).parents[2] / ".." / "shared"
    path = Path(os.environ.get("TRIROW_SHARED", shared)) / "bench" / "layer_shapes.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not there; TRIROW_SHARED names the folder that has it")
    rows = read_rows(path)
    resnet = [row for row in rows if row.net == "resnet50" and not row.unsupported]
    assert len(resnet) == 53
    assert sum(row.macs for row in resnet) == pytest.approx(4.1e9, rel=0.1)
    vgg = [row for row in rows if row.net == "vgg16" and not row.unsupported]
    assert (vgg[4].in_shape, vgg[4].out_shape) == ((56, 56, 128), (56, 56, 256))


# Simulation


def test_results(results):
    first, pool, depthwise, last, wide, dilated = results
    for result in (first, depthwise, last, wide, dilated):
        assert isinstance(result.report, LayerReport)
        assert result.report.match
        assert result.report.name == result.row.layer
        assert result.report.out_shape == result.row.out_shape
        assert (result.unsupported, result.error) == ("", "")
        assert result.report.macs == result.row.macs
    assert (pool.report, pool.unsupported) == (None, pool.row.unsupported)
    assert all(result.ok for result in results)


def test_networks(results):
    one, two = Bench(TINY, "ideal", "pysim").networks(results, 50.0)
    for network in (one, two):
        keys = ["name", "layers", "unsupported", "failed", *KEYS[1:], "clock_mhz", "milliseconds"]
        assert list(network) == keys
    assert (one["name"], one["match"], one["failed"]) == ("one", True, [])
    assert [list(layer) for layer in one["layers"]] == [list(KEYS)] * 3
    assert one["unsupported"] == [{"name": "pool", "line": 3, "reason": "operation poolmax"}]
    for key in ("cycles", "macs", "outputs", "bytes_read"):
        assert one[key] == sum(layer[key] for layer in one["layers"])
    assert one["milliseconds"] == pytest.approx(one["cycles"] / 50_000)
    assert ([layer["name"] for layer in two["layers"]], two["unsupported"]) == (
        ["depthwise", "dilated"],
        [],
    )
    (none,) = Bench(TINY, "ideal", "pysim").networks(results[1:2], 50.0)
    assert (none["match"], none["layers"], none["cycles"]) == (False, [], 0)
    assert (none["config"], none["multipliers"]) == ("tiny", 16)


def test_what_a_configuration_lacks_is_not_supported(rows):
    only = TINY.override(requantise_modes=("fixed",))
    found = Bench(only, "ideal", "pysim").run(rows)
    for result in found:
        assert (result.report, result.error) == (None, "")
        assert result.unsupported
        if not result.row.unsupported:
            assert result.unsupported.startswith("requantisation mode float32 is not built into ")


def test_data_depend_on_seed_and_row(rows, monkeypatch):
    taken = []

    def keep(*arguments):
        taken.append(arguments[-1])
        raise ValueError("stop")

    monkeypatch.setattr(module, "random_layer", keep)
    for seed, chosen in ((1, rows), (1, rows[3:4]), (2, rows[3:4])):
        Bench(TINY, seed=seed).run(chosen)
    first, depthwise, last, wide, dilated, alone, other = taken
    assert alone == last
    assert len({first, depthwise, last, wide, dilated, other}) == 6


def test_failure_does_not_lose_the_others(rows, monkeypatch):
    original = module.simulate

    def faulty(layers, *arguments, **options):
        if layers[0].name == "first":
            raise RunError("no progress,\nin unit writer")
        if layers[0].name == "wide":
            raise MemoryError
        return original(layers, *arguments, **options)

    monkeypatch.setattr(module, "simulate", faulty)
    results = Bench(TINY, "ideal", "pysim").run(rows)
    assert [result.ok for result in results] == [False, True, True, True, False, True]
    assert results[0].error == "no progress, in unit writer"
    assert results[4].error == "MemoryError"
    assert results[3].report.match
    one, two = Bench(TINY, "ideal", "pysim").networks(results, 100.0)
    assert one["match"] is False
    assert one["failed"] == [
        {"name": "first", "line": 2, "error": "no progress, in unit writer"},
        {"name": "wide", "line": 7, "error": "MemoryError"},
    ]
    assert two["failed"] == []


def test_processes_give_the_same(rows, results):
    seen = []
    found = Bench(TINY, "ideal", "pysim").run(rows, jobs=2, on_result=seen.append)
    assert outcomes(found) == outcomes(results)
    assert sorted(result.row.index for result in seen) == list(range(6))


@pytest.mark.slow
def test_lost_worker_of_a_cluster_gives_the_same(tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    path = tmp_path / "layers.csv"
    path.write_text(HEADER + "net,l,conv,4,5,5,4,5,5,3,3,1,1,1,1,0\n" * 5)
    rows = read_rows(path)
    bench = Bench(TINY, "random", "pysim")
    lost = []
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=60,
    ) as cluster:

        def kill(result):
            """End a worker that is in the midst of a layer, once."""
            with distributed.Client(cluster, set_as_default=False) as client:
                busy = client.processing()
            for worker in cluster.workers.values():
                if not lost and busy.get(worker.worker_address):
                    lost.append(worker.pid)
                    os.kill(worker.pid, signal.SIGKILL)

        found = bench.run(rows, scheduler=cluster.scheduler_address, on_result=kill)
    assert len(lost) == 1
    assert outcomes(found) == outcomes(bench.run(rows))
    assert all(result.report.match for result in found)
    assert len({result.report.cycles for result in found}) > 1
