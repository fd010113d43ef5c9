from fractions import Fraction

import pytest
from amaranth.back import rtlil
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trirow_hw.boards.pll import Pll, pll_dividers


def brute_force(source, request):
    """The highest clock up to a request by trying all dividers there are.

    Only the total multiple of the detector's clock matters to the oscillator: it is split into
    feedback and loop so that CLKOP, which goes to the feedback, is at most 400 MHz and at least
    3.125 MHz. The limits are those of the ECP5's data sheet.
    """
    best = None
    for reference in range(1, 129):
        detector = source / reference
        if not 10 <= detector <= 400:
            continue
        for feedback in range(1, 129):
            if not Fraction(25, 8) <= detector * feedback <= 400:
                continue
            for loop in range(1, 129):
                vco = detector * feedback * loop
                if vco > 800:
                    break
                if vco < 400:
                    continue
                output = -(-vco // request)
                clock = vco / output
                if output <= 128 and clock >= Fraction(25, 8) and (best is None or clock > best):
                    best = clock
    return best


@pytest.mark.parametrize("request_mhz", [100, 95, 66.6, 3.2, 400])
@pytest.mark.parametrize("input_mhz", [25, 12])
def test_is_the_highest_that_there_is(input_mhz, request_mhz):
    found = pll_dividers(input_mhz, request_mhz).output_mhz
    assert found == brute_force(Fraction(input_mhz), Fraction(request_mhz))


@given(
    st.fractions(8, 400, max_denominator=1000),
    st.fractions(Fraction(25, 8), 400, max_denominator=1000),
)
@settings(max_examples=100, deadline=None)
def test_keeps_the_limits_of_the_data_sheet(source, request):
    try:
        d = pll_dividers(source, request)
    except ValueError:
        assume(source >= 10 and request >= 4)
        raise
    assert all(1 <= n <= 128 for n in (d.reference, d.feedback, d.loop, d.output))
    detector = source / d.reference
    vco = detector * d.feedback * d.loop
    assert 10 <= detector <= 400
    assert 400 <= vco <= 800
    assert Fraction(25, 8) <= vco / d.loop <= 400
    assert Fraction(25, 8) <= vco / d.output <= request
    assert (d.detector_mhz, d.vco_mhz, d.output_mhz) == (detector, vco, vco / d.output)


@pytest.mark.parametrize(
    ("source", "request_mhz", "text"),
    [
        (7.9, 100, "the PLL's input must be from 8 to 400 MHz, not 7.9"),
        (401, 100, "the PLL's input must be from 8 to 400 MHz, not 401"),
        (25, 3, "the clock must be from 3.125 to 400 MHz, not 3"),
        (25, 401, "the clock must be from 3.125 to 400 MHz, not 401"),
        (8, 100, "no clock up to 100 MHz from 8 MHz"),
    ],
)
def test_refuses(source, request_mhz, text):
    with pytest.raises(ValueError, match=text):
        pll_dividers(source, request_mhz)


def test_instance_has_the_dividers():
    dividers = pll_dividers(25, 95)
    text = rtlil.convert(Pll(dividers=dividers))
    for name, value in (
        ("CLKI_DIV", dividers.reference),
        ("CLKFB_DIV", dividers.feedback),
        ("CLKOP_DIV", dividers.loop),
        ("CLKOS_DIV", dividers.output),
    ):
        assert (
            f"parameter \\{name} {value}\n" in text
            or f"parameter signed \\{name} {value}\n" in text
        )
    assert 'parameter \\FEEDBK_PATH "CLKOP"' in text
