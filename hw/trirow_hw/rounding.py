"""From the exact product of a requantiser to the integer that it is rounded to."""

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Rounder"]

_STAGES = (
    "coarse",  # product shifted by multiples of 16 bits
    "medium",  # by 8 bits
    "fine",  # by single bits: integer and fraction in their places
    "round",  # is the integer incremented?
)

_PRODUCT = 63  # signed
_INTEGER = 9  # signed integer part: beyond it every zero point saturates
_FRACTION = 25  # fraction bits down to half a unit in the last place of a float32 near 1/2
_WINDOW = _INTEGER + _FRACTION
_UNSHIFTED = 15  # bit of the product that is the unit where nothing is shifted
_LONGEST = 48  # shift in bits, a whole number of bytes
_MAX_FINE = 7


class Rounder(wiring.Component):
    """Shift a product, saturate its integer part and round it.

    The value is ``product * 2**-(15 + 8 * coarse + fine)``, and the result ``integer + up``.

    In ``float32`` it is what numpy's ``rint`` makes of the value rounded to float32. In ``fixed``
    the value is rounded to nearest, ties away from zero.

    Takes and gives one value per cycle, ``latency`` cycles apart, without a handshake.

    Parameters
    ----------
    modes : tuple of str
        Modes that are built, ``"float32"``, ``"fixed"`` or both.

    Attributes
    ----------
    latency : int
        Cycles from the inputs to the outputs.

    Members
    -------
    product : In(signed(63))
        In ``fixed`` bits 0 to 21 are 0.
    fixed : In(1)
        Mode of this value. Ignored if only one is built.
    coarse : In(3)
        0 to 5; 6 in ``float32`` only.
    fine : In(3)
        0 to 7, and 0 in ``float32``. In ``fixed`` it is 7 where coarse is 0.
    integer : Out(signed(9))
        Rounded down; -256 or 255 if it is beyond. With any zero point these saturate.
    up : Out(1)
        It is to be incremented. Has no meaning if the integer was beyond.

    Notes
    -----
    A float32 product is rounded twice: it has 24 significant bits, and only then is it rounded to
    an integer. That matters only close to n + 1/2: with L = floor(log2(n)), or -1 for n = 0, half
    a unit in the last place is 2**(L - 24), and a fraction no further than that from 1/2 becomes a
    tie. A tie goes to the even integer.

    Everything is two's complement. Rounding half to even is symmetric about zero, and near a tie
    the magnitude of a negative value has the integer part ``~n``, so that no negation is needed.
    A tie that goes away from zero is incremented where the value is positive.
    """

    latency = len(_STAGES)

    def __init__(self, *, modes: tuple[str, ...]):
        self._modes = modes
        # Bits above the window that a shift by single bits can bring into it.
        self._spare = _MAX_FINE if "fixed" in modes else 0
        super().__init__(
            {
                "product": In(signed(_PRODUCT)),
                "fixed": In(1),
                "coarse": In(3),
                "fine": In(3),
                "integer": Out(signed(_INTEGER)),
                "up": Out(1),
            }
        )

    def elaborate(self, platform):
        """Chain the stages."""
        m = Module()
        medium = self._medium(m, self._coarse(m))
        fine = self._fine(m, medium)
        ups = []
        if "fixed" in self._modes:
            ups.append(self._fixed_up(m, medium, fine))
        if "float32" in self._modes:
            ups.append(self._float32_up(m, medium, fine))

        # Zero points bring neither 255 nor -256 back between the bounds, incremented or not.
        saturated = Cat((~fine["sign"]).replicate(_INTEGER - 1), fine["sign"])
        integer = Mux(fine["beyond"], saturated, fine["integer"])
        up = Mux(fine["fixed"], ups[0], ups[-1])
        rounded = self._stage(m, "round", {}, {"integer": integer, "up": up})
        m.d.comb += [self.integer.eq(rounded["integer"]), self.up.eq(rounded["up"])]
        return m

    def _stage(self, m, stage, before, values):
        """Register what the stage before passes on, and new values."""
        registers = {}
        for name, value in {**before, **values}.items():
            value = Value.cast(value)
            registers[name] = value
            # The mode is a constant if only one is built; as a register it would cost logic.
            if not isinstance(value, Const):
                registers[name] = Signal.like(value, name=f"{stage}_{name}", reset_less=True)
                m.d.sync += registers[name].eq(value)
        return registers

    def _coarse(self, m):
        """Shift by 32 and 16, and sum up bytes: which are cut off is not known before the next."""
        # With the fraction's bits below the unit that is not shifted.
        wide = Cat(C(0, _FRACTION - _UNSHIFTED), self.product).as_signed()
        sign = wide[-1]
        by_32 = Mux(self.coarse[2], wide >> 32, wide)
        by_16 = Mux(self.coarse[1], by_32 >> 16, by_32)
        # The last 8 bits of the longest shift do not count: every value with it is below 1/2.
        tops = [wide[at : at + 8] for at in range(_WINDOW - 1, len(wide), 8)]
        bottoms = [wide[at : at + 8] for at in range(0, _LONGEST - 8, 8)]
        passed = {
            "fixed": self.fixed if len(self._modes) > 1 else C("fixed" in self._modes, 1),
            "fine": self.fine if self._spare else C(0, 3),
            "sign": sign,
        }
        values = {
            "shift": self.coarse,
            "window": by_16[: _WINDOW + self._spare + 8],
            "tops": Cat(top != sign.replicate(len(top)) for top in tops),
            "bottoms": Cat(bottom.any() for bottom in bottoms),
        }
        return self._stage(m, "coarse", passed, values)

    def _medium(self, m, coarse):
        """Shift by 8, until bit 0 of the window has the weight 2**-25 (or 2**(fine - 25))."""
        shift, window = coarse["shift"], coarse["window"]
        # The lowest byte beyond the window is left to the next stage if that shifts further.
        tops = Cat(
            top & (shift < i if self._spare else shift <= i) for i, top in enumerate(coarse["tops"])
        )
        bottoms = Cat(bottom & (shift > i) for i, bottom in enumerate(coarse["bottoms"]))
        passed = {name: coarse[name] for name in ("fixed", "fine", "sign")}
        values = {
            "window": Mux(shift[0], window >> 8, window)[: len(window) - 8],
            "beyond": tops.any(),
            "lost": bottoms.any(),
        }
        return self._stage(m, "medium", passed, values)

    def _fine(self, m, medium):
        """Shift what is at or above 1/2 by single bits; what is below is looked at in its place."""
        shift, sign = medium["fine"], medium["sign"]
        beyond = medium["beyond"]
        upper = medium["window"][_FRACTION - 1 :]
        if self._spare:
            tops = Cat((bit ^ sign) & (shift <= i) for i, bit in enumerate(upper[_INTEGER:]))
            beyond = beyond | tops.any()
            upper = (upper >> shift)[: 1 + _INTEGER]
        values = {"half": upper[0], "integer": upper[1:].as_signed(), "beyond": beyond}
        passed = {name: medium[name] for name in ("fixed", "sign")}
        return self._stage(m, "fine", passed, values)

    def _fixed_up(self, m, medium, fine):
        """Return whether ``fixed`` increments, in the stage ``round``."""
        window, shift = medium["window"], medium["fine"]
        half = _FRACTION - 1  # bit of 1/2, if not shifted
        more = Cat(window[half + i] & (shift > i) for i in range(_MAX_FINE))
        rest = self._stage(m, "fine", {}, {"rest": Cat(window[:half], more, medium["lost"]).any()})
        return fine["half"] & (~fine["sign"] | rest["rest"])

    def _float32_up(self, m, medium, fine):
        """Return whether ``float32`` increments, in the stage ``round``."""
        # The fraction is the bit of 1/2, 15 bits that no tie reaches into, and 9 fringe bits.
        window = medium["window"][:_WINDOW]
        fringe, middle, integer = window[:9], window[9 : _FRACTION - 1], window[_FRACTION:]
        magnitude = integer[:-1] ^ integer[-1].replicate(_INTEGER - 1)
        # Bit i, for 2**(i - 25): within the distance 2**(L - 24) from 1/2, i <= L + 1.
        inside = Cat(C(1, 1), (magnitude[i:].any() for i in range(_INTEGER - 1)))
        values = {"any": middle.any(), "all": middle.all(), "fringe": fringe, "inside": inside}
        near = self._stage(m, "fine", {"lost": medium["lost"]}, values)

        # The limit itself is the highest bit inside; from there upwards count the outer bits.
        fringe, inside, half = near["fringe"], near["inside"], fine["half"]
        outer = ~(inside >> 1)
        reached = (fringe & outer).any()
        passed = (fringe & ~inside).any() | (reached & ((fringe & ~outer).any() | near["lost"]))
        above = half & (near["any"] | passed)  # fraction > 1/2 + limit
        not_below = half | (near["all"] & (fringe | ~outer).all())  # fraction >= 1/2 - limit
        return Mux(fine["integer"][0], not_below, above)
