import os
import signal
import sys
import time
from collections import Counter

import numpy as np
import pytest

import trirow_sim.parallel as module
from trirow_driver.conv_layer import ConvLayer
from trirow_driver.lowering import UnsupportedError
from trirow_driver.quantise import Quantisation
from trirow_hw.config import PRESETS
from trirow_sim.case import random_layer
from trirow_sim.independent import simulate_layers
from trirow_sim.parallel import (
    ClusterError,
    MissingPackage,
    WorkerLost,
    run_all,
)
from trirow_sim.simulate import RunError, simulate

TINY = PRESETS["tiny"]
TIMES = ("seconds", "cycles_per_second")


@pytest.fixture(scope="module")
def cluster():
    """Give a cluster of two worker processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=60,
    ) as cluster:
        yield cluster


@pytest.fixture(params=["here", "processes", "cluster"])
def way(request):
    """Give the arguments that say where the work is done."""
    if request.param == "cluster":
        return {"scheduler": request.getfixturevalue("cluster").scheduler_address}
    return {"jobs": 2} if request.param == "processes" else {}


def fatal(folder, times):
    """Return a function that ends its process so many times when it is given a 3.

    It leaves the number of each process in the folder, and takes long for all but the 3.
    """

    def function(item):
        if item != 3:
            time.sleep(0.05)
            return 10 * item
        before = len(list(folder.iterdir()))
        if before < times:
            (folder / str(before)).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return 30

    return function


def plain(simulation):
    """Return the report without the times that the simulation took."""
    content = simulation.report.to_dict()
    for entry in (*content["layers"], content["network"]):
        for key in TIMES:
            del entry[key]
    return content


def chain():
    """Return two layers and a feature map."""
    rng = np.random.default_rng(3)
    given, between, last = (Quantisation(0.1, zero) for zero in (4, -7, 3))

    def conv(name, k, c, given, output):
        return ConvLayer(
            name,
            rng.integers(-127, 128, (k, 2, 2, c), dtype=np.int8),
            rng.integers(-2000, 2000, k, dtype=np.int32),
            rng.uniform(0.001, 0.003, k).astype(np.float32),
            (1, 1),
            (0, 0, 0, 0),
            given,
            output,
        )

    layers = [conv("a", 4, 3, given, between), conv("b", 5, 4, between, last)]
    return layers, rng.integers(-128, 128, (1, 4, 4, 3), dtype=np.int8)


# Any function


def test_results_in_order(way):
    def function(item):
        time.sleep(0.05 * (item == 0))
        return item * item

    seen = {}
    results = run_all(function, range(6), on_result=seen.__setitem__, **way)
    assert results == [0, 1, 4, 9, 16, 25]
    assert seen == dict(enumerate(results))
    assert run_all(function, [], **way) == []


def test_exceptions_are_results(way):
    def function(item):
        class Local(Exception):
            def __init__(self, first, second):
                super().__init__(f"{first} and {second}")

        if item == 1:
            raise Local("this", "that")
        if item == 2:
            raise UnsupportedError("layer 'x': too large")
        return item

    first, unsendable, unsupported, last = run_all(function, range(4), **way)
    assert (first, last) == (0, 3)
    assert type(unsendable) is RunError
    assert str(unsendable) == "Local: this and that"
    assert type(unsupported) is UnsupportedError
    assert str(unsupported) == "layer 'x': too large"


def test_work_is_done_elsewhere(way):
    def function(item):
        time.sleep(0.2)
        return os.getpid()

    found = Counter(run_all(function, range(4), **way))
    assert (os.getpid() in found) == (not way)
    assert len(found) == (2 if way else 1)


@pytest.mark.parametrize("way", ["processes", "cluster"], indirect=True)
def test_lost_worker_is_replaced(way, tmp_path):
    seen = Counter()
    results = run_all(
        fatal(tmp_path, 1), range(8), on_result=lambda index, _: seen.update([index]), **way
    )
    assert results == [0, 10, 20, 30, 40, 50, 60, 70]
    assert seen == Counter(range(8))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("way", ["processes", "cluster"], indirect=True)
def test_item_that_ends_every_worker_is_given_up(way, tmp_path):
    results = run_all(fatal(tmp_path, 99), range(5), **way)
    assert type(results[3]) is WorkerLost
    assert "times without a result" in str(results[3])
    assert results[:3] + results[4:] == [0, 10, 20, 40]
    assert len(list(tmp_path.iterdir())) >= 3


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"^jobs must be at least 1, not 0$"):
        run_all(abs, [1], jobs=0)
    with pytest.raises(ValueError, match=r"^jobs and scheduler do not go together$"):
        run_all(abs, [1], jobs=2, scheduler="tcp://127.0.0.1:1")


def test_missing_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackage, match=r"package joblib: pip install joblib$"):
        run_all(abs, [1], jobs=2)
    with pytest.raises(MissingPackage, match=r"distributed: pip install 'trirow\[cluster\]'$"):
        run_all(abs, [1], scheduler="tcp://127.0.0.1:1")
    assert run_all(abs, [-1]) == [1]


def test_no_scheduler(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(module, "_CONNECT", 0.5)
    for address in ("tcp://127.0.0.1:9", "what://x", "127.0.0.1"):
        with pytest.raises(ClusterError, match=r"^no Dask scheduler answers at .*: .") as error:
            run_all(abs, [1], scheduler=address)
        assert "\n" not in str(error.value)


def test_cluster_without_workers(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(module, "_PATIENCE", 0.3)
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address="127.0.0.1:0", silence_logs=60
    ) as cluster:
        (result,) = run_all(abs, [1], scheduler=cluster.scheduler_address)
    assert type(result) is WorkerLost
    assert str(result).endswith("has no worker")


def test_scheduler_that_is_lost():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
        silence_logs=60,
    ) as cluster:
        address = cluster.scheduler_address
        first, *others = run_all(
            time.sleep, [0, 2, 2], scheduler=address, on_result=lambda *_: cluster.close()
        )
    assert first is None
    for result in others:
        assert type(result) is WorkerLost
        assert str(result) == f"the Dask scheduler at {address!r} was lost"


# Layers


@pytest.fixture(scope="module")
def apart():
    layers, features = chain()
    return simulate_layers(
        layers, features, TINY, memory="ideal", engine="pysim", name="pair", clock_mhz=50
    )


def test_layers_in_any_way(way, apart):
    layers, features = chain()
    calls = []
    simulation = simulate_layers(
        *(layers, features, TINY),
        memory="ideal",
        engine="pysim",
        name="pair",
        clock_mhz=50,
        progress=lambda *values: calls.append(values),
        **way,
    )
    assert simulation.ok
    assert plain(simulation) == plain(apart)
    for got, wanted in zip(simulation.outputs, apart.outputs, strict=True):
        assert np.array_equal(got, wanted)
    assert calls[-1] == (36 + 20, 36 + 20, apart.report.cycles)
    assert calls[0][0] in (36, 20)


def test_layers_against_a_chain(apart):
    layers, features = chain()
    together = simulate(
        layers, features, TINY, memory="ideal", engine="pysim", name="pair", clock_mhz=50
    )
    for got, wanted in zip(apart.outputs, together.outputs, strict=True):
        assert np.array_equal(got, wanted)
    assert apart.comparison.layers == together.comparison.layers
    network = apart.report.to_dict()["network"]
    assert network["cycles"] == sum(layer.cycles for layer in apart.report.layers)
    assert (network["name"], network["clock_mhz"], network["match"]) == ("pair", 50, True)
    assert [layer.name for layer in apart.report.layers] == ["a", "b"]


def test_layer_that_cannot_be_computed(way):
    layer, features = random_layer(3, 4, 4, 4)
    lacks = TINY.override(requantise_modes=("fixed",))
    with pytest.raises(UnsupportedError, match=r"^layer 'conv': requantisation mode float32 is"):
        simulate_layers([layer], features, lacks, memory="ideal", engine="pysim", **way)
