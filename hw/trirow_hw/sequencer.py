"""Fetch the chain of descriptors and hand each unit its part of every pass."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from . import descriptor
from .config import CONSTANT_GROUPS, MAX_KERNEL, MAX_STRIDE, Config
from .descriptor import CHECK, DESCRIPTOR_BYTES, Descriptor
from .feature_reader import FeatureRows
from .output_writer import OutputSpans
from .post_process import PostPass
from .queue import Queue
from .read_port import ReadRequest
from .tap_issuer import IssuePass
from .weight_reader import WeightChunk
from .window import WindowPass

__all__ = ["Sequencer"]

#: Ports to the units, and what each is told of a pass.
_PARTS = {
    "features": FeatureRows,
    "weights": WeightChunk,
    "window": WindowPass,
    "issue": IssuePass,
    "post": PostPass,
    "output": OutputSpans,
}

#: Passes that each unit can be told of in advance.
PASS_QUEUE = 2


class Sequencer(wiring.Component):
    """Runs ahead of the units by the depth of their queues, so that they never wait for it.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        Strobe: begin with the descriptor at ``first``.
    first : In(32)
        A multiple of ``DESCRIPTOR_BYTES``, so that a descriptor never crosses 4 KB.
    request : Out(stream.Signature(ReadRequest)), answer : In(stream.Signature(8 * bus_bytes))
        To and from the read port.
    features, weights, window, issue, post, output : Out(stream.Signature(...))
        Parts of the passes for the units.
    passes : Out(16)
        Passes handed out since the start.
    finished : Out(1)
        The last one has been.
    bad : Out(1)
        The descriptor of pass ``passes`` is bad. The sequencer stops.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "first": In(32),
                "request": Out(stream.Signature(ReadRequest)),
                "answer": In(stream.Signature(8 * config.bus_bytes)),
                **{name: Out(stream.Signature(shape)) for name, shape in _PARTS.items()},
                "passes": Out(16),
                "finished": Out(1),
                "bad": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat_bits = 8 * self._config.bus_bytes
        beats = max(1, 8 * DESCRIPTOR_BYTES // beat_bits)
        raw = Signal(8 * DESCRIPTOR_BYTES, reset_less=True)
        check = Signal(16)
        beats_left = Signal(range(beats + 1))
        address = Signal(32)
        fields = Signal(Descriptor)
        m.d.comb += [
            fields.eq(raw),
            self.request.payload.address.eq(address),
            self.request.payload.beats.eq(beats),
            self.request.payload.index.eq(self.passes),
            self.request.payload.urgent.eq(1),
        ]
        queues = self._elaborate_parts(m, fields)
        bad = Signal()
        m.d.comb += bad.eq(self._bad_field(m, fields) | (check != CHECK))

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += address.eq(self.first)
                with m.If(self.start):
                    m.next = "REQUEST"
                    with m.If(self.first % DESCRIPTOR_BYTES != 0):
                        m.next = "BAD"

            with m.State("REQUEST"):
                m.d.comb += self.request.valid.eq(1)
                m.d.sync += [check.eq(0), beats_left.eq(beats)]
                with m.If(self.request.ready):
                    m.next = "COLLECT"

            with m.State("COLLECT"):
                m.d.comb += self.answer.ready.eq(1)
                with m.If(self.answer.valid):
                    folded = check
                    for low in range(0, beat_bits, 16):
                        folded = folded ^ self.answer.payload[low : low + 16]
                    m.d.sync += [
                        raw.eq(Cat(raw, self.answer.payload)[beat_bits:]),
                        check.eq(folded),
                        beats_left.eq(beats_left - 1),
                    ]
                    with m.If(beats_left == 1):
                        m.next = "CHECK"

            with m.State("CHECK"):
                m.next = "VERDICT"

            with m.State("VERDICT"):
                m.next = "HAND OUT"
                with m.If(bad):
                    m.next = "BAD"

            with m.State("HAND OUT"):
                ready = Cat(queue.i.ready for queue in queues).all()
                with m.If(ready):
                    for queue in queues:
                        m.d.comb += queue.i.valid.eq(1)
                    m.d.sync += [self.passes.eq(self.passes + 1), address.eq(fields.next)]
                    m.next = "REQUEST"
                    with m.If(fields.last):
                        m.next = "FINISHED"

            with m.State("FINISHED"):
                m.d.comb += self.finished.eq(1)

            with m.State("BAD"):
                m.d.comb += self.bad.eq(1)
        return m

    def _elaborate_parts(self, m, fields):
        """Fill each unit's part from the fields of the same name; return the queues."""
        special = {
            "features.spans.address": fields.in_address,
            "features.spans.total": fields.in_bytes,
            "features.spans.first": fields.in_first,
            "features.spans.span": fields.in_span,
            "features.spans.gap": fields.in_gap,
            "weights.address": fields.weight_address,
            "weights.bytes": fields.weight_bytes,
            "output.spans.address": fields.out_address,
            "output.spans.total": fields.out_bytes,
            "output.spans.first": fields.out_span,
            "output.spans.span": fields.out_span,
            "output.spans.gap": fields.out_gap,
        }

        def fill(view, shape, path):
            for name, member in shape:
                where = f"{path}.{name}"
                if hasattr(member.shape, "members"):
                    fill(view[name], member.shape, where)
                elif name == "index":
                    m.d.comb += view[name].eq(self.passes)
                else:
                    value = special[where] if where in special else fields[name]
                    m.d.comb += view[name].eq(value)

        queues = []
        for name, shape in _PARTS.items():
            m.submodules[f"{name}_queue"] = queue = Queue(shape, depth=PASS_QUEUE)
            fill(queue.i.payload, shape, name)
            wiring.connect(m, queue.o, wiring.flipped(getattr(self, name)))
            queues.append(queue)
        return queues

    def _bad_field(self, m, fields):
        """Return whether any field is out of the range that the units can bear."""
        config = self._config
        depth = config.line_bank_words
        ranges = {
            "version": (descriptor.VERSION, descriptor.VERSION),
            "op": (descriptor.OP_CONVOLUTION, descriptor.OP_CONVOLUTION),
            "last": (0, 1),
            "wait": (0, 1),
            "kernel_rows": (1, MAX_KERNEL),
            "stride_rows": (1, MAX_STRIDE),
            "row_pitch": (0, depth - 1),
            "row_tail": (1, config.in_lanes),
            "first_wrapped": (0, depth - 1),
            "first_byte": (0, config.in_lanes - 1),
            "step_byte": (0, config.in_lanes - 1),
            "step_wrapped": (0, depth - 1),
            "run_tail": (1, config.in_lanes),
            "last_lanes": (1, config.out_lanes),
            "group_words": (1, config.weight_words),
            "groups": (1, CONSTANT_GROUPS),
        }
        not_zero = [
            "in_bytes",
            "in_first",
            "in_span",
            "rows",
            "row_words",
            "row_bytes",
            "out_rows",
            "out_columns",
            "run_words",
            "weight_bytes",
            "group_bytes",
            "out_bytes",
            "out_span",
        ]
        bad = [(fields[name] < low) | (fields[name] > high) for name, (low, high) in ranges.items()]
        bad += [fields[name] == 0 for name in not_zero]
        misaligned = fields.next % DESCRIPTOR_BYTES
        flags = Signal(len(bad) + 1)
        m.d.sync += flags.eq(Cat(*bad, misaligned != 0))
        return flags.any()
