import numpy as np
import pytest

from trirow_driver.graph import (
    Concat,
    Convolution,
    Eltwise,
    Graph,
    GraphError,
    Identity,
    MaxPool,
    Node,
    Relu,
    Reshape,
    Slice,
)
from trirow_golden import float32

RNG = np.random.default_rng(3)
WEIGHTS = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
SHAPE = (2, 3, 8, 6)


def branches():
    return [
        Node("conv", Convolution(WEIGHTS, pad=(1, 1, 1, 1)), ("x",), ("a",)),
        Node("relu", Relu(), ("a",), ("b",)),
        Node("cut", Slice(2), ("a",), ("c", "d")),
        Node("join", Concat(), ("d", "c"), ("e",)),
        Node("sum", Eltwise(), ("b", "e"), ("f",)),
        Node("pool", MaxPool((2, 2), (2, 2)), ("f",), ("g",)),
    ]


def test_shapes_and_neighbours():
    graph = Graph({"x": SHAPE}, branches())
    assert graph.outputs == ("g",)
    assert graph.shapes["f"] == (2, 4, 8, 6)
    assert graph.shapes["d"] == (2, 2, 8, 6)
    assert graph.shapes["g"] == (2, 4, 4, 3)
    assert graph.producer("x") is None
    assert graph.producer("d").name == "cut"
    assert [node.name for node in graph.consumers("a")] == ["relu", "cut"]
    assert graph.consumers("g") == ()
    assert graph.macs(graph.nodes[0]) == 2 * 4 * 48 * 27
    assert graph.macs(graph.nodes[1]) == 0


def test_computes_what_the_functions_do():
    x = RNG.normal(size=SHAPE).astype(np.float32)
    a = float32.convolution(x, WEIGHTS, pad=(1, 1, 1, 1))
    c, d = float32.slice_(a, 2)
    f = float32.eltwise([float32.relu(a), float32.concat([d, c])])
    g = float32.max_pool(f, (2, 2), stride=(2, 2))
    graph = Graph({"x": SHAPE}, branches())
    results = graph.compute({"x": x})
    assert results.keys() == {"g"}
    assert np.array_equal(results["g"], g)
    results = graph.compute({"x": x}, ["a", "d", "x", "g"])
    assert results.keys() == {"a", "d", "x", "g"}
    assert np.array_equal(results["a"], a)
    assert np.array_equal(results["d"], d)
    assert np.array_equal(results["x"], x)


def test_tensors_are_forgotten_after_their_last_use(monkeypatch):
    alive = []

    class Watch(Identity):
        """Notes how many arrays of the chain are there, which each node makes anew."""

        def compute(self, inputs):
            made = Array(inputs[0])
            alive.append(Array.count)
            return (made,)

    class Array(np.ndarray):
        count = 0

        def __new__(cls, source):
            cls.count += 1
            return np.array(source).view(cls)

        def __del__(self):
            if self.base is not None:
                type(self).count -= 1

    nodes = [Node(f"n{k}", Watch(), (f"t{k}",), (f"t{k + 1}",)) for k in range(6)]
    Graph({"t0": (3,)}, nodes).compute({"t0": np.ones(3)})
    assert max(alive) <= 2


def test_unread_outputs_of_a_node_are_outputs():
    nodes = [Node("cut", Slice(3), ("x",), ("a", "b", "c")), Node("relu", Relu(), ("b",), ("d",))]
    graph = Graph({"x": SHAPE}, nodes)
    assert graph.outputs == ("a", "c", "d")
    assert Graph({"x": SHAPE}, nodes, ["d"]).compute({"x": np.ones(SHAPE)}).keys() == {"d"}


def test_other_inputs():
    graph = Graph({"x": SHAPE}, branches()).with_inputs({"x": (1, 3, 20, 10)})
    assert graph.shapes["g"] == (1, 4, 10, 5)
    with pytest.raises(GraphError, match="there is no input 'y', only x"):
        graph.with_inputs({"y": SHAPE})
    with pytest.raises(
        GraphError, match=r"node 'conv' \(Convolution\): input must have 3 channels"
    ):
        graph.with_inputs({"x": (1, 4, 8, 6)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda n: n.append(n[0]), "node 'conv' is there twice"),
        (lambda n: n.pop(0), "node 'relu' reads 'a', which nothing before it gives"),
        (lambda n: n.reverse(), "node 'pool' reads 'f', which nothing before it gives"),
        (lambda n: n.append(Node("z", Relu(), ("g",), ("a",))), "node 'z' writes 'a', which is"),
        (lambda n: n.append(Node("z", Relu(), ("g", "a"), ("h",))), "must have 1 inputs, not 2"),
        (lambda n: n.append(Node("z", Eltwise(), (), ("h",))), "must have one or more inputs"),
        (lambda n: n.append(Node("z", Slice(2), ("g",), ("h",))), "gives 2 tensors, not 1"),
        (
            lambda n: n.append(Node("z", Reshape((7,)), ("g",), ("h",))),
            r"node 'z' \(Reshape\): shape must fit \(2, 4, 4, 3\)",
        ),
    ],
)
def test_wrong_graphs(change, text):
    nodes = branches()
    change(nodes)
    with pytest.raises(GraphError, match=text):
        Graph({"x": SHAPE}, nodes)


def test_wrong_ends():
    with pytest.raises(GraphError, match="output 'z' is written by no node"):
        Graph({"x": SHAPE}, branches(), ["z"])
    with pytest.raises(GraphError, match=r"input 'x' must have positive extents, not \(1, 0\)"):
        Graph({"x": (1, 0)}, [])
    with pytest.raises(GraphError, match="input 'x' must have positive extents"):
        Graph({"x": (1 << 20, 1 << 20)}, [])


def test_tensor_that_is_too_large():
    grows = Node("z", Convolution(np.ones((1, 1, 1, 1)), pad=(1 << 20,) * 4), ("x",), ("y",))
    with pytest.raises(GraphError, match="node 'z' gives"):
        Graph({"x": (1, 1, 2, 2)}, [grows])


def test_wrong_feeds():
    graph = Graph({"x": SHAPE}, branches())
    with pytest.raises(ValueError, match="input 'x' is missing"):
        graph.compute({})
    with pytest.raises(ValueError, match=r"input 'x' must have shape \(2, 3, 8, 6\), not \(1, 3,"):
        graph.compute({"x": np.ones((1, 3, 8, 6))})
