"""PyTorch's `.pt` files, of today and from before version 1.6: tensors, and containers of tensors and numbers.

The object is a pickle. `pickle_records` interprets it, and yields containers with a `FileTensor` for each tensor. Of a
zip archive's entries only `data.pkl`, `byteorder` and the storages of these tensors are read; in a file from before
version 1.6 the storages stand behind the pickle.

A view of a storage may repeat its elements, and a file may refer to a storage as often as it likes, so a small file
could ask for any memory: the bytes of all its tensors are bounded by an `Allowance`.
"""

from __future__ import annotations

import io
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lazyt.functions.archives import Allowance, Archive, FileError, UnsupportedFile, parsing
from lazyt.functions.pickle_records import CONTAINERS, Global, Interpreter, shown
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass

# PyTorch's dtypes and the classes of its typed storages, by what lazyt has.
_DTYPES = {d.name: d for d in dtypes.ALL}
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
_NAMED_DTYPES = {
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
    **{(module, name): _DTYPES[d] for name, d in _STORAGES.items() for module in ("torch", "torch.storage")},
}
_MAGIC = 0x1950A86A20F9469CFC6C  # of the files that PyTorch wrote before version 1.6
_PROTOCOL = 1001
_MOST_AXES = 64
# Estimated bytes of a tensor without its elements.
_TENSOR = 768
# Containers may be nested as deep as Python's own functions can follow.
_MOST_NESTED = 1000

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class FileStorage:
    """The elements of a storage: all, or `count` from `first` on."""

    key: str
    dtype: np.dtype[Any]
    first: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of the file: offset, shape and strides in elements of the storage."""

    storage: FileStorage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conj: bool
    neg: bool
    requires_grad: bool


def _ints(x: Any, what: str) -> tuple[int, ...]:
    if not isinstance(x, tuple | list) or any(type(i) is not int or i < 0 or i >> 63 for i in x):
        raise FileError(f"a tensor's {what} are integers from 0 on, not {shown(x)}")
    return tuple(x)


def _rebuild_tensor(
    allowance: Allowance, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    hooks: Any = None, metadata: Any = None,
) -> FileTensor:  # fmt: skip
    if type(storage) is not FileStorage:
        raise FileError(f"a tensor is made of a storage, not of {shown(storage)}")
    allowance.take(_TENSOR)
    if any(isinstance(x, tuple | list) and len(x) > _MOST_AXES for x in (size, stride)):
        raise FileError(f"a tensor has more than {_MOST_AXES} axes")
    shape, strides, (start,) = _ints(size, "sizes"), _ints(stride, "strides"), _ints((offset,), "offsets")
    if len(shape) != len(strides):
        raise FileError(f"a tensor of sizes {shown(shape)} has strides {shown(strides)}")
    bits = metadata if type(metadata) is dict else {}
    return FileTensor(
        storage,
        start,
        shape,
        strides,
        bits.get("conj") is True,
        bits.get("neg") is True,
        _asks(storage, requires_grad),
    )


def _rebuild_tensor_v2(
    allowance: Allowance, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    metadata: Any = None,
) -> FileTensor:  # fmt: skip
    return _rebuild_tensor(allowance, storage, offset, size, stride, requires_grad, hooks, metadata)


def _rebuild_tensor_v3(
    allowance: Allowance, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    dtype: Any, metadata: Any = None,
) -> FileTensor:  # fmt: skip
    found = _dtype_of(dtype)
    if type(storage) is not FileStorage or found is None or storage.count is not None:
        raise FileError("a tensor is made of a storage and a dtype")
    typed = FileStorage(storage.key, found)
    return _rebuild_tensor(allowance, typed, offset, size, stride, requires_grad, hooks, metadata)


def _rebuild_parameter(
    allowance: Allowance, data: Any, requires_grad: Any, hooks: Any, state: Any = None
) -> FileTensor:  # fmt: skip
    if type(data) is not FileTensor:
        raise FileError(f"a parameter is made of a tensor, not of {shown(data)}")
    allowance.take(_TENSOR)
    return replace(data, requires_grad=_asks(data.storage, requires_grad))


def _asks(storage: FileStorage, requires_grad: Any) -> bool:
    """Whether a tensor asks for gradients; FileError if its dtype has none."""
    if requires_grad is True and dtypes.kind(storage.dtype) not in "fc":
        raise FileError(f"a tensor of {storage.dtype} asks for gradients")
    return requires_grad is True


def _size(allowance: Allowance, sizes: Any = ()) -> tuple[int, ...]:
    allowance.take(16 * len(sizes) if isinstance(sizes, tuple | list) else 0)
    return _ints(sizes, "sizes")


def _device(allowance: Allowance, kind: Any, number: Any = None) -> str:
    """A device by its name: what is read is on the CPU, or where `map_location` says."""
    if type(kind) is not str or len(kind) > 100 or (number is not None and type(number) is not int):
        raise FileError(f"a device is a name and a number, not {shown(kind)} and {shown(number)}")
    return kind if number is None else f"{kind}:{number}"


def _layout(allowance: Allowance, name: Any) -> str:
    if type(name) is not str:
        raise FileError(f"a layout is a name, not {shown(name)}")
    return name


_NAMES: dict[tuple[str, str], Callable[..., Any] | None] = {
    **CONTAINERS,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("torch.serialization", "_get_layout"): _layout,
    **dict.fromkeys(_NAMED_DTYPES),
}


def _dtype_of(x: Any) -> np.dtype[Any] | None:
    return _NAMED_DTYPES.get((x.module, x.name)) if type(x) is Global else None


def _storage(pid: Any, fields: int) -> FileStorage:
    """The record of a persistent id: ("storage", class, key, location, size), and a part of the storage before 1.6."""
    dtype = _dtype_of(pid[1]) if type(pid) is tuple and len(pid) == fields and pid[0] == "storage" else None
    if dtype is None or type(pid[2]) not in (str, int) or len(key := str(pid[2])) > 100:
        raise FileError(f"it refers to {shown(pid)}, which is no storage")
    if fields == 5 or pid[5] is None:
        return FileStorage(key, dtype)
    if type(pid[5]) is not tuple or len(pid[5]) != 3:
        raise FileError(f"it refers to {shown(pid[5])}, which is no part of a storage")
    return FileStorage(key, dtype, *_ints(pid[5][1:], "parts of storages"))


class _Storages:
    """The arrays of the tensors of one file.

    raw: the bytes of the storage of a key, in the order of bytes that `swapped` says.
    """

    def __init__(self, raw: Callable[[str], Array], swapped: bool, allowance: Allowance) -> None:
        self.raw, self.swapped, self.allowance = raw, swapped, allowance
        self.bytes: dict[str, Array] = {}
        self.elements: dict[tuple[str, np.dtype[Any]], Array] = {}

    @parsing()
    def array(self, x: FileTensor) -> Array:
        """The elements of a tensor; a view, if no sign is to be changed."""
        dtype = x.storage.dtype
        if 0 in x.shape:
            return np.zeros(x.shape, dtype)
        whole = self._elements(x.storage)
        last = x.offset + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True))
        if last >= len(whole):
            raise FileError(f"a tensor of sizes {x.shape} ends at element {last} of a storage of {len(whole)}")
        nbytes = math.prod(x.shape) * dtype.itemsize
        self.allowance.take(nbytes)
        places = tuple(s * dtype.itemsize for s in x.strides)
        # NOTE: NumPy strides arrays of its own dtypes alone.
        own = whole.view(dtypes.of(dtype).bits_dtype) if dtypes.of(dtype).foreign else whole
        view = np.lib.stride_tricks.as_strided(own[x.offset :], x.shape, places, writeable=False).view(dtype)
        if not (x.conj or x.neg):
            return view
        self.allowance.take(nbytes)
        view = view.conj() if x.conj else view
        return -view if x.neg else view

    def _elements(self, s: FileStorage) -> Array:
        if s.key not in self.bytes:
            self.bytes[s.key] = self.raw(s.key)
        if (s.key, s.dtype) not in self.elements:
            raw = self.bytes[s.key]
            if len(raw) % s.dtype.itemsize:
                raise FileError(f"storage {s.key} of {len(raw)} bytes holds no whole number of {s.dtype}")
            if self.swapped and s.dtype.itemsize > 1:
                self.allowance.take(len(raw))
                # A complex number is two.
                part = s.dtype.itemsize // 2 if dtypes.kind(s.dtype) == "c" else s.dtype.itemsize
                raw = raw.view(f"u{part}").byteswap().view(np.uint8)
            self.elements[s.key, s.dtype] = raw.view(s.dtype)
        whole = self.elements[s.key, s.dtype]
        return whole if s.count is None else whole[s.first : s.first + s.count]


def _allowance(size: int) -> Allowance:
    return Allowance(
        size, 16, "the tensors of it",
        "some repeat the elements of their storages, as expanded views do; save copies of these with PyTorch "
        "(x.clone()), or what they were expanded from",
    )  # fmt: skip


def _objects(size: int) -> Allowance:
    return Allowance(size, 128, "the objects in it", "it is not as PyTorch writes files", 1 << 26)


def read_zip(archive: Archive, make: Callable[[Array, bool], Any]) -> Any:
    """The object that `torch.save` wrote, nested as it was.

    make: a tensor of an array; the second argument says whether it asks for gradients.
    """
    names, allowance = archive.names, _allowance(archive.size)
    program = next(n for n in names if _is_program(n))
    top = program.removesuffix("data.pkl")
    if f"{top}constants.pkl" in names:
        raise UnsupportedFile(
            "not supported: TorchScript files, because they hold programs; save the model's state_dict() with PyTorch"
        )

    def read(name: str) -> Array:
        if not archive.is_stored(name):
            raise FileError(f"entry {name!r:.80} is compressed, which PyTorch's never are")
        return archive.read(name, allowance)

    order = read(f"{top}byteorder").tobytes() if f"{top}byteorder" in names else b"little"
    if order not in (b"little", b"big"):
        raise FileError(f"it has the byte order {order[:20]!r}, not little or big")
    reader = Interpreter(_NAMES, lambda pid: _storage(pid, 5), _objects(archive.size))
    found = reader.read(io.BytesIO(read(program).tobytes()))
    del reader
    storages = _Storages(lambda key: read(f"{top}data/{key}"), order.decode() != sys.byteorder, allowance)
    return _finished(found, lambda x: make(storages.array(x), x.requires_grad))


def is_torch_zip(names: list[str]) -> bool:
    """Whether the entries of a zip file are those of PyTorch's."""
    return any(map(_is_program, names))


def _is_program(name: str) -> bool:
    return name.endswith("/data.pkl") and name.count("/") == 1


def is_legacy(start: bytes) -> bool:
    """Whether a file begins as PyTorch's did before version 1.6: with a pickle of a magic number."""
    return start[:1] == b"\x80" and _MAGIC.to_bytes(10, "little") in start[:32]


class _Bounded:
    """A file whose reads ask for no more than there is: a buffered file allocates first what it is asked for."""

    def __init__(self, f: io.BufferedIOBase) -> None:
        self.f, self.size = f, f.seek(0, io.SEEK_END)
        self.readline, self.tell = f.readline, f.tell
        f.seek(0)

    def read(self, n: int) -> bytes:
        """At most n bytes."""
        return self.f.read(min(n, self.size - self.f.tell()))


def read_legacy(f: io.BufferedIOBase, make: Callable[[Array, bool], Any]) -> Any:
    """The object of a file from before version 1.6.

    file := pickle of a magic number, of a version, of facts about the system, of the object, of the keys of storages;
            then for each key its number of elements, in 8 bytes, and the elements, all in little endian
    """
    bounded: Any = _Bounded(f)
    size, allowance, objects = bounded.size, _allowance(bounded.size), _objects(bounded.size)
    first: dict[str, np.dtype[Any]] = {}

    def refer(pid: Any) -> FileStorage:
        found = _storage(pid, 6)
        first.setdefault(found.key, found.dtype)
        return found

    def read(refer: Callable[[Any], Any] = lambda pid: _storage(pid, 0)) -> Any:
        return Interpreter(_NAMES, refer, objects).read(bounded)

    magic, version = read(), read()
    if magic != _MAGIC or version != _PROTOCOL:
        raise FileError(f"it has the version {shown(version)} of PyTorch's format, which is not known")
    read()
    found, keys = read(refer), read()
    places: dict[str, tuple[int, int]] = {}
    at = f.tell()
    for key in keys if type(keys) is list else [None]:
        if type(key) is not str or key not in first or key in places:
            raise FileError(f"it is damaged: it has a storage {shown(key)}, to which nothing refers")
        f.seek(at)
        count = bounded.read(8)
        if len(count) != 8:
            raise FileError(f"it is damaged: it ends before storage {key}")
        n = int.from_bytes(count, "little", signed=True) * first[key].itemsize
        at += 8
        if not 0 <= n <= size - at:
            raise FileError(f"it is damaged: storage {key} has {n} bytes, and {size - at} are left")
        places[key] = at, n
        at += n

    def raw(key: str) -> Array:
        if key not in places:
            raise FileError(f"it has no storage {key}")
        start, n = places[key]
        allowance.take(n)
        f.seek(start)
        out = np.empty(n, np.uint8)
        if f.readinto(out.data) != n:
            raise FileError(f"it is damaged: storage {key} ends early")
        return out

    storages = _Storages(raw, sys.byteorder != "little", allowance)
    return _finished(found, lambda x: make(storages.array(x), x.requires_grad))


def _finished(root: Any, made_of: Callable[[FileTensor], Any]) -> Any:
    """The object with tensors in place of records; one that is there twice is one tensor.

    NOTE: lists and dicts are completed in place, for they may hold themselves; a tuple is made once, or a short file
    could ask for 2 ** n of them.
    """
    made: dict[int, Any] = {}
    boxes: list[tuple[Any, int]] = [([root], 0)]
    top = boxes[0][0]
    while boxes:
        box, level = boxes.pop()
        todo = [(x, level) for x in (box if type(box) is list else box.values()) if type(x) in _MADE][::-1]
        while todo:
            x, level = todo.pop()
            kind = type(x)
            if id(x) in made:
                continue
            if level > _MOST_NESTED:
                raise FileError(f"it is damaged: its containers are nested more than {_MOST_NESTED} deep")
            if kind in (list, dict, OrderedDict):
                made[id(x)] = x
                boxes.append((x, level + 1))
            elif kind is tuple:
                waiting = [(v, level + 1) for v in x[::-1] if type(v) in _MADE and id(v) not in made]
                if waiting:
                    todo += ((x, level), *waiting)
                elif any(made.get(id(v), v) is not v for v in x):
                    made[id(x)] = tuple([made.get(id(v), v) for v in x])
                else:
                    made[id(x)] = x
            elif kind is FileTensor:
                made[id(x)] = made_of(x)
            elif kind is Global and (dtype := _dtype_of(x)) is not None:
                made[id(x)] = dtype
            else:
                raise FileError(f"it holds {shown(x)}, which is no value")
        if type(box) is list:
            box[:] = [made.get(id(v), v) for v in box]
        else:
            for k, v in box.items():
                box[k] = made.get(id(v), v)
    return top[0]


_MADE = frozenset((list, dict, OrderedDict, tuple, FileTensor, FileStorage, Global))
