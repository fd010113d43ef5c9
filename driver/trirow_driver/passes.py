"""Work out the descriptor of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from trirow_driver.operation import Operation, UnsupportedError
from trirow_driver.tiling import Pass
from trirow_driver.weights import WeightShape, chunk_bytes
from trirow_hw.config import BANKS, Config

__all__ = ["Places", "chunk_bytes", "pass_fields"]

#: Most cycles between the ends of two lane groups.
_MOST_SPACING = 255


@dataclass(frozen=True)
class Places:
    """Addresses of what a pass reads and writes.

    Parameters
    ----------
    source, target, second, partial : int
        First bytes of the blobs that the views lie in, and of the int32 sums.
    weights : int
        First byte of the chunk.
    """

    source: int
    target: int
    weights: int
    second: int = 0
    partial: int = 0


def pass_fields(
    name: str,
    step: Pass,
    config: Config,
    places: Places,
    *,
    last: bool = True,
    next_address: int = 0,
) -> dict[str, int]:
    """Return the fields of the descriptor of one pass.

    Parameters
    ----------
    name : str
        Name of the layer, for messages.
    step : Pass
    config : Config
    places : Places
    last, next_address
        Whether the chain ends, and where it goes on.

    Raises
    ------
    UnsupportedError
        If int32 sums of so many columns of lanes take longer than the hardware counts.
    """
    operation = step.operation
    fields = {
        "op": operation.op,
        "next": next_address,
        "last": int(last),
        "wait": int(step.wait),
        "load_weights": int(step.load),
        "keep_weights": int(step.keep),
        **_feature_fields(operation, config, places.source),
        **_window_fields(operation, config),
        **_tap_fields(operation, config),
        **_weight_fields(operation, config, places.weights),
        **_post_fields(operation, step),
        **_spacing_fields(operation, step, config),
        **_second_fields(step, places),
        **_output_fields(step, places),
    }
    if fields["spacing"] > _MOST_SPACING:
        raise UnsupportedError(
            f"layer {name!r}: its filters exceed the weight buffer, and int32 sums of "
            f"{fields['columns']} x {config.post_lanes} lanes take more than {_MOST_SPACING} "
            f"cycles (configuration {config.name!r})"
        )
    return fields


def _feature_fields(operation: Operation, config: Config, base: int) -> dict[str, int]:
    """Return what is fetched, and its rows in the line buffer."""
    source = operation.source
    lanes, bank = config.in_lanes, config.line_bank_words
    rows, stride = operation.kernel[0], operation.stride[0]
    first, first_rows, fetched = _fetched_rows(
        source.rows, rows, stride, operation.top, operation.target.rows
    )
    row_bytes = source.columns * source.channels
    row_words = -(-row_bytes // lanes)
    fields = {
        "in_address": base + source.address,
        "rows": fetched,
        "row_words": row_words,
        "row_pitch": (row_words + row_words % 2) % bank,
        "row_tail": (row_bytes - 1) % lanes + 1,
        "row_bytes": row_bytes,
    }
    if fetched == 0:
        # Every window lies in the padding; a pass has features all the same, if only one byte.
        fields |= dict.fromkeys(("rows", "row_words", "row_tail", "row_bytes"), 1)
        fields["row_pitch"] = 2 % bank
        spans = {"bytes": 1, "first": 1, "span": 1, "gap": 0, "line": 1, "turn": 0}
    else:
        fields["in_address"] += first * source.row_pitch
        seen = source.take_rows(0, fetched)
        spans = seen.spans()
        spans["first"] = spans["span"]
        if stride > rows and first_rows < fetched:
            # The rows of each window are a span, and those between are left out.
            # They adjoin: others have been cut into bands.
            pitch = row_bytes
            spans |= {"first": first_rows * pitch, "span": rows * pitch, "turn": 0}
            spans |= {"gap": (stride - rows) * pitch, "line": spans["bytes"]}
    return fields | {f"in_{key}": value for key, value in spans.items()}


def _window_fields(operation: Operation, config: Config) -> dict[str, int]:
    source, target = operation.source, operation.target
    lanes, bank = config.in_lanes, config.line_bank_words
    channels = source.channels
    first_word, first_byte = divmod(-operation.left * channels, lanes)
    step_words, step_byte = divmod(operation.stride[1] * channels, lanes)
    run_bytes = operation.kernel[1] * channels
    return {
        "zero_in": operation.zero_in,
        "in_rows": source.rows,
        "in_columns": source.columns,
        "out_rows": target.rows,
        "out_columns": target.columns,
        "kernel_rows": operation.kernel[0],
        "kernel_columns": operation.kernel[1],
        "stride_rows": operation.stride[0],
        "stride_columns": operation.stride[1],
        "top": -operation.top,
        "top_bank": -operation.top % BANKS,
        "first_column": -operation.left,
        "first_word": first_word,
        "first_wrapped": first_word % bank,
        "first_byte": first_byte,
        "step_byte": step_byte,
        "step_words": step_words,
        "step_wrapped": step_words % bank,
        "run_words": -(-run_bytes // lanes),
        "run_tail": (run_bytes - 1) % lanes + 1,
    }


def _tap_fields(operation: Operation, config: Config) -> dict[str, int]:
    rows, columns = operation.kernel
    if operation.dense:
        run_words = -(-columns * operation.source.channels // config.in_lanes)
        return {
            "tap_words": 1 % config.line_bank_words,
            "tap_byte": 0,
            "step_weights": run_words,
            "clipped_words": min(operation.top, rows) * run_words,
        }
    tap_words, tap_byte = divmod(operation.source.channels, config.in_lanes)
    return {
        "tap_words": tap_words % config.line_bank_words,
        "tap_byte": tap_byte,
        "step_weights": 0 if operation.pools else columns,
        "clipped_words": 0,
    }


def _weight_fields(operation: Operation, config: Config, address: int) -> dict[str, int]:
    filters, lanes = operation.filters, operation.lanes(config)
    shape = WeightShape.of(operation, config)
    channel_bytes = shape.bytes(config) + filters.constant_bytes
    channels = filters.channels
    return {
        "groups": -(-channels // lanes),
        "group_lanes": min(lanes, channels),
        "last_lanes": (channels - 1) % lanes + 1,
        "group_words": operation.group_words(config),
        "chunk_steps": shape.steps,
        "chunk_run": shape.run,
        "chunk_tail": shape.tail,
        "zero_weight": 0 if operation.pools else filters.zero_point,
        "weight_address": address,
        "weight_bytes": filters.table_bytes + channels * channel_bytes,
        "group_bytes": min(lanes, channels) * channel_bytes,
        "table_bytes": filters.table_bytes,
        "wide": int(filters.second is not None),
    }


def _post_fields(operation: Operation, step: Pass) -> dict[str, int]:
    filters, total = operation.filters, operation.sum
    return {
        "partial_in": 2 if step.kept_in else int(step.partial_in is not None),
        "partial_out": 2 if step.kept_out else int(step.partial_out is not None),
        "fixed": int(operation.fixed),
        "prelu": int(filters.second is not None and not operation.fixed),
        "zero_out": operation.zero_out,
        "low": operation.low,
        "high": operation.high,
        "table": int(len(filters.tables) == 1),
        "combine": 0 if total is None else 2 if total.maximum else 1,
        "sum_left": 0 if total is None else total.left,
        "sum_right": 0 if total is None else total.right,
        "sum_mantissa": 0 if total is None else total.mantissa,
        "sum_zero": 0 if total is None else total.zero_out,
        "sum_low": -128 if total is None else total.low,
        "sum_high": 127 if total is None else total.high,
    }


def _spacing_fields(operation: Operation, step: Pass, config: Config) -> dict[str, int]:
    """Return the columns of the array that are used, and how far apart sums must end."""
    filters, lanes = operation.filters, operation.lanes(config)
    columns = -(-min(lanes, filters.channels) // config.post_lanes)
    trips = 4 if step.partial_out is not None else 2 if operation.sum is not None else 1
    return {
        "columns": columns,
        "last_columns": -(-((filters.channels - 1) % lanes + 1) // config.post_lanes),
        "spacing": trips * columns,
    }


def _second_fields(step: Pass, places: Places) -> dict[str, int]:
    if step.partial_in is not None:
        view, base = step.partial_in, places.partial
    elif step.operation.second is not None:
        view = step.operation.second
        base = places.target if step.second_is_target else places.second
    else:
        names = ("wait", "address", "bytes", "span", "gap", "line", "turn")
        return {f"second_{name}": 0 for name in names}
    spans = view.spans() | {"address": base + view.address, "wait": int(step.second_wait)}
    return {f"second_{key}": value for key, value in spans.items()}


def _output_fields(step: Pass, places: Places) -> dict[str, int]:
    view, base = step.operation.target, places.target
    if step.partial_out is not None:
        view, base = step.partial_out, places.partial
    spans = view.spans() | {"address": base + view.address}
    return {f"out_{key}": value for key, value in spans.items()}


def _fetched_rows(
    height: int, kernel_rows: int, stride: int, top: int, out_rows: int
) -> tuple[int, int, int]:
    """Return the first row that is fetched, the rows of the first span, and all of them.

    Rows that no window covers are left out, so with a stride larger than the kernel the rows of
    each window are a span of their own. Where every window lies in the padding, there are none.
    """
    # The first window that ends, and the last one that begins, inside the feature map.
    upper = max(0, -(-(top - kernel_rows + 1) // stride))
    lower = min(out_rows - 1, (height - 1 + top) // stride)
    if upper > lower:
        return 0, 0, 0
    first = max(0, upper * stride - top)
    first_rows = min(height, upper * stride - top + kernel_rows) - first
    begin = lower * stride - top
    end = min(height, begin + kernel_rows)
    if stride <= kernel_rows:
        return first, end - first, end - first
    if upper == lower:
        return first, first_rows, first_rows
    return first, first_rows, first_rows + (lower - upper - 1) * kernel_rows + end - begin
