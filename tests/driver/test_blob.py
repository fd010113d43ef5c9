import re

import numpy as np
import pytest

from trirow_driver.blob import Blob


def numbered(*shape: int) -> Blob:
    """Blob whose data is 0, 1, 2, ... and whose diff is the negative of it."""
    blob = Blob(shape)
    blob.data[...] = np.arange(blob.count(), dtype=np.float32).reshape(shape)
    blob.diff[...] = -blob.data
    return blob


# Construction and shape


def test_new_memory_is_zero_float32_in_c_order():
    blob = Blob((2, 3, 4))
    for view in (blob.data, blob.diff):
        assert view.shape == (2, 3, 4)
        assert view.dtype == np.float32
        assert view.flags.c_contiguous
        assert view.flags.writeable
        assert not view.any()


@pytest.mark.parametrize("shape", [((2, 3),), ([2, 3],), (2, 3), (np.array([2, 3]),)])
def test_forms_of_shape(shape):
    blob = Blob(*shape)
    assert blob.shape == (2, 3)
    assert [type(extent) for extent in blob.shape] == [int, int]
    blob.reshape(1, 1)
    blob.reshape(*shape)
    assert blob.shape == (2, 3)


def test_bare_blob_has_no_memory():
    blob = Blob()
    assert (blob.shape, blob.num_axes, blob.count(), blob.capacity) == ((), 0, 0, 0)
    assert blob.asum_data() == blob.asum_diff() == blob.sumsq_data() == blob.sumsq_diff() == 0
    blob.scale_data(2)
    blob.scale_diff(2)
    for use in (lambda: blob.data, lambda: blob.diff, blob.update):
        with pytest.raises(ValueError, match=r"^a 0-D blob with shape \(0\) has no memory: resha"):
            use()
    with pytest.raises(IndexError, match=r"^a 0-D blob with shape \(0\) has no elements$"):
        blob.offset(0)
    with pytest.raises(IndexError, match="has no elements"):
        blob.offset(())


def test_blob_without_axes_has_one_element():
    blob = Blob(())
    assert (blob.shape, blob.num_axes, blob.count(), blob.count(0, 0)) == ((), 0, 1, 1)
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 1, 1, 1)
    blob.data[...] = 7
    assert blob.data_at(()) == blob.data_at(0) == blob.data_at(0, 0, 0, 0) == 7
    assert blob.shape_string() == "(1)"


def test_empty_axis():
    blob = Blob((2, 0, 3))
    assert blob.count() == 0
    assert blob.count(2) == 3
    assert blob.data.shape == (2, 0, 3)
    assert blob.asum_data() == 0
    with pytest.raises(IndexError, match=r"^index 0 on axis 1 is out of range for a 3-D blob"):
        blob.offset((1,))


def test_shape_string():
    assert Blob((2, 3, 4)).shape_string() == "2 3 4 (24)"
    assert repr(Blob((2, 3, 4))) == "Blob(2 3 4 (24))"


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((2, -1), "axis 1 of shape (2, -1) must be 0 or more, not -1"),
        ((1,) * 33, "shape must have at most 32 axes, not 33"),
        ((2**16, 2**15), "shape (65536, 32768) has 2147483648 elements, more than 2147483647"),
        ((2.0, 3), "shape must be integers, not (2.0, 3)"),
        ("ab", "shape must be integers, not 'ab'"),
    ],
)
def test_wrong_shape_changes_nothing(shape, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Blob(shape)
    blob = numbered(2, 2)
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        blob.reshape(shape)
    assert blob.shape == (2, 2)
    assert blob.data.tolist() == [[0, 1], [2, 3]]


def test_canonical_axis_and_dim():
    blob = Blob((2, 3, 4))
    assert [blob.canonical_axis(axis) for axis in range(-3, 3)] == [0, 1, 2, 0, 1, 2]
    assert [blob.dim(axis) for axis in range(-3, 3)] == [2, 3, 4, 2, 3, 4]


@pytest.mark.parametrize("axis", [-4, 3])
def test_wrong_axis(axis):
    text = rf"^axis {axis} is out of range for a 3-D blob with shape 2 3 4 \(24\)$"
    with pytest.raises(IndexError, match=text):
        Blob((2, 3, 4)).canonical_axis(axis)
    with pytest.raises(IndexError, match=text):
        Blob((2, 3, 4)).dim(axis)


@pytest.mark.parametrize("axis", [-1, 0])
def test_no_axis_at_all(axis):
    with pytest.raises(IndexError, match=rf"^axis {axis} is out of range for a 0-D blob"):
        Blob(()).canonical_axis(axis)


def test_count_of_slices():
    blob = Blob((2, 3, 4, 5))
    assert blob.count() == 120
    assert [blob.count(start) for start in range(5)] == [120, 60, 20, 5, 1]
    assert blob.count(1, 3) == 12
    assert blob.count(2, 2) == 1
    assert blob.count(0, 4) == 120


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (-1, None, "axis -1 bounds no slice of a 2-D blob with shape 2 3 (6)"),
        (3, None, "axis 3 bounds no slice of a 2-D blob with shape 2 3 (6)"),
        (0, -1, "axis -1 bounds no slice of a 2-D blob with shape 2 3 (6)"),
        (0, 3, "axis 3 bounds no slice of a 2-D blob with shape 2 3 (6)"),
        (2, 1, "slice from axis 2 to 1 of a 2-D blob with shape 2 3 (6) is reversed"),
    ],
)
def test_wrong_slice(start, end, text):
    with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
        Blob((2, 3)).count(start, end)


@pytest.mark.parametrize(
    ("shape", "legacy"),
    [((2, 3, 4, 5), (2, 3, 4, 5)), ((2, 3), (2, 3, 1, 1)), ((7,), (7, 1, 1, 1))],
)
def test_legacy_axes(shape, legacy):
    blob = Blob(shape)
    assert (blob.num, blob.channels, blob.height, blob.width) == legacy


@pytest.mark.parametrize("name", ["num", "channels", "height", "width"])
def test_legacy_axes_of_five(name):
    with pytest.raises(ValueError, match=rf"^{name} \(axis . of 4\) is not defined for a 5-D blob"):
        getattr(Blob((1, 1, 1, 1, 1)), name)


# Offsets


def test_offset_counts_elements_in_c_order():
    shape = (2, 3, 4, 5)
    blob = numbered(*shape)
    for expected, index in enumerate(np.ndindex(shape)):
        assert blob.offset(*index) == blob.offset(index) == expected
        assert blob.data_at(*index) == blob.data_at(index) == expected
        assert blob.diff_at(*index) == blob.diff_at(index) == -expected


def test_offset_with_indices_left_out():
    blob = Blob((2, 3, 4, 5))
    assert blob.offset(1) == blob.offset([1]) == 60
    assert blob.offset(1, 2) == blob.offset((1, 2)) == 100
    assert blob.offset(()) == 0


def test_offset_of_other_numbers_of_axes():
    assert Blob((2, 3)).offset(1, 2) == 5
    assert Blob((2, 2, 2, 2, 2)).offset((1, 0, 1, 0, 1)) == 21


def test_offset_of_narrow_integers_does_not_wrap():
    offset = Blob((2, 200, 300)).offset(np.array([1, 199, 99], dtype=np.uint8))
    assert offset == 60000 + 199 * 300 + 99
    assert type(offset) is int


@pytest.mark.parametrize(
    ("index", "axis", "value"),
    [
        ((2, 0, 0, 0), 0, 2),
        ((-1, 0, 0, 0), 0, -1),
        ((0, 3, 0, 0), 1, 3),
        ((0, -1, 0, 0), 1, -1),
        ((0, 0, 4, 0), 2, 4),
        ((0, 0, 0, 5), 3, 5),
        ((0, 0, 0, -1), 3, -1),
    ],
)
def test_offset_out_of_range(index, axis, value):
    blob = Blob((2, 3, 4, 5))
    text = rf"^index {value} on axis {axis} is out of range for a 4-D blob with shape 2 3 4 5 \(12"
    for use in (blob.offset, blob.data_at, blob.diff_at):
        with pytest.raises(IndexError, match=text):
            use(*index)
        with pytest.raises(IndexError, match=text):
            use(index)


def test_offset_misused():
    with pytest.raises(IndexError, match=r"^index 1 on axis 2 is out of range for a 2-D blob"):
        Blob((2, 3)).offset(0, 0, 1)
    with pytest.raises(IndexError, match=r"^3 indices are too many for a 2-D blob with shape 2 3"):
        Blob((2, 3)).offset((0, 0, 0))
    with pytest.raises(IndexError, match=r"^offset takes one sequence of indices or up to four"):
        Blob((2, 3)).offset((0, 0), 1)
    with pytest.raises(ValueError, match=r"^num \(axis 0 of 4\) is not defined for a 5-D blob"):
        Blob((1, 1, 1, 1, 1)).offset(0)


# Reshape


def test_reshape_within_capacity_keeps_memory_and_elements():
    blob = numbered(2, 6)
    before = blob.data
    blob.reshape((3, 2))
    assert blob.capacity == 12
    assert np.shares_memory(before, blob.data)
    assert blob.data.tolist() == [[0, 1], [2, 3], [4, 5]]
    blob.reshape((12,))
    assert blob.data.tolist() == list(range(12))
    assert blob.diff.tolist() == [-i for i in range(12)]


def test_reshape_beyond_capacity_allocates_zeros():
    blob = numbered(2, 6)
    before = blob.data
    blob.reshape((13,))
    assert blob.capacity == 13
    assert not np.shares_memory(before, blob.data)
    assert not blob.data.any()
    assert not blob.diff.any()
    assert before.ravel().tolist() == list(range(12))


def test_reshape_like():
    blob = Blob((2, 3))
    blob.reshape_like(Blob((4, 5, 6)))
    assert blob.shape == (4, 5, 6)


# Copies


def test_copy_of_data_or_diff():
    source = numbered(2, 3)
    target = Blob((2, 3))
    target.copy_from(source)
    assert target.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not target.diff.any()
    target.data[...] = 9
    target.copy_from(source, copy_diff=True)
    assert target.diff.tolist() == [[0, -1, -2], [-3, -4, -5]]
    assert (target.data == 9).all()
    assert not np.shares_memory(target.data, source.data)


def test_copy_with_reshape():
    target = Blob((7,))
    target.copy_from(numbered(2, 3), reshape=True)
    assert target.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    bare = Blob()
    bare.copy_from(numbered(2, 3), reshape=True)
    assert bare.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    scalar = Blob()
    scalar.copy_from(Blob(()), reshape=True)
    assert scalar.count() == 1


def test_copy_without_reshape_needs_the_same_shape():
    target = numbered(6)
    text = "copy of a blob with shape 2 3 (6) into a 1-D blob with shape 6 (6) needs reshape=True"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        target.copy_from(Blob((2, 3)))
    assert target.data.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="needs reshape=True"):
        Blob().copy_from(Blob(()))


def test_copy_from_a_blob_without_memory():
    target = numbered(6)
    with pytest.raises(ValueError, match=r"^a 0-D blob with shape \(0\) has no memory"):
        target.copy_from(Blob(), reshape=True)
    assert target.shape == (6,)


def test_copy_from_itself_and_from_shared_memory():
    blob = numbered(4)
    other = Blob((4,))
    other.share_data(blob)
    blob.copy_from(blob)
    other.copy_from(blob)
    assert blob.data.tolist() == [0, 1, 2, 3]


# Sharing


def test_share_data_leaves_diff_alone():
    source, user = numbered(2, 3), Blob((6,))
    user.share_data(source)
    assert np.shares_memory(user.data, source.data)
    assert not np.shares_memory(user.diff, source.diff)
    user.data[4] = 40
    assert source.data_at(1, 1) == 40
    assert not user.diff.any()


def test_share_diff_leaves_data_alone():
    source, user = numbered(2, 3), Blob((6,))
    user.share_diff(source)
    assert np.shares_memory(user.diff, source.diff)
    assert not np.shares_memory(user.data, source.data)
    source.diff[1, 1] = 40
    assert user.diff_at(4) == 40


@pytest.mark.parametrize("share", [Blob.share_data, Blob.share_diff])
def test_share_needs_the_same_count(share):
    text = (
        "a 1-D blob with shape 5 (5) cannot share the memory of a blob with shape 2 3 (6): "
        "the counts differ"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        share(Blob((5,)), Blob((2, 3)))


@pytest.mark.parametrize("share", [Blob.share_data, Blob.share_diff])
def test_share_needs_memory(share):
    with pytest.raises(ValueError, match=r"^a 0-D blob with shape \(0\) has no memory to share$"):
        share(Blob((0,)), Blob())


def test_shrinking_keeps_memory_shared():
    source, user = numbered(6), Blob((6,))
    user.share_data(source)
    user.reshape((2,))
    assert np.shares_memory(user.data, source.data)
    user.scale_data(10)
    assert source.data.tolist() == [0, 10, 2, 3, 4, 5]


def test_growing_ends_sharing():
    source, user = numbered(6), Blob((6,))
    user.share_data(source)
    source.reshape((7,))
    assert not np.shares_memory(user.data, source.data)
    assert user.data.tolist() == [0, 1, 2, 3, 4, 5]


def test_shared_memory_smaller_than_the_own_was():
    user = Blob((100,))
    user.reshape((4,))
    user.share_data(numbered(4))
    assert user.capacity == 4
    user.reshape((50,))  # would read beyond the shared memory if the old capacity counted
    assert user.data.shape == user.diff.shape == (50,)


def test_shared_memory_larger_than_the_own_was():
    source = numbered(100)
    source.reshape((4,))
    user = Blob((4,))
    user.share_data(source)
    user.share_diff(source)
    user.reshape((50,))
    assert np.shares_memory(user.data, source.data)


# Arithmetic


def test_sums():
    blob = Blob((2, 2))
    blob.data[...] = [[1, -2], [3, -4]]
    blob.diff[...] = [[-5, 6], [0, 0.5]]
    assert (blob.asum_data(), blob.sumsq_data()) == (10, 30)
    assert (blob.asum_diff(), blob.sumsq_diff()) == (11.5, 61.25)


def test_sums_are_of_the_count_only_and_in_float64():
    blob = Blob((3,))
    blob.data[...] = [2**24, 1, 1]
    assert blob.asum_data() == 2**24 + 2
    blob.data[...] = [3e38, 1, 1]
    assert blob.sumsq_data() == pytest.approx(9e76)
    blob.data[...] = [1, 2, 3]
    blob.reshape((2,))
    assert blob.asum_data() == 3


def test_scale():
    blob = numbered(4)
    blob.scale_data(0.5)
    assert blob.data.tolist() == [0, 0.5, 1, 1.5]
    assert blob.diff.tolist() == [0, -1, -2, -3]
    blob.scale_diff(-2)
    assert blob.diff.tolist() == [0, 2, 4, 6]
    assert blob.data.dtype == blob.diff.dtype == np.float32


def test_update_subtracts_diff():
    blob = Blob((3,))
    blob.data[...] = [1, 2, 3]
    blob.diff[...] = [0.5, -1, 3]
    blob.update()
    assert blob.data.tolist() == [0.5, 3, 0]
    assert blob.diff.tolist() == [0.5, -1, 3]
