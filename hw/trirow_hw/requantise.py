"""Requantisation of int32 accumulators to int8, bit for bit as in float32 arithmetic."""

import itertools

from amaranth import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Requantiser"]

# One register stage each, in order; every register is named after its stage.
_STAGES = (
    "add",  # accumulator plus bias
    "span",  # how far the sum exceeds 24 significant bits
    "snap",  # the sum as a float32 would hold it
    "mul",  # four partial products
    "cross",  # sum of the middle two
    "join",  # the whole product
    "coarse",  # product shifted by multiples of 16 bits
    "fine",  # integer and fraction in their places
    "round",  # is the integer incremented?
    "total",  # zero point added
    "clip",  # result
)

_SIGNIFICANT = 24  # bits of a float32
_INTEGER = 9  # signed integer part: beyond it every zero point saturates
_FRACTION = 25  # fraction bits down to half a unit in the last place of a float32 near 1/2
_WINDOW = _INTEGER + _FRACTION
_FIRST_EXPONENT = 8  # whatever has a lower one saturates as with this one
_MAX_EXPONENT = 56

# Bits of the two operands that go to the lower multipliers. A multiplier takes 18 bits, but of an
# unsigned operand only 17 where the other is signed, as the upper part of the sum is.
_SUM_SPLIT = 18
_SCALE_SPLIT = 17

_SIDE = data.StructLayout(
    {"fine": 3, "coarse": 3, "zero_point": signed(8), "low": signed(8), "high": signed(8)}
)


def _register(name, shape):
    return Signal(shape, name=name, reset_less=True)


class Requantiser(wiring.Component):
    """One lane of requantisation, mode ``float32``.

    Computes ``clip(rint(float32(acc + bias) * float32(m)) + zero_point, low, high)`` with
    ``m = mantissa * 2**-exponent`` exactly as numpy's float32 does, in integers.

    Takes and gives one value per cycle, ``latency`` cycles apart. There is neither a handshake nor
    back-pressure: whoever feeds the lane delays its own valid by ``latency`` and keeps room for
    what is under way. The first registers lie behind a 32-bit adder and a multiplexer, so inputs
    from a memory want a register of their own. Uses four 18x18 multipliers.

    Attributes
    ----------
    latency : int
        Cycles from the inputs to the output.

    Members
    -------
    acc : In(signed(32))
        Accumulator.
    bias : In(signed(32))
        Added to the accumulator; the sum must fit int32.
    mantissa : In(24)
        Any value; where the exponent is below 8, zero or at least 2**23.
    exponent : In(6)
        0 to 56. Below 8, every product but zero saturates, so that 0 does for all m too large
        for the encoding.
    zero_point : In(signed(8))
        Added after rounding.
    low, high : In(signed(8))
        Bounds of the result, both included; ``low <= high``.
    o : Out(signed(8))
        Result of the inputs of ``latency`` cycles ago.

    Notes
    -----
    A float32 product is rounded twice: each operand and the product have 24 significant bits, and
    only then is it rounded to an integer. The first concerns sums beyond 2**24. The second matters
    only close to n + 1/2: with L = floor(log2(n)), or -1 for n = 0, half a unit in the last place
    is 2**(L - 24), and a fraction no further than that from 1/2 becomes a tie. A tie goes to the
    even integer.

    Everything is two's complement. Rounding half to even is symmetric about zero, and near a tie
    the magnitude of a negative value has the integer part ``~n``, so that no negation is needed.
    """

    latency = len(_STAGES)

    def __init__(self):
        super().__init__(
            {
                "acc": In(signed(32)),
                "bias": In(signed(32)),
                "mantissa": In(24),
                "exponent": In(6),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "o": Out(signed(8)),
            }
        )

    def elaborate(self, platform):
        """Chain the parts of the pipeline."""
        m = Module()
        side = self._side(m)
        product = self._multiply(m, self._operand(m), self._scale(m, side))
        window, beyond, lost, sign = self._align(m, product, side)
        integer, up = self._round(m, window, beyond, lost, sign)
        m.d.comb += self.o.eq(self._clip(m, integer, up, side))
        return m

    def _side(self, m):
        """Carry what later stages need alongside; returns the copy in each stage."""
        side = {stage: _register(f"{stage}_side", _SIDE) for stage in _STAGES}
        eighths = self.exponent[3:]
        m.d.sync += [
            side["add"].fine.eq(self.exponent[:3]),
            # Below the first exponent it is taken for one that is 8 larger: both saturate.
            side["add"].coarse.eq(Mux(eighths == 0, 0, eighths - _FIRST_EXPONENT // 8)),
            side["add"].zero_point.eq(self.zero_point),
            side["add"].low.eq(self.low),
            side["add"].high.eq(self.high),
        ]
        for before, stage in itertools.pairwise(_STAGES):
            m.d.sync += side[stage].eq(side[before])
        return side

    def _operand(self, m):
        """Sum of accumulator and bias, rounded half to even to 24 significant bits in place."""
        add_sum = _register("add_sum", signed(32))
        m.d.sync += add_sum.eq(self.acc + self.bias)

        # Bit i: at least i + 1 bits are too many.
        magnitude = add_sum ^ add_sum[-1].replicate(32)
        excess = Cat(magnitude[i:31].any() for i in range(_SIGNIFICANT, 31))
        span_sum = _register("span_sum", signed(32))
        span_excess = _register("span_excess", len(excess))
        span_odd = _register("span_odd", 1)
        m.d.sync += [
            span_sum.eq(add_sum),
            span_excess.eq(excess),
            # The last bit that stays, of those sums that lose any.
            span_odd.eq((add_sum[1:8] & excess & ~(excess >> 1)).any()),
        ]

        # Half a unit, less one if the last bit is even. The lowest bit makes span_odd a carry.
        half = Cat(span_odd, span_excess[1:])
        rounded = (Cat(C(1, 1), span_sum).as_signed() + half)[1:]
        below = len(excess)
        snap_a = _register("snap_a", signed(33))
        m.d.sync += snap_a.eq(Cat(rounded[:below] & ~span_excess, rounded[below:]))
        return snap_a

    def _scale(self, m, side):
        """Mantissa, shifted left by 7 less the lowest three bits of the exponent.

        The multipliers have room for it, and the product then needs shifts by whole bytes only.
        """
        add_scale = _register("add_scale", 28)
        span_scale = _register("span_scale", 30)
        snap_scale = _register("snap_scale", 31)
        m.d.sync += [
            add_scale.eq(Mux(self.exponent[2], self.mantissa, self.mantissa << 4)),
            span_scale.eq(Mux(side["add"].fine[1], add_scale, add_scale << 2)),
            snap_scale.eq(Mux(side["span"].fine[0], span_scale, span_scale << 1)),
        ]
        return snap_scale

    def _multiply(self, m, a, scale):
        """Product of 33 signed and 31 unsigned bits from four 18x18 multipliers."""
        a_low, a_high = a[:_SUM_SPLIT], a[_SUM_SPLIT:].as_signed()
        scale_low, scale_high = scale[:_SCALE_SPLIT], scale[_SCALE_SPLIT:]
        products = {
            "low_low": a_low * scale_low,
            "low_high": a_low * scale_high,
            "high_low": a_high * scale_low,
            "high_high": a_high * scale_high,
        }
        mul = {}
        for name, product in products.items():
            mul[name] = _register(f"mul_{name}", product.shape())
            m.d.sync += mul[name].eq(product)

        # The outer two do not overlap: they are added by writing one beside the other.
        middle = mul["low_high"] + (mul["high_low"] << (_SUM_SPLIT - _SCALE_SPLIT))
        cross_outer = _register("cross_outer", signed(64))
        cross_middle = _register("cross_middle", middle.shape())
        m.d.sync += [
            cross_outer.eq(Cat(mul["low_low"], mul["high_high"])),
            cross_middle.eq(middle),
        ]

        join_product = _register("join_product", signed(63))
        upper = cross_outer[_SCALE_SPLIT:].as_signed() + cross_middle
        m.d.sync += join_product.eq(Cat(cross_outer[:_SCALE_SPLIT], upper))
        return join_product

    def _align(self, m, product, side):
        """Shift the product right until bit 0 of the window has the weight 2**-25.

        Returns the window, whether the product exceeds it above, whether bits that are set lie
        below it, and the sign.
        """
        # The product has its unit at bit e + 7 - e % 8. With the first exponents, which are not
        # shifted at all, that is 15, and must become 25.
        wide = Cat(C(0, _FRACTION - (_FIRST_EXPONENT + 7)), product).as_signed()
        sign = wide[-1]
        shift = side["join"].coarse
        by_4 = Mux(shift[2], wide >> 32, wide)
        by_2 = Mux(shift[1], by_4 >> 16, by_4)
        # Byte by byte what may be cut off; which bytes are depends on the shift. The last 8 bits of
        # the longest shift do not count: with the largest exponent every rounded product is 0.
        tops = [wide[at : at + 8] for at in range(_WINDOW - 1, len(wide), 8)]
        bottoms = [wide[at : at + 8] for at in range(0, _MAX_EXPONENT - _FIRST_EXPONENT - 8, 8)]

        coarse_window = _register("coarse_window", _WINDOW + 8)
        coarse_tops = _register("coarse_tops", len(tops))
        coarse_bottoms = _register("coarse_bottoms", len(bottoms))
        coarse_sign = _register("coarse_sign", 1)
        m.d.sync += [
            coarse_window.eq(by_2),
            coarse_tops.eq(Cat(top != sign.replicate(len(top)) for top in tops)),
            coarse_bottoms.eq(Cat(bottom.any() for bottom in bottoms)),
            coarse_sign.eq(sign),
        ]

        shift = side["coarse"].coarse
        window = Mux(shift[0], coarse_window >> 8, coarse_window)[:_WINDOW]
        beyond = Cat(coarse_tops[i] & (shift <= i) for i in range(len(tops))).any()
        lost = Cat(coarse_bottoms[i] & (shift > i) for i in range(len(bottoms))).any()
        return window, beyond, lost, coarse_sign

    def _round(self, m, window, beyond, lost, sign):
        """Saturated integer part of the window, and whether rounding increments it."""
        # The fraction is the bit of 1/2, 15 bits that no tie reaches into, and 9 fringe bits.
        fringe, middle, half = window[:9], window[9 : _FRACTION - 1], window[_FRACTION - 1]
        integer = window[_FRACTION:]
        magnitude = integer[:-1] ^ integer[-1].replicate(_INTEGER - 1)
        # Bit i, for 2**(i - 25): within the distance 2**(L - 24) from 1/2, i <= L + 1.
        inside = Cat(C(1, 1), (magnitude[i:].any() for i in range(_INTEGER - 1)))

        fine_integer = _register("fine_integer", signed(_INTEGER))
        fine_half = _register("fine_half", 1)
        fine_any = _register("fine_any", 1)
        fine_all = _register("fine_all", 1)
        fine_fringe = _register("fine_fringe", len(fringe))
        fine_inside = _register("fine_inside", len(inside))
        fine_lost = _register("fine_lost", 1)
        fine_beyond = _register("fine_beyond", 1)
        fine_sign = _register("fine_sign", 1)
        m.d.sync += [
            fine_integer.eq(integer),
            fine_half.eq(half),
            fine_any.eq(middle.any()),
            fine_all.eq(middle.all()),
            fine_fringe.eq(fringe),
            fine_inside.eq(inside),
            fine_lost.eq(lost),
            fine_beyond.eq(beyond),
            fine_sign.eq(sign),
        ]

        # The limit itself is the highest bit inside; from there upwards count the outer bits.
        outer = ~(fine_inside >> 1)
        reached = (fine_fringe & outer).any()
        passed = (fine_fringe & ~fine_inside).any() | (
            reached & ((fine_fringe & ~outer).any() | fine_lost)
        )
        above = fine_half & (fine_any | passed)  # fraction > 1/2 + limit
        not_below = fine_half | (fine_all & (fine_fringe | ~outer).all())  # >= 1/2 - limit

        # Zero points bring neither 255 nor -256 back between the bounds, incremented or not.
        saturated = Cat((~fine_sign).replicate(_INTEGER - 1), fine_sign)
        round_integer = _register("round_integer", signed(_INTEGER))
        round_up = _register("round_up", 1)
        m.d.sync += [
            round_integer.eq(Mux(fine_beyond, saturated, fine_integer)),
            round_up.eq(Mux(fine_integer[0], not_below, above)),
        ]
        return round_integer, round_up

    def _clip(self, m, integer, up, side):
        """Add the increment and the zero point, and clip."""
        # The lowest bit makes the increment a carry.
        zero_point = Cat(up, side["round"].zero_point).as_signed()
        total = _register("total", signed(_INTEGER + 1))
        m.d.sync += total.eq((Cat(C(1, 1), integer).as_signed() + zero_point)[1:])

        low, high = side["total"].low, side["total"].high
        clip = _register("clip", signed(8))
        m.d.sync += clip.eq(Mux(total > high, high, Mux(total < low, low, total)))
        return clip
