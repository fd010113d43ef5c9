import numpy as np
import pytest

from trirow_driver.view import View

from .kit import addresses, walk


def spans_of(view):
    spans = {f"in_{key}": value for key, value in view.spans().items()}
    return walk(spans | {"in_address": view.address}, "in")


def test_whole_feature_map_is_one_span():
    view = View.whole(0x100, 3, 4, 5)
    assert (view.row_pitch, view.pixel_pitch, view.bytes) == (20, 5, 60)
    assert view.contiguous
    assert view.spans() == {"bytes": 60, "span": 60, "gap": 0, "line": 60, "turn": 0}


def test_parts_by_hand():
    whole = View.whole(0x100, 6, 4, 5)
    rows = whole.take_rows(1, 2, 3)
    assert (rows.address, rows.rows, rows.row_pitch) == (0x114, 2, 60)
    assert rows.spans() == {"bytes": 40, "span": 20, "gap": 40, "line": 40, "turn": 0}
    one = whole.take_rows(2, 1, 3)
    assert one.spans() == {"bytes": 20, "span": 20, "gap": 0, "line": 20, "turn": 0}
    columns = whole.take_columns(1, 2, 2)
    assert (columns.address, columns.columns, columns.pixel_pitch) == (0x105, 2, 10)
    # Columns 1 and 3 of each row: 10 bytes on, and 10 from the end of the last to the next row.
    assert columns.spans() == {"bytes": 60, "span": 5, "gap": 5, "line": 60, "turn": 0}
    channels = whole.take_channels(3, 2)
    assert (channels.address, channels.channels) == (0x103, 2)
    assert channels.spans() == {"bytes": 48, "span": 2, "gap": 3, "line": 48, "turn": 0}


def test_turn_differs_from_the_gap():
    view = View.whole(0, 3, 5, 4).take_columns(0, 2, 2)
    # From byte 12, the end of column 2, to byte 20, where the next row begins.
    assert view.spans() == {"bytes": 24, "span": 4, "gap": 4, "line": 8, "turn": 8}


def test_turn_that_leads_back():
    """Rows that are nearer to each other than the columns of one: a transposed map."""
    view = View(0, 2, 3, 2, row_pitch=2, pixel_pitch=4)
    assert view.spans()["turn"] == (1 << 32) - 8
    assert spans_of(view) == addresses(view)


@pytest.mark.parametrize("seed", range(60))
def test_spans_against_brute_force(seed):
    """Also views of views: any chain of parts gives the bytes that indexing gives."""
    rng = np.random.default_rng(seed)
    rows, columns, channels = (int(n) for n in rng.integers(1, 9, 3))
    view = View.whole(0, rows, columns, channels)
    array = np.arange(rows * columns * channels).reshape(rows, columns, channels)
    for _ in range(int(rng.integers(1, 4))):
        axis = int(rng.integers(3))
        size = array.shape[axis]
        first = int(rng.integers(size))
        step = int(rng.integers(1, 4)) if axis < 2 else 1
        count = int(rng.integers(1, -(-(size - first) // step) + 1))
        index = [slice(None)] * 3
        index[axis] = slice(first, first + (count - 1) * step + 1, step)
        array = array[tuple(index)]
        if axis == 0:
            view = view.take_rows(first, count, step)
        elif axis == 1:
            view = view.take_columns(first, count, step)
        else:
            view = view.take_channels(first, count)
    expected = array.ravel().tolist()
    assert addresses(view) == expected
    assert spans_of(view) == expected
    assert view.bytes == len(expected)
    adjoin = expected == list(range(expected[0], expected[0] + len(expected)))
    assert adjoin or not view.contiguous


def test_empty_view_has_no_spans():
    for view in (View.whole(0, 3, 3, 1).take_rows(3, 0), View.whole(0, 3, 3, 1).take_columns(1, 0)):
        assert view.empty
        assert view.bytes == 0
        with pytest.raises(ValueError, match=r"^an empty view has no spans$"):
            view.spans()
