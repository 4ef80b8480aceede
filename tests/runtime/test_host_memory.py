"""Memory of NumPy's and of other libraries: what is recorded is the value of then, whoever writes afterwards."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import ShapeError


class Speaks:
    """Somebody else who hands memory out by DLPack, and goes on writing it."""

    def __init__(self, a: np.ndarray) -> None:
        self.a = a

    def __dlpack__(self, **options: Any) -> Any:
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.a.__dlpack_device__()


def address(x: lt.Tensor) -> int:
    return x.numpy().__array_interface__["data"][0]


TAKEN = {
    "from_numpy": lt.from_numpy, "asarray": lt.asarray, "tensor": lt.tensor, "array": lt.array,
    "from_dlpack": lambda a: lt.from_dlpack(Speaks(a)), "copied": lambda a: lt.from_dlpack(Speaks(a), copy=True),
    "an operand": lambda a: lt.zeros(a.shape, dtype=a.dtype) + a, "of a view": lambda a: lt.from_numpy(a[:]),
    "read-only view": lambda a: lt.from_numpy(np.broadcast_to(a, a.shape)),
    "a part": lambda a: lt.from_numpy(a[1:]), "strided": lambda a: lt.from_numpy(a[::2]),
}  # fmt: skip


@pytest.mark.parametrize("n", [1, 4, 1000, 1 << 20])
@pytest.mark.parametrize("way", TAKEN)
def test_a_buffer_that_is_written_again_changes_nothing_recorded(way, n):
    """An environment's, or a loader's: one buffer, written again each turn, and read at the end."""
    buffer, found, want = np.zeros(n, np.float32), [], []
    for k in range(3):
        buffer[:] = k
        found.append(TAKEN[way](buffer) * 1)
        want.append(float(k))
    buffer[:] = 9
    for x, value in zip(found, want, strict=True):
        np.testing.assert_array_equal(x.numpy(), np.full(x.shape, value, np.float32))


def test_memory_that_nobody_can_write_is_shared(tmp_path):
    a = np.arange(1000.0)
    a.setflags(write=False)
    assert address(lt.from_numpy(a)) == a.ctypes.data
    part = a[10:]
    assert address(lt.from_numpy(part)) == part.ctypes.data
    np.save(tmp_path / "a.npy", a)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert address(lt.from_numpy(mapped)) == mapped.ctypes.data
    written = np.load(tmp_path / "a.npy", mmap_mode="r+")
    assert address(lt.from_numpy(written)) != written.ctypes.data
    of_bytes = np.frombuffer(bytes(range(64)), np.uint8)
    assert address(lt.from_numpy(of_bytes)) == of_bytes.ctypes.data
    of_bytearray = np.frombuffer(bytearray(64), np.uint8)
    of_bytearray.setflags(write=False)
    assert address(lt.from_numpy(of_bytearray)) != of_bytearray.ctypes.data
    with mmap.mmap(-1, 4096) as m:
        anonymous = np.frombuffer(m, np.uint8)
        assert address(lt.from_numpy(anonymous)) != anonymous.ctypes.data
        del anonymous


def test_an_array_that_nobody_else_refers_to_is_shared():
    found = []

    def made() -> np.ndarray:
        a = np.ones(5000)
        found.append(a.ctypes.data)
        return a

    x = lt.from_numpy(made())  # NOTE: an `assert` that pytest writes anew refers to what is in it
    assert address(x) == found[0]
    held = made()
    assert address(lt.from_numpy(held)) != found[1]
    assert address(lt.from_numpy(held[1:])) != held.ctypes.data + 8


def test_what_is_asked_to_share_does():
    a = np.arange(6.0)
    assert address(lt.asarray(a, copy=False)) == a.ctypes.data
    assert address(lt.from_dlpack(Speaks(a), copy=False)) == a.ctypes.data
    x = lt.asarray(a, copy=False)
    x += 1  # lazyt itself never writes there
    np.testing.assert_array_equal(x.numpy(), a + 1)
    with pytest.raises(ShapeError, match="negative strides are not supported; copy the array first"):
        lt.from_numpy(a[::-1])
    with pytest.raises(ValueError, match="only C-contiguous NumPy memory of the same dtype needs no copy"):
        lt.asarray(a[::2], copy=False)


def test_a_computed_value_is_looked_at_without_a_copy():
    x = lt.ones(1000) * 2
    a = x.numpy()
    assert a.ctypes.data == x.numpy().ctypes.data and not a.flags.writeable
