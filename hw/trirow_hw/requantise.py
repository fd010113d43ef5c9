"""Requantisation of int32 sums to int8, bit for bit as the frameworks compute it."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import REQUANTISE_MODES
from .rounding import Rounder

__all__ = ["Requantiser"]

# One register stage each, in order; every register is named after its stage.
_STAGES = (
    "add",  # accumulator plus bias
    "span",  # how far the sum exceeds 24 significant bits; which scale it gets
    "snap",  # the sum as a float32 would hold it, and the scale's mantissa
    "factor",  # both once more, in the registers that the multipliers have
    "mul",  # four partial products
    "cross",  # sum of the middle two
    "join",  # the whole product
    *("coarse", "medium", "fine", "round"),  # see `Rounder`
    "offset",  # zero point added
    "clip",  # result
)

_SIGNIFICANT = 24  # bits of a float32
_FIRST_EXPONENT = 8  # whatever has a lower one saturates as with this one
# Places of the fields in the words of constants.
_MANTISSA, _MORE_MANTISSA = slice(0, 24), slice(24, 31)
_EXPONENT, _NEGATIVE = slice(24, 30), 31
_LEFT, _RIGHT = slice(0, 4), slice(8, 13)
_NO_LEFT = 15  # with it the product passes as it is: no half is added, no bit cleared

# Bits of the two operands that go to the lower multipliers. A multiplier takes 18 bits, but of an
# unsigned operand only 17 where the other is signed, as the upper part of the sum is.
_SUM_SPLIT = 18
_SCALE_SPLIT = 17


def _register(name, shape):
    return Signal(shape, name=name, reset_less=True)


class Requantiser(wiring.Component):
    """One lane of requantisation, in one or both of two modes.

    With ``s = acc + bias``, mode ``float32`` computes
    ``clip(rint(float32(s) * float32(m)) + zero_point, low, high)`` exactly as numpy's float32
    does, in integers. ``m = mantissa * 2**-exponent``, negative if the bit ``negative`` is set.

    Mode ``fixed`` computes, in integers that do not overflow,
    ``x = (s * mantissa + 2**(30 - left)) >> (31 - left)``, divides x by ``2**right``, rounding to
    nearest and ties away from zero, adds ``zero_point`` and clips. It is gemmlowp's
    ``SaturatingRoundingDoublingHighMul`` and ``RoundingDivideByPOT``, as TensorFlow Lite has them.

    Takes and gives one value per cycle, ``latency`` cycles apart. There is neither a handshake nor
    back-pressure: whoever feeds the lane delays its own valid by ``latency`` and keeps room for
    what is under way. The first registers lie behind a 32-bit adder, so inputs from a memory want
    a register of their own. Uses four 18x18 multipliers.

    Parameters
    ----------
    modes : tuple of str
        Modes that are built, ``"float32"``, ``"fixed"`` or both. One that is left out costs no
        logic.

    Raises
    ------
    ValueError
        If there is no mode, or one that is not known, or one twice.

    Attributes
    ----------
    latency : int
        Cycles from the inputs to the output, whichever modes are built.

    Members
    -------
    acc : In(signed(32))
        Accumulator.
    bias : In(signed(32))
        Added to the accumulator; the sum must fit int32.
    scale, second : In(32)
        Constants. In ``float32`` two scales: mantissa in bits 0-23, exponent in 24-29, negative in
        31. A mantissa may have any value; where the exponent is below 8 it is zero or at least
        2**23. Exponents are 0 to 56; below 8, every product but zero saturates, so that 0 does for
        all m too large for the encoding.
        In ``fixed`` one: bits 0-30 of ``scale`` are the mantissa, of any value; ``second`` has
        left in bits 0-3, 0 to 9, and right in bits 8-12, 0 to 31.
    fixed : In(1)
        Mode of this value. Ignored if only one is built.
    prelu : In(1)
        ``second`` is the scale where the sum is negative. Ignored in ``fixed``.
    zero_point : In(signed(8))
        Added after rounding.
    low, high : In(signed(8))
        Bounds of the result, both included; ``low <= high``.
    total : Out(signed(32))
        Accumulator plus bias of the cycle before.
    o : Out(signed(8))
        Result of the inputs of ``latency`` cycles ago.

    Notes
    -----
    The multipliers have 7 bits to spare beside a mantissa of 24 bits. In ``float32`` it is
    shifted left by 7 less the lowest three bits of the exponent, and the product then needs shifts
    by whole bytes only. The mantissa of ``fixed`` has 31 bits, so there the product is shifted by
    single bits too, at its end, where few bits are left.
    """

    latency = len(_STAGES)

    def __init__(self, *, modes: tuple[str, ...] = REQUANTISE_MODES):
        if not modes or sorted(modes) != sorted(set(modes) & set(REQUANTISE_MODES)):
            raise ValueError(f"modes must be some of {', '.join(REQUANTISE_MODES)}, not {modes!r}")
        self._modes = modes
        super().__init__(
            {
                "acc": In(signed(32)),
                "bias": In(signed(32)),
                "scale": In(32),
                "second": In(32),
                "fixed": In(1),
                "prelu": In(1),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "total": Out(signed(32)),
                "o": Out(signed(8)),
            }
        )

    def elaborate(self, platform):
        """Chain the parts of the pipeline."""
        m = Module()
        m.submodules.rounder = rounder = Rounder(modes=self._modes)
        add_sum = _register("add_sum", signed(32))
        m.d.sync += add_sum.eq(self.acc + self.bias)

        add = self._inputs(m)
        span_word, shifts = self._constants(m, add, add_sum[-1])
        side = self._side(m, shifts)
        operand = self._operand(m, add_sum, self._is_fixed(add))
        scale = self._scale(m, span_word, side)
        # The way to the multipliers, which have columns of their own in a device, takes a cycle.
        factors = _register("factor_a", signed(33)), _register("factor_scale", 31)
        m.d.sync += [factors[0].eq(operand), factors[1].eq(scale)]
        m.d.comb += [
            self.total.eq(add_sum),
            rounder.product.eq(self._multiply(m, *factors, side)),
            rounder.fixed.eq(self._is_fixed(side["join"])),
            rounder.coarse.eq(side["join"].coarse),
            self.o.eq(self._clip(m, rounder.integer, rounder.up, side)),
        ]
        if "fixed" in self._modes:
            m.d.comb += rounder.fine.eq(side["join"].fine)
        return m

    def _is_fixed(self, values):
        """Mode of a stage, which is a constant where only one is built."""
        return values.fixed if len(self._modes) > 1 else C("fixed" in self._modes, 1)

    def _inputs(self, m):
        """Register the inputs besides the sum in the stage ``add``."""
        names = ("scale", "second", "fixed", "prelu", "zero_point", "low", "high")
        layout = {name: self.signature.members[name].shape for name in names}
        add = _register("add", data.StructLayout(layout))
        m.d.sync += [add[name].eq(getattr(self, name)) for name in names if name != "prelu"]
        m.d.sync += add.prelu.eq(self.prelu & ~self._is_fixed(self))
        return add

    def _constants(self, m, add, negative_sum):
        """Choose the word of the scale and take the constants apart.

        Returns the word, a register of the stage ``span``, and what ``_side`` registers then.
        """
        fixed = self._is_fixed(add)
        word = Mux(add.prelu & negative_sum, add.second, add.scale)
        span_word = _register("span_word", 32)
        m.d.sync += span_word.eq(word if "float32" in self._modes else add.scale)

        eighths = word[_EXPONENT][3:]
        # Below the first exponent it is taken for one that is 8 larger: both saturate.
        coarse = Mux(eighths == 0, 0, eighths - _FIRST_EXPONENT // 8)
        # The unit of the product is its bit 31 - left + right, and without a shift bit 15.
        right = (31 - 15) - add.second[_LEFT] + add.second[_RIGHT]
        return span_word, {
            "negative": word[_NEGATIVE] & ~fixed,
            "left": Mux(fixed, add.second[_LEFT], _NO_LEFT),
            "coarse": Mux(fixed, right[3:6], coarse),
            "fine": Mux(fixed, right[:3], 0),
            "fixed": fixed,
            "zero_point": add.zero_point,
            "low": add.low,
            "high": add.high,
        }

    def _side(self, m, first):
        """Carry what later stages need alongside; returns the copy in each stage from span on."""
        layout = {"coarse": 3, "zero_point": signed(8), "low": signed(8), "high": signed(8)}
        # A register of what the other mode alone needs would not be removed: it has a reset value.
        if "fixed" in self._modes:
            layout |= {"left": 4, "fine": 3}
        if "float32" in self._modes:
            layout["negative"] = 1
        if len(self._modes) > 1:
            layout["fixed"] = 1
        side = {}
        for stage in _STAGES[1:]:
            side[stage] = _register(f"{stage}_side", data.StructLayout(layout))
            m.d.sync += [side[stage][name].eq(first[name]) for name in layout]
            first = side[stage]
        return side

    def _operand(self, m, add_sum, fixed):
        """Sum of accumulator and bias; in ``float32`` rounded to 24 significant bits in place."""
        span_sum = _register("span_sum", signed(32))
        snap_a = _register("snap_a", signed(33))
        m.d.sync += span_sum.eq(add_sum)
        if "float32" not in self._modes:
            m.d.sync += snap_a.eq(span_sum)
            return snap_a

        # Bit i: at least i + 1 bits are too many.
        magnitude = add_sum ^ add_sum[-1].replicate(32)
        excess = Cat(magnitude[i:31].any() for i in range(_SIGNIFICANT, 31))
        span_excess = _register("span_excess", len(excess))
        span_odd = _register("span_odd", 1)
        m.d.sync += [
            span_excess.eq(excess & (~fixed).replicate(len(excess))),
            # The last bit that stays, of those sums that lose any.
            span_odd.eq((add_sum[1:8] & excess & ~(excess >> 1)).any() & ~fixed),
        ]

        # Half to even: half a unit, less one if the last bit is even. The lowest bit makes span_odd
        # a carry.
        half = Cat(span_odd, span_excess[1:])
        rounded = (Cat(C(1, 1), span_sum).as_signed() + half)[1:]
        below = len(excess)
        m.d.sync += snap_a.eq(Cat(rounded[:below] & ~span_excess, rounded[below:]))
        return snap_a

    def _scale(self, m, word, side):
        """Mantissa as the multipliers get it."""
        snap_scale = _register("snap_scale", 31)
        fixed = self._is_fixed(side["span"])
        scale = Cat(word[_MANTISSA], word[_MORE_MANTISSA] & fixed.replicate(7))
        for bit in range(3):
            shifted = (scale << (1 << bit))[: len(scale)]
            scale = Mux(word[_EXPONENT][bit] | fixed, scale, shifted)
        m.d.sync += snap_scale.eq(scale)
        return snap_scale

    def _multiply(self, m, a, scale, side):
        """Product of 33 signed and 31 unsigned bits from four 18x18 multipliers.

        In ``fixed`` with half of ``2**(31 - left)`` added, and the bits below cleared.
        """
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
        outer = Cat(mul["low_low"], mul["high_high"])
        middle = mul["low_high"] + (mul["high_low"] << (_SUM_SPLIT - _SCALE_SPLIT))
        keep = C(-1, 63)
        if "fixed" in self._modes:
            left = side["mul"].left
            outer = Cat(outer[:21], outer[21:] + Cat(left == 9 - i for i in range(10)))
            left, passes = side["cross"].left, ~self._is_fixed(side["cross"])
            clear = Cat(passes.replicate(22), (left >= 9 - i for i in range(9)))
            keep = Cat(clear, C(-1, 63 - len(clear)))
        cross_outer = _register("cross_outer", signed(64))
        cross_middle = _register("cross_middle", middle.shape())
        m.d.sync += [cross_outer.eq(outer), cross_middle.eq(middle)]

        join_product = _register("join_product", signed(63))
        upper = cross_outer[_SCALE_SPLIT:].as_signed() + cross_middle
        m.d.sync += join_product.eq(Cat(cross_outer[:_SCALE_SPLIT], upper)[:63] & keep)
        return join_product

    def _clip(self, m, integer, up, side):
        """Add the increment, negate, add the zero point, and clip."""
        # Rounding is symmetric about zero in float32, so a negative scale negates the result:
        # -(integer + up) = ~integer + (1 - up). The lowest bit makes the increment a carry.
        negative = side["round"].negative if "float32" in self._modes else C(0, 1)
        result = Cat(C(1, 1), integer.as_unsigned() ^ negative.replicate(len(integer))).as_signed()
        zero_point = Cat(up ^ negative, side["round"].zero_point).as_signed()
        offset_total = _register("offset_total", signed(len(integer) + 1))
        m.d.sync += offset_total.eq((result + zero_point)[1:])

        low, high = side["offset"].low, side["offset"].high
        clip = _register("clip", signed(8))
        m.d.sync += clip.eq(
            Mux(offset_total > high, high, Mux(offset_total < low, low, offset_total))
        )
        return clip
