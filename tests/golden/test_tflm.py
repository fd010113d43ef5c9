"""The golden model, in mode "fixed", against TensorFlow Lite for Microcontrollers: all equal."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

runtime = pytest.importorskip("tflite_micro", reason="tflite-micro has no wheel for this").runtime
pytest.importorskip("ai_edge_litert", reason="the models are built with LiteRT's schema")

from .tflite_models import (  # noqa: E402  (after the checks for what it needs)
    RANDOM_CASES,
    Case,
    pair_case,
    tie_case,
)

#: Requantisation where it is not "fixed" to the last bit: MUL works its multiplier out in float64,
#: LiteRT in float32.
MODES = {"mul": "float64"}


def run(model: bytes, *inputs: NDArray[np.int8]) -> NDArray[np.int8]:
    """Run a model in an arena that is large enough for all models here."""
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 20)
    for index, values in enumerate(inputs):
        interpreter.set_input(values, index)
    interpreter.invoke()
    return interpreter.get_output(0)


def check(case: Case, mode: str) -> None:
    result = run(case.model, *case.inputs)
    np.testing.assert_array_equal(result, case.expected(mode), err_msg=case.text)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("operator", RANDOM_CASES)
def test_random(operator: str, seed: int) -> None:
    case = RANDOM_CASES[operator](np.random.default_rng(seed))
    check(case, MODES.get(operator, "fixed"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "operator",
    [
        "conv",
        "depthwise_conv",
        "fully_connected",
        "fully_connected_per_tensor",
        "transpose_conv",
    ],
)
def test_requantisation_near_ties(operator: str, seed: int) -> None:
    case = tie_case(np.random.default_rng(seed), operator)
    for other in ("float32", "float64"):
        differ = np.count_nonzero(case.expected("fixed") != case.expected(other))
        assert differ > 10, f"these sums do not tell fixed from {other}"
    check(case, "fixed")


@pytest.mark.parametrize("kind", ["add", "mul"])
def test_all_pairs_of_values(kind: str) -> None:
    mode = MODES.get(kind, "fixed")
    others = {"float32", "fixed"} - {mode}
    telling = dict.fromkeys(others, 0)
    for seed in range(10):
        case = pair_case(np.random.default_rng(seed), kind)
        check(case, mode)
        for other in others:
            telling[other] += np.count_nonzero(case.expected(mode) != case.expected(other))
    assert min(telling.values()) > 10, f"these scales do not tell {mode} from others: {telling}"
