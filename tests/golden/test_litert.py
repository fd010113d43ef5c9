"""The golden model against LiteRT (TensorFlow Lite), every output equal.

LiteRT's reference kernels requantise in golden's mode "fixed", its default, XNNPACK, in mode
"float32". What docs/references.md says of the two is what is asserted here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trirow_golden as golden

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT has no wheel for this")

from .tflite_models import (  # noqa: E402  (after the check for LiteRT, which it needs, too)
    RANDOM_CASES,
    Case,
    Quantised,
    logistic,
    pair_case,
    tie_case,
)

REFERENCE = litert.OpResolverType.BUILTIN_REF
DEFAULT = litert.OpResolverType.AUTO

#: Requantisation of the reference kernels where it is not "fixed": fully connected multiplies the
#: sum by the multiplier in float64 and rounds once, half away from zero (LiteRT issue 8567).
REFERENCE_MODES = {"fully_connected": "float64", "fully_connected_per_tensor": "float64"}


def interpreter(model: bytes, resolver: Any) -> Any:
    """Load a model."""
    result = litert.Interpreter(
        model_content=model, experimental_op_resolver_type=resolver, num_threads=1
    )
    result.allocate_tensors()
    return result


def run(loaded: Any, *inputs: NDArray[np.int8]) -> NDArray[np.int8]:
    """Run a model."""
    for detail, values in zip(loaded.get_input_details(), inputs, strict=True):
        loaded.set_tensor(detail["index"], values)
    loaded.invoke()
    (detail,) = loaded.get_output_details()
    return loaded.get_tensor(detail["index"])


def runs_on_xnnpack(loaded: Any) -> bool:
    """Tell whether XNNPACK took the operator; otherwise LiteRT's own kernel runs it."""
    return any(op["op_name"] == "DELEGATE" for op in loaded._get_ops_details())


def check(case: Case, resolver: Any, mode: str) -> None:
    result = run(interpreter(case.model, resolver), *case.inputs)
    np.testing.assert_array_equal(result, case.expected(mode), err_msg=case.text)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("operator", RANDOM_CASES)
def test_reference_kernels(operator: str, seed: int) -> None:
    case = RANDOM_CASES[operator](np.random.default_rng(seed))
    check(case, REFERENCE, REFERENCE_MODES.get(operator, "fixed"))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("operator", RANDOM_CASES)
def test_xnnpack(operator: str, seed: int) -> None:
    case = RANDOM_CASES[operator](np.random.default_rng(seed))
    loaded = interpreter(case.model, DEFAULT)
    if not runs_on_xnnpack(loaded):
        # XNNPACK leaves average pools, and max pools whose stride exceeds the kernel, to LiteRT's
        # own kernels, which are exact. It leaves transposed convolutions with output padding as
        # well, which LiteRT requantises in a way that depends on the CPU: nothing to compare with.
        if operator == "transpose_conv":
            assert "'output_padding': (0, 0)" not in case.text
            return
        assert operator in ("average_pool", "max_pool")
    result = run(loaded, *case.inputs)
    np.testing.assert_array_equal(result, case.expected("float32"), err_msg=case.text)


OPERATORS_WITH_SUMS = [
    "conv",
    "depthwise_conv",
    "fully_connected",
    "fully_connected_per_tensor",
    "transpose_conv",
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("operator", OPERATORS_WITH_SUMS)
def test_requantisation_near_ties(operator: str, seed: int) -> None:
    case = tie_case(np.random.default_rng(seed), operator)
    modes = [case.expected(mode) for mode in ("fixed", "float32", "float64")]
    for i in range(3):
        differ = np.count_nonzero(modes[i] != modes[i - 1])
        assert differ > 10, "these sums do not tell the roundings apart"
    check(case, REFERENCE, REFERENCE_MODES.get(operator, "fixed"))
    check(case, DEFAULT, "float32")


@pytest.mark.parametrize("kind", ["add", "mul"])
def test_all_pairs_of_values(kind: str) -> None:
    telling = 0
    for seed in range(10):
        case = pair_case(np.random.default_rng(seed), kind)
        check(case, REFERENCE, "fixed")
        check(case, DEFAULT, "float32")
        telling += np.count_nonzero(case.expected("fixed") != case.expected("float32"))
    assert telling > 1000, "these scales do not tell the roundings apart"


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize("seed", range(10))
def test_logistic(seed: int) -> None:
    """A function of one value is a table, and golden's table is the one of XNNPACK."""
    rng = np.random.default_rng(seed)
    x = Quantised(np.float32(10 ** rng.uniform(-3, 0)), int(rng.integers(-128, 128)))
    values = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 1, 256)
    loaded = interpreter(logistic(values.shape, x), DEFAULT)
    assert runs_on_xnnpack(loaded)
    table = golden.table_of(sigmoid, x.scale, x.zero, 1 / 256, -128)
    np.testing.assert_array_equal(run(loaded, values), golden.apply_table(values, table))
