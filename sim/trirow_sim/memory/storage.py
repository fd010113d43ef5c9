"""The bytes behind a memory model."""

import mmap

__all__ = ["Memory"]


class Memory:
    """A range of bytes at a base address.

    Parameters
    ----------
    size : int
        Bytes; all are 0 at first.
    base : int
        Address of the first byte.

    Attributes
    ----------
    data : mmap
        The bytes themselves, for loading images and for comparison; used like a bytearray. Pages
        that nobody touches take no memory, so it may be as large as the address space.
    """

    __slots__ = ("_base", "_size", "data")

    def __init__(self, size: int, *, base: int = 0) -> None:
        if size <= 0:
            raise ValueError(f"size must be a positive number of bytes, not {size!r}")
        if base < 0:
            raise ValueError(f"base must not be negative, not {base!r}")
        self._base = base
        self._size = size
        self.data = mmap.mmap(-1, size)

    @property
    def base(self) -> int:
        """Address of the first byte."""
        return self._base

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._size

    def contains(self, addr: int, count: int) -> bool:
        """Whether all of `count` bytes from `addr` on exist."""
        return self._base <= addr and addr + count <= self._base + self._size

    def read(self, addr: int, count: int) -> bytes:
        """Return `count` bytes from `addr` on.

        Raises
        ------
        IndexError
            If one of them does not exist.
        """
        start = self._offset(addr, count)
        return bytes(self.data[start : start + count])

    def write(self, addr: int, data: bytes | bytearray, strobes: int = -1) -> None:
        """Store `data` from `addr` on; bit i of `strobes` enables byte i.

        Raises
        ------
        IndexError
            If one of the bytes does not exist, whether enabled or not; nothing is stored then.
        """
        count = len(data)
        start = self._offset(addr, count)
        everything = (1 << count) - 1
        strobes &= everything
        if strobes == everything:
            self.data[start : start + count] = data
            return
        for i in range(count):
            if strobes >> i & 1:
                self.data[start + i] = data[i]

    def _offset(self, addr: int, count: int) -> int:
        if not self.contains(addr, count):
            end = self._base + self._size
            raise IndexError(
                f"{count} bytes at {addr:#x} are not within {self._base:#x} to {end:#x}"
            )
        return addr - self._base
