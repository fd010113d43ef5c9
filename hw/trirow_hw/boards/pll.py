"""The PLL of ECP5, EHXPLLL: its dividers for a clock, and the instance."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import C, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Pll", "PllDividers", "pll_dividers"]

#: Limits in MHz: Lattice FPGA-DS-02012, ECP5 and ECP5-5G Family Data Sheet, sysCLOCK PLL timing.
INPUT_MHZ = (8, 400)
DETECTOR_MHZ = (10, 400)
VCO_MHZ = (400, 800)
OUTPUT_MHZ = (Fraction(25, 8), 400)
#: Largest divider: Lattice FPGA-TN-02200, ECP5 sysCLOCK PLL/DLL Design and Usage Guide.
MAX_DIVIDER = 128


@dataclass(frozen=True)
class PllDividers:
    """Dividers of an EHXPLLL whose oscillator is fed back through CLKOP, with the clock at CLKOS.

    The detector compares ``input / reference`` with ``vco / (loop * feedback)``, so the oscillator
    runs at ``input / reference * feedback * loop`` and the clock is that over ``output``. With an
    output of its own for the feedback the clock need not be a multiple of the detector's.

    Parameters
    ----------
    input_mhz : Fraction
        Clock at CLKI.
    reference, feedback : int
        CLKI_DIV and CLKFB_DIV.
    loop, output : int
        CLKOP_DIV and CLKOS_DIV.
    """

    input_mhz: Fraction
    reference: int
    feedback: int
    loop: int
    output: int

    @property
    def detector_mhz(self) -> Fraction:
        """Clock of the phase detector."""
        return self.input_mhz / self.reference

    @property
    def vco_mhz(self) -> Fraction:
        """Clock of the oscillator."""
        return self.detector_mhz * self.feedback * self.loop

    @property
    def output_mhz(self) -> Fraction:
        """Clock at CLKOS."""
        return self.vco_mhz / self.output


def pll_dividers(input_mhz: float | Fraction, request_mhz: float | Fraction) -> PllDividers:
    """Return the dividers for the highest clock of the PLL that is not above a request.

    Of several the one with the fastest detector is taken, which has the least jitter, and then the
    fastest oscillator.

    Parameters
    ----------
    input_mhz : float or Fraction
        Clock at the PLL's input, 8 to 400 MHz.
    request_mhz : float or Fraction
        Clock that is asked for, 3.125 to 400 MHz.

    Raises
    ------
    ValueError
        If one of them is outside the PLL's limits, or there is no such clock.
    """
    source, request = Fraction(input_mhz), Fraction(request_mhz)
    _check("the PLL's input", source, INPUT_MHZ)
    _check("the clock", request, OUTPUT_MHZ)
    best: tuple[tuple[Fraction, Fraction, Fraction], PllDividers] | None = None
    for reference in range(1, MAX_DIVIDER + 1):
        detector = source / reference
        if not DETECTOR_MHZ[0] <= detector <= DETECTOR_MHZ[1]:
            continue
        for multiple in range(-(-VCO_MHZ[0] // detector), VCO_MHZ[1] // detector + 1):
            loop = _loop(detector, multiple)
            output = -(-detector * multiple // request)
            if loop is None or output > MAX_DIVIDER:
                continue
            found = PllDividers(source, reference, multiple // loop, loop, output)
            if found.output_mhz < OUTPUT_MHZ[0]:
                continue
            merit = found.output_mhz, detector, found.vco_mhz
            if best is None or merit > best[0]:
                best = merit, found
    if best is None:
        raise ValueError(f"no clock up to {float(request):g} MHz from {float(source):g} MHz")
    return best[1]


def _check(name: str, value: Fraction, limits: tuple[int | Fraction, int | Fraction]) -> None:
    if not limits[0] <= value <= limits[1]:
        low, high = (float(limit) for limit in limits)
        raise ValueError(f"{name} must be from {low:g} to {high:g} MHz, not {float(value):g}")


def _loop(detector: Fraction, multiple: int) -> int | None:
    """Return the least CLKOP_DIV that divides the multiple and keeps CLKOP within its limits."""
    for loop in range(1, MAX_DIVIDER + 1):
        feedback, rest = divmod(multiple, loop)
        fits = OUTPUT_MHZ[0] <= detector * feedback <= OUTPUT_MHZ[1]
        if rest == 0 and feedback <= MAX_DIVIDER and fits:
            return loop
    return None


class Pll(wiring.Component):
    """An EHXPLLL with one output.

    Parameters
    ----------
    dividers : PllDividers

    Members
    -------
    i : In(1)
        Clock of ``dividers.input_mhz``.
    o : Out(1)
        Clock of ``dividers.output_mhz``.
    locked : Out(1)
        The clock is stable; asynchronous.
    """

    def __init__(self, *, dividers: PllDividers):
        self._dividers = dividers
        super().__init__({"i": In(1), "o": Out(1), "locked": Out(1)})

    def elaborate(self, platform):
        m = Module()
        d = self._dividers
        feedback = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            # Lattice's tools set the loop filter by these; the values are those of their wizard.
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_CLKI_DIV=d.reference,
            p_CLKFB_DIV=d.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=d.loop,
            p_CLKOP_CPHASE=d.loop - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=d.output,
            p_CLKOS_CPHASE=d.output - 1,
            p_CLKOS_FPHASE=0,
            i_CLKI=self.i,
            i_CLKFB=feedback,
            i_RST=C(0),
            i_STDBY=C(0),
            i_PHASESEL0=C(0),
            i_PHASESEL1=C(0),
            i_PHASEDIR=C(0),
            i_PHASESTEP=C(0),
            i_PHASELOADREG=C(0),
            i_PLLWAKESYNC=C(0),
            i_ENCLKOP=C(0),
            i_ENCLKOS=C(0),
            o_CLKOP=feedback,
            o_CLKOS=self.o,
            o_LOCK=self.locked,
        )
        return m
