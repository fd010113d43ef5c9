"""Any operation with any parameters against golden, drawn so that failures shrink."""

import os

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from trirow_driver.lowering import UnsupportedError
from trirow_sim.case import ACTIVATIONS, OPERATIONS, OPTIONS_OF, Case

from ..fuzz import SMALL, Setting, check

#: Of the drawn cases; another one draws others.
SEED = int(os.environ.get("TRIROW_TEST_SEED", "1"))
SETTINGS = {"tiny": Setting("tiny", {}), "odd": Setting("odd", {}), "small": SMALL}
EXAMPLES, MANY_EXAMPLES = 80, 2000
#: Most multiplications of a case.
MACS = 50_000

extents = st.integers(1, 9)
#: Small for the most part, so that few cases are too large.
sizes = st.integers(1, 5)
pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
pads = st.tuples(*[st.integers(0, 6)] * 4)


def strategies(op, weight_bits):
    """Return the strategies of the fields that an operation has."""
    every = {
        "out": st.integers(1, 13),
        "kernel": st.tuples(sizes, sizes),
        "stride": pairs,
        "pad": pads,
        "dilation": pairs,
        "groups": st.integers(1, 4),
        "multiplier": st.integers(1, 3),
        "output_padding": st.tuples(st.integers(0, 3), st.integers(0, 3)),
        "mode": st.sampled_from(["float32", "fixed"]),
        "activation": st.sampled_from(ACTIVATIONS),
        "residual": st.booleans(),
        "weight_zero_point": st.integers(-128, 127) if weight_bits > 8 else st.just(0),
        "ceil": st.booleans(),
        "count_padding": st.booleans(),
        "factor": st.integers(1, 3),
        "extreme": st.booleans(),
    }
    assert set(every) == set(OPTIONS_OF)
    return {name: strategy for name, strategy in every.items() if op in OPTIONS_OF[name]}


@st.composite
def cases(draw, weight_bits):
    """Draw a case that has an output and is not too large."""
    op = draw(st.sampled_from([op for op in OPERATIONS if op != "multiply"]))
    fields = {name: draw(given) for name, given in strategies(op, weight_bits).items()}
    channels = draw(st.integers(1, 13))
    groups = fields.get("groups", 1)
    if op != "shuffle" and "out" in fields:
        fields["out"] *= groups
    if op == "slice":
        fields["out"] = min(fields["out"], channels)
    if fields.get("activation") == "prelu":
        fields["mode"] = "float32"
    if op == "transposed":
        # Less than the stride or the dilation.
        steps = zip(fields["output_padding"], fields["stride"], fields["dilation"], strict=True)
        fields["output_padding"] = tuple(min(more, max(pair) - 1) for more, *pair in steps)
    shape = draw(extents), draw(extents), groups * channels
    if "pad" in fields and op != "transposed":
        fields["pad"] = _enough(shape, fields)
    number = draw(st.integers(0, 2**31 - 1))
    case = Case(op, shape, batch=draw(st.integers(1, 3)), seed=number, **fields)
    assume(_macs(case) <= MACS)
    return case


def _enough(shape, fields):
    """Return the padding, more of it below and on the right if the kernel does not fit."""
    pad = list(fields["pad"])
    for axis in range(2):
        covered = (fields["kernel"][axis] - 1) * fields.get("dilation", (1, 1))[axis] + 1
        pad[axis + 2] += max(0, covered - shape[axis] - pad[axis] - pad[axis + 2])
    return tuple(pad)


def _macs(case):
    """Return the multiplications of a case; too many if it has no output."""
    try:
        nodes, *_ = case.build()
        return case.batch * sum(node.layer.macs(case.shape) for node in nodes)
    except ValueError:
        return MACS + 1


def run(name, examples, number):
    """Run examples on a configuration; a failure says how to repeat it."""
    setting = SETTINGS[name]
    config = setting.config
    print(f"seed {number}; TRIROW_TEST_SEED draws others")

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(cases(config.weight_bits))
    def equals_golden(case):
        try:
            wrong = check(case, config, "random")
        except UnsupportedError:
            assume(False)
        assert wrong is None, f"{wrong}\nrepeat with: {setting.command(case, 'random')}"

    equals_golden()


@pytest.mark.parametrize("name", SETTINGS)
def test_any_case(compiled_cache, name):
    run(name, EXAMPLES, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_many_cases(compiled_cache, name):
    run(name, MANY_EXAMPLES, SEED + 1)


def test_failures_shrink(monkeypatch, compiled_cache):
    """Golden without its residual: the smallest case that has one is what is shown."""
    from trirow_driver.combine_layer import Combine

    monkeypatch.setattr(Combine, "golden", lambda self, first, second: first)
    with pytest.raises(AssertionError, match="repeat with: trirow sim --op") as failure:
        run("tiny", EXAMPLES, SEED)
    assert "--shape 1x1x1 " in str(failure.value)
