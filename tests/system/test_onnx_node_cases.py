"""The ONNX project's own node tests on the simulated accelerator.

`tests/golden/test_onnx_node_tests.py` says which of them int8 arithmetic can express, and why the
others cannot be.
"""

import numpy as np
import pytest

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.pool_layer import PoolLayer
from trirow_driver.quantise import Quantisation
from trirow_sim.simulate import simulate

from ..fuzz import SMALL
from ..golden.test_onnx_node_tests import NodeCase, expressible_cases

#: Values above which a case is too large to simulate.
LARGEST = 20_000
POOLS = {"max_pool": "maximum", "average_pool": "average"}


def expressible_layers():
    for case in expressible_cases():
        zeros = case.weight_zero
        several = zeros is not None and len(set(zeros.tolist())) > 1
        if case.op != "requantise" and case.x.size < LARGEST and not several:
            yield pytest.param(case, id=case.name)


def convolution(case: NodeCase) -> tuple[ConvLayer, np.ndarray]:
    """Return the layer and its output.

    Sums that a case leaves in int32 are brought to int8 by a power of two.
    """
    filters = len(case.weights)
    multiplier, expected = case.multiplier, case.expected
    if multiplier is None:
        excess = max(0, int(np.abs(expected).max()).bit_length() - 7)
        multiplier = np.full(filters, 2.0**-excess, np.float32)
        expected = np.clip(np.rint(expected * 2.0**-excess), -128, 127)
    zero = 0 if case.weight_zero is None else int(case.weight_zero[0])
    layer = ConvLayer(
        case.name,
        case.weights,
        np.zeros(filters, np.int32) if case.bias is None else case.bias,
        np.broadcast_to(multiplier, filters).astype(np.float32),
        case.stride,
        case.pad,
        Quantisation(1.0, case.zero_in),
        Quantisation(1.0, case.zero_out),
        dilation=case.dilation,
        groups=case.groups,
        weight_zero_point=zero,
        transposed=case.op == "transposed_conv",
        output_padding=case.output_padding if case.op == "transposed_conv" else (0, 0),
    )
    return layer, expected


def pool(case: NodeCase) -> tuple[PoolLayer, np.ndarray]:
    layer = PoolLayer(
        case.name,
        POOLS[case.op],
        case.kernel,
        case.stride,
        case.pad,
        Quantisation(1.0, case.zero_in),
        case.dilation,
        case.ceil,
        case.count_padding,
    )
    return layer, case.expected


@pytest.mark.parametrize("case", list(expressible_layers()))
def test_node_case(case):
    layer, expected = (pool if case.op in POOLS else convolution)(case)
    result = simulate([layer], case.x, SMALL.config, memory="random", engine="compiled")
    assert result.ok
    np.testing.assert_array_equal(result.outputs[0], expected)


def test_most_cases_are_simulated():
    assert len(list(expressible_layers())) >= 30
