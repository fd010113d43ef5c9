"""Fetch the chain of descriptors and hand each unit its part of every pass."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from . import descriptor
from .config import (
    BANKS,
    CONSTANT_GROUPS,
    MAX_LEFT_SHIFT,
    TABLE_ENTRIES,
    TABLE_ENTRY_BYTES,
    Config,
)
from .descriptor import CHECK, DESCRIPTOR_BYTES, Descriptor
from .feature_reader import FeatureRows
from .output_writer import OutputSpans
from .post_process import PostPass
from .queue import Queue
from .read_port import ReadRequest
from .second_reader import SecondPass
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
    "second": SecondPass,
    "output": OutputSpans,
}

TABLE_BYTES = TABLE_ENTRIES * TABLE_ENTRY_BYTES

#: Passes that each unit can be told of in advance: one in the register that it reads, the others
#: in front of that.
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
    features, weights, window, issue, post, second, output : Out(stream.Signature(...))
        Parts of the passes for the units.
    passes : Out(16)
        Passes handed out since the start. One that keeps its sums on chip does not count: it has
        the index of the pass behind it.
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
        beat, beat_valid = Signal(beat_bits, reset_less=True), Signal()
        address = Signal(32)
        fields = Signal(Descriptor)
        m.d.comb += [
            fields.eq(raw),
            self.request.payload.address.eq(address),
            self.request.payload.beats.eq(beats),
            self.request.payload.index.eq(self.passes),
            self.request.payload.urgent.eq(1),
        ]
        keeps_sums = fields.partial_out[1]
        loops = Signal(3)
        queues = self._elaborate_parts(m, fields, loops)
        bad, kept, ready = Signal(), Signal(), Signal()
        m.d.comb += bad.eq(self._bad_field(m, fields, address, kept, check))
        m.d.sync += [
            ready.eq(Cat(queue.i.ready for queue, _ in queues).all()),
            beat.eq(self.answer.payload),
            beat_valid.eq(self.answer.valid & self.answer.ready),
        ]

        with m.If(beat_valid):
            folded = check
            for low in range(0, beat_bits, 16):
                folded = folded ^ beat[low : low + 16]
            m.d.sync += [
                raw.eq(Cat(raw, beat)[beat_bits:]),
                check.eq(folded),
                beats_left.eq(beats_left - 1),
            ]

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
                with m.If(beat_valid & (beats_left == 1)):
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.next = "VERDICT"

            with m.State("VERDICT"):
                m.next = "HAND OUT"
                with m.If(bad):
                    m.next = "BAD"

            with m.State("HAND OUT"):
                with m.If(ready):
                    for queue, wanted in queues:
                        m.d.comb += queue.i.valid.eq(wanted)
                    m.d.sync += [
                        self.passes.eq(self.passes + ~keeps_sums),
                        address.eq(fields.next),
                        kept.eq(fields.keep_weights),
                        loops.eq(loops + (fields.partial_in[1] & ~keeps_sums)),
                    ]
                    m.next = "REQUEST"
                    with m.If(fields.last):
                        m.next = "FINISHED"

            with m.State("FINISHED"):
                m.d.comb += self.finished.eq(1)

            with m.State("BAD"):
                m.d.comb += self.bad.eq(1)
        return m

    def _elaborate_parts(self, m, fields, loops):
        """Fill each unit's part from the fields of the same name; return the queues.

        A pass without weights of its own has no part for the weight reader, one without a second
        operand none for its reader, one that keeps its sums on chip none for the writer. ``loops``:
        see `SecondPass`.
        """
        kept_in, kept_out = fields.partial_in[1], fields.partial_out[1]
        has_second = Signal()
        m.d.sync += has_second.eq(fields.second_bytes != 0)
        special = {
            "features.spans.first": fields.in_first,
            "weights.address": fields.weight_address,
            "weights.bytes": fields.weight_bytes,
            "window.depthwise": fields.op != descriptor.OP_DENSE,
            "issue.depthwise": fields.op != descriptor.OP_DENSE,
            "issue.maximum": fields.op == descriptor.OP_MAX_POOL,
            "issue.second": has_second | kept_in,
            "issue.kept_out": kept_out,
            "post.partial_in": fields.partial_in != 0,
            "post.kept_in": kept_in,
            "post.kept_out": kept_out,
            "second.wait": fields.second_wait,
            "second.four_bytes": fields.partial_in,
            "second.loops": loops,
        }
        for part, prefix in (("features", "in"), ("second", "second"), ("output", "out")):
            spans = f"{part}.spans"
            special[f"{spans}.address"] = fields[f"{prefix}_address"]
            special[f"{spans}.total"] = fields[f"{prefix}_bytes"]
            special.setdefault(f"{spans}.first", fields[f"{prefix}_span"])
            for name in ("span", "gap", "line", "turn"):
                special[f"{spans}.{name}"] = fields[f"{prefix}_{name}"]

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

        wanted = {
            "weights": fields.load_weights,
            "second": has_second,
            "output": ~kept_out,
        }
        queues = []
        for name, shape in _PARTS.items():
            m.submodules[f"{name}_queue"] = queue = Queue(
                shape, depth=PASS_QUEUE - 1, registered=True
            )
            fill(queue.i.payload, shape, name)
            wiring.connect(m, queue.o, wiring.flipped(getattr(self, name)))
            queues.append((queue, wanted.get(name, 1)))
        return queues

    def _bad_field(self, m, fields, address, kept, check):
        """Return, a cycle later, whether a field or several of them are what no unit can bear."""
        bad = self._out_of_range(fields) + self._out_of_line(fields, address, kept)
        bad.append(check != CHECK)
        flags = Signal(len(bad))
        m.d.sync += flags.eq(Cat(bad))
        return flags.any()

    def _out_of_range(self, fields):
        """Return for each field that is bounded whether it is beyond its range."""
        config = self._config
        depth = config.line_bank_words
        flag = (0, 1)
        ranges = {
            "version": (descriptor.VERSION, descriptor.VERSION),
            "op": (descriptor.OP_DENSE, descriptor.OP_MAX_POOL),
            **dict.fromkeys(("last", "wait", "load_weights", "keep_weights", "wide"), flag),
            **dict.fromkeys(("prelu", "table", "second_wait"), flag),
            **dict.fromkeys(("partial_in", "partial_out"), (0, 2)),
            "fixed": (
                int("float32" not in config.requantise_modes),
                int("fixed" in config.requantise_modes),
            ),
            "combine": (0, 2 if "fixed" in config.requantise_modes else 0),
            "row_pitch": (0, depth - 1),
            "row_tail": (1, config.in_lanes),
            "top_bank": (0, BANKS - 1),
            "first_wrapped": (0, depth - 1),
            "first_byte": (0, config.in_lanes - 1),
            "step_byte": (0, config.in_lanes - 1),
            "step_wrapped": (0, depth - 1),
            "run_tail": (1, config.in_lanes),
            "tap_byte": (0, config.in_lanes - 1),
            "tap_words": (0, depth - 1),
            "group_lanes": (1, config.out_lanes),
            "last_lanes": (1, config.out_lanes),
            "group_words": (1, config.weight_words),
            "chunk_tail": (1, config.in_lanes),
            **({"zero_weight": (0, 0)} if config.weight_bits == 8 else {}),
            "sum_left": (0, MAX_LEFT_SHIFT),
            "sum_right": (0, 31),
            "sum_mantissa": (0, (1 << 31) - 1),
        }
        not_zero = [
            *("in_bytes", "in_first", "in_span", "in_line", "rows", "row_words"),
            *("in_columns", "out_rows", "out_columns", "kernel_rows", "kernel_columns"),
            *("stride_rows", "stride_columns", "run_words", "groups"),
            *("chunk_steps", "chunk_run", "weight_bytes", "group_bytes"),
            *("out_bytes", "out_span", "out_line"),
        ]
        bad = [(fields[name] < low) | (fields[name] > high) for name, (low, high) in ranges.items()]
        return bad + [fields[name] == 0 for name in not_zero]

    def _out_of_line(self, fields, address, kept):
        """Return for each rule that ties fields to each other whether it is broken.

        ``address``: of the descriptor. ``kept``: the pass before keeps its weights.
        """
        config = self._config
        names = ("last", "load_weights", "keep_weights", "partial_in", "table")
        last, load, keep, read_sums, table = (fields[name][0] for name in names)
        # The groups of one pixel come and go; those of several have to be there together, and so
        # have those of several passes.
        streams = (fields.out_rows == 1) & (fields.out_columns == 1) & load & ~keep
        combines = fields.combine != 0
        has_second = fields.second_bytes != 0
        tables = [fields.table_bytes == number * TABLE_BYTES for number in range(3)]
        row_bytes = fields.row_words * config.in_lanes + fields.row_tail

        def differ(columns, lanes):
            room = columns * config.post_lanes
            return (lanes > room) | (lanes + config.post_lanes <= room)

        return [
            # Upwards only, so that every chain ends.
            fields.next % DESCRIPTOR_BYTES != 0,
            ~last & (fields.next <= address),
            load == kept,
            (fields.groups > CONSTANT_GROUPS) & ~streams,
            # What is requested beyond the places of the rows would block the read channel.
            fields.row_bytes + config.in_lanes != row_bytes,
            fields.in_first > fields.in_bytes,
            fields.out_span > fields.out_bytes,
            has_second & (fields.second_span > fields.second_bytes),
            has_second & ((fields.second_span == 0) | (fields.second_line == 0)),
            has_second != (combines | read_sums),
            combines & (fields.partial_in.any() | fields.partial_out.any()),
            fields.partial_out[1] & last,
            combines & ~tables[2],
            table & tables[0],
            ~Cat(tables).any(),
            differ(fields.columns, fields.group_lanes),
            differ(fields.last_columns, fields.last_lanes),
            (fields.spacing < fields.columns) | (fields.spacing < fields.last_columns),
        ]
