import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, CombineLayer, MultiplyLayer, combine_scales
from trirow_driver.quantise import Quantisation

FIRST, SECOND, OUT = Quantisation(0.05, 3), Quantisation(0.02, -9), Quantisation(0.06, 5)


def make(kind="add", mode="fixed", low=-128, high=127):
    scales = combine_scales(kind, FIRST, SECOND, OUT, mode)
    return CombineLayer("sum", FIRST, Combine(kind, scales, SECOND, OUT, low, high))


def operands(seed=2):
    rng = np.random.default_rng(seed)
    return (rng.integers(-128, 128, (1, 6, 5, 4), dtype=np.int8) for _ in range(2))


def real(q, x):
    return (x.astype(float) - q.zero_point) * q.scale


@pytest.mark.parametrize("mode", ["fixed", "float32"])
@pytest.mark.parametrize("kind", ["add", "maximum"])
def test_real_numbers_come_together(kind, mode):
    a, b = operands()
    a_real, b_real = real(FIRST, a), real(SECOND, b)
    expected = a_real + b_real if kind == "add" else np.maximum(a_real, b_real)
    expected = np.clip(expected / OUT.scale + OUT.zero_point, -100, 90)
    y = make(kind, mode, -100, 90).golden(a, b)
    assert np.abs(y - expected).max() <= 0.51 + 1e-3
    assert y.min() >= -100
    assert y.max() <= 90


def test_properties():
    layer = make()
    assert layer.inputs == (FIRST, SECOND)
    assert layer.output == layer.result == OUT
    assert layer.output_extents((3, 4, 5)) == (3, 4, 5)
    assert layer.macs((3, 4, 5)) == 0
    assert not layer.on_host


def test_wrong_combination():
    scales = combine_scales("add", FIRST, SECOND, OUT)
    with pytest.raises(ValueError, match=r"^kind must be one of add, maximum, not 'product'$"):
        Combine("product", scales, SECOND, OUT)
    text = r"^low and high must be ordered and in -128 .. 127, not 5 and 4$"
    with pytest.raises(ValueError, match=text):
        Combine("add", scales, SECOND, OUT, 5, 4)


def test_wrong_fields_of_layers():
    with pytest.raises(ValueError, match=r"^layer 'sum': combine must be a Combine, not None$"):
        CombineLayer("sum", FIRST, None)
    with pytest.raises(ValueError, match=r"^layer 'sum': input must be a Quantisation, not 3$"):
        CombineLayer("sum", 3, make().combine)
    with pytest.raises(ValueError, match=r"^layer 'product': second must be a Quantisation, not"):
        MultiplyLayer("product", FIRST, None, OUT)
    with pytest.raises(ValueError, match=r"^layer 'product': mode must be one of float32, fixed, "):
        MultiplyLayer("product", FIRST, SECOND, OUT, "double")


@pytest.mark.parametrize("mode", ["fixed", "float32"])
def test_products_are_for_the_host(mode):
    layer = MultiplyLayer("product", FIRST, SECOND, OUT, mode)
    assert layer.on_host
    assert layer.inputs == (FIRST, SECOND)
    assert layer.macs((3, 4, 5)) == 0
    a, b = operands()
    expected = real(FIRST, a) * real(SECOND, b) / OUT.scale + OUT.zero_point
    y = layer.golden(a, b)
    assert np.abs(y - np.clip(expected, -128, 127)).max() <= 0.51
