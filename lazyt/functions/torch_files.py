"""PyTorch's `.pt` files: read by an unpickler that knows tensors, containers and numbers, and calls nothing else.

A pickle is a program that names the functions that it calls. Here a name is looked up in `_KNOWN`, whose functions are
this module's own; every other name is an error that says it, before anything is called. Of the file's entries only
`data.pkl`, its `byteorder` and the storages that it refers to are read.

A view of a storage may repeat its elements, and a file may refer to a storage as often as it likes, so a small file
could ask for any memory: what all of its tensors take is bounded by the file's size (`Budget`).
"""

from __future__ import annotations

import io
import math
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from lazyt.errors import LazytError, NotSupportedError
from lazyt.functions.conversion import tensor
from lazyt.ir import dtypes

# PyTorch's dtypes and the classes of its typed storages, by what lazyt has.
_DTYPES = {
    "float64": np.dtype(np.float64), "float32": np.dtype(np.float32), "float16": np.dtype(np.float16),
    "bfloat16": dtypes.bfloat16, "complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128),
    "int64": np.dtype(np.int64), "int32": np.dtype(np.int32), "int16": np.dtype(np.int16), "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8), "uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64), "bool": np.dtype(np.bool_),
}  # fmt: skip
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
_MAGIC = 0x1950A86A20F9469CFC6C  # of the files that PyTorch wrote before version 1.6


class TorchFileError(LazytError, ValueError, pickle.UnpicklingError):
    """A `.pt` file that is damaged, or that has more in it than weights."""


class _Dtype:
    """`torch.float32`, or the class of a storage: what elements it has."""

    __slots__ = ("dtype",)

    def __init__(self, name: str) -> None:
        self.dtype = _DTYPES[name]

    def __setstate__(self, state: Any) -> None:
        raise TorchFileError("load: this file gives a dtype a state, which it has not")


class Budget:
    """How many bytes the tensors of a file may take: `TIMES` those of the file, or `LEAST` if that is more."""

    TIMES, LEAST = 16, 1 << 28

    def __init__(self, file: int) -> None:
        self.total = self.left = max(self.TIMES * file, self.LEAST)

    def take(self, nbytes: int) -> None:
        """TorchFileError if what was taken and this is too much."""
        self.left -= nbytes
        if self.left < 0:
            raise TorchFileError(
                f"load: the tensors of this file would take more than {self.total} bytes, {self.TIMES} times those of "
                "the file (at least 256 MB): some repeat the elements of their storages, as expanded views do; save "
                "copies of these with PyTorch (x.clone()), or what they were expanded from"
            )


class _Storage:
    """The elements of a storage, in a file."""

    def __init__(self, raw: bytes, dtype: np.dtype[Any], budget: Budget) -> None:
        self.raw, self.dtype, self.budget = raw, dtype, budget


class _Found:
    """A tensor of the file, until all is read: a view that is made at once could be as large as a stranger likes."""

    def __init__(self, array: np.ndarray[Any, Any], requires_grad: bool) -> None:
        self.array, self.requires_grad = array, requires_grad


def _ints(x: Any, what: str) -> tuple[int, ...]:
    if not isinstance(x, tuple | list) or any(type(i) is not int or i < 0 for i in x):
        raise TorchFileError(f"load: a tensor's {what} are integers from 0 on, not {x!r}")
    return tuple(x)


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> _Found:
    if not isinstance(storage, _Storage):
        raise TorchFileError(f"load: a tensor is made of a storage, not of {type(storage).__name__!r}")
    shape, strides, (start,) = _ints(size, "sizes"), _ints(stride, "strides"), _ints((offset,), "offsets")
    if len(shape) != len(strides):
        raise TorchFileError(f"load: a tensor of sizes {shape} has strides {strides}")
    whole = np.frombuffer(storage.raw, storage.dtype)
    if 0 in shape:
        return _Found(np.zeros(shape, storage.dtype), False)
    last = start + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if last >= len(whole):
        raise TorchFileError(f"load: a tensor of sizes {shape} ends at element {last} of a storage of {len(whole)}")
    storage.budget.take(math.prod(shape) * whole.itemsize)
    places = tuple(s * whole.itemsize for s in strides)
    return _Found(np.lib.stride_tricks.as_strided(whole[start:], shape, places, writeable=False), False)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> _Found:
    found = _rebuild_tensor(storage, offset, size, stride)
    for bit, conjugated in {"conj": True, "neg": False}.items():
        if isinstance(metadata, dict) and metadata.get(bit) is True:
            found.array = found.array.conj() if conjugated else -found.array
    found.requires_grad = requires_grad is True
    return found


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any, metadata: Any = None
) -> _Found:
    if not isinstance(storage, _Storage) or not isinstance(dtype, _Dtype):
        raise TorchFileError("load: a tensor is made of a storage and a dtype")
    typed = _Storage(storage.raw, dtype.dtype, storage.budget)
    return _rebuild_tensor_v2(typed, offset, size, stride, requires_grad, hooks, metadata)


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> _Found:
    if not isinstance(data, _Found):
        raise TorchFileError(f"load: a parameter is made of a tensor, not of {type(data).__name__!r}")
    return _Found(data.array, requires_grad is True)


def _rebuild_device(*args: Any) -> str:
    """A device by its name: what is read is on the CPU."""
    return ":".join(map(str, args))


class _Dict(OrderedDict[Any, Any]):
    """An OrderedDict whose attributes (a state dict's `_metadata`) are left out."""

    def __setstate__(self, state: Any) -> None:
        """Nothing of it is kept."""


class _Named:
    """A function or a class that a file may name: a pickle may call it, and can do nothing else to it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: Any) -> None:
        raise TorchFileError("load: this file gives a function a state, which it has not")


def _known() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): _Dict,
        ("torch._utils", "_rebuild_tensor"): _Named(_rebuild_tensor),
        ("torch._utils", "_rebuild_tensor_v2"): _Named(_rebuild_tensor_v2),
        ("torch._utils", "_rebuild_tensor_v3"): _Named(_rebuild_tensor_v3),
        ("torch._utils", "_rebuild_parameter"): _Named(_rebuild_parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): _Named(_rebuild_parameter),
        ("torch", "Size"): _Named(lambda x=(): _ints(x, "sizes")),
        ("torch", "device"): _Named(_rebuild_device),
        ("torch.serialization", "_get_layout"): _Named(str),
        ("builtins", "set"): _Named(set),
        ("__builtin__", "set"): _Named(set),
        ("builtins", "complex"): _Named(complex),
        ("__builtin__", "complex"): _Named(complex),
        ("_codecs", "encode"): _Named(_bytes),
    }
    for name in _DTYPES:
        found["torch", name] = _Dtype(name)
    for storage, name in _STORAGES.items():
        found["torch", storage] = found["torch.storage", storage] = _Dtype(name)
    return found


def _bytes(text: Any, encoding: Any) -> bytes:
    """How a pickle of protocol 2 has bytes."""
    if type(text) is not str or encoding != "latin1":
        raise TorchFileError(f"load: bytes are written in latin1, not in {encoding!r}")
    return text.encode("latin1")


_KNOWN = _known()


class _Unpickler(pickle.Unpickler):
    def __init__(self, f: IO[bytes], storages: Callable[[str], bytes], swapped: bool, size: int) -> None:
        super().__init__(f, encoding="utf-8")
        self.storages, self.swapped, self.budget = storages, swapped, Budget(size)
        self.read: dict[tuple[str, np.dtype[Any]], _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        found = _KNOWN.get((module, name))
        if found is None:
            raise TorchFileError(
                f"load: this file asks for {module}.{name}, which is neither a tensor nor a container of tensors, and "
                "nothing that a file names is run here; save the model's state_dict() with PyTorch, and load that"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or not isinstance(pid[1], _Dtype):
            raise TorchFileError(f"load: this file refers to {pid!r:.80}, which is no storage")
        key, dtype = str(pid[2]), pid[1].dtype
        if (key, dtype) not in self.read:
            raw = self.storages(key)
            # NOTE: entries of an archive may lie over each other.
            self.budget.take(len(raw))
            if self.swapped and dtype.itemsize > 1:
                # A complex number is two.
                part = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
                raw = np.frombuffer(raw, f"u{part}").byteswap().tobytes()
            if len(raw) % dtype.itemsize:
                raise TorchFileError(f"load: storage {key} of {len(raw)} bytes holds no whole number of {dtype}")
            self.read[key, dtype] = _Storage(raw, dtype, self.budget)
        return self.read[key, dtype]


def read_zip(f: IO[bytes], names: list[str]) -> Any:
    """What `torch.save` wrote: nested as it was, with tensors of lazyt's own."""
    with zipfile.ZipFile(f) as z:
        pickles = [n for n in names if n.endswith("/data.pkl") and n.count("/") == 1]
        top = pickles[0].removesuffix("data.pkl")
        if f"{top}constants.pkl" in names:
            raise NotSupportedError(
                "not supported: TorchScript files, because they hold programs; save the model's state_dict() "
                "with PyTorch"
            )
        order = z.read(f"{top}byteorder").decode() if f"{top}byteorder" in names else "little"

        def storage(key: str) -> bytes:
            return read(f"{top}data/{key}")

        def read(name: str) -> bytes:
            if name not in names:
                raise TorchFileError(f"load: this file has no entry {name!r}")
            if z.getinfo(name).compress_type != zipfile.ZIP_STORED:
                raise TorchFileError(f"load: entry {name!r} is compressed, which PyTorch's never are")
            return z.read(name)

        try:
            size = f.seek(0, io.SEEK_END)
            u = _Unpickler(io.BytesIO(read(pickles[0])), storage, order != sys.byteorder, size)
            return _finished(u.load(), {})
        except (LazytError, MemoryError):
            raise
        except Exception as e:
            raise TorchFileError(f"load: this file is damaged: {type(e).__name__}: {e}") from e


def is_torch_zip(names: list[str]) -> bool:
    """Whether the entries of a zip file are those of PyTorch's."""
    return any(n.endswith("/data.pkl") and n.count("/") == 1 for n in names)


def is_legacy(start: bytes) -> bool:
    """Whether a file begins as PyTorch's did before version 1.6: with a pickle of a magic number."""
    return start[:1] == b"\x80" and _MAGIC.to_bytes(10, "little") in start[:16]


LEGACY = (
    "not supported: .pt files in PyTorch's format from before version 1.6; write it anew with PyTorch: "
    "torch.save(torch.load(path, weights_only=True), path)"
)


def _key(k: Any) -> Any:
    if isinstance(k, _Found | _Named | _Storage | _Dtype | type):
        raise TorchFileError("load: a dict of this file has a key that is no number and no text")
    return k


def _finished(x: Any, made: dict[int, Any]) -> Any:
    """Tensors for what was found, in dicts, lists, tuples and sets; what is there twice is one tensor."""
    if isinstance(x, _Found):
        if id(x) not in made:
            made[id(x)] = tensor(x.array, requires_grad=x.requires_grad)
        return made[id(x)]
    if isinstance(x, dict):
        known = made.get(id(x))
        if known is None:
            known = made[id(x)] = OrderedDict() if isinstance(x, OrderedDict) else {}
            known.update((_key(k), _finished(v, made)) for k, v in x.items())
        return known
    if isinstance(x, list):
        known = made.get(id(x))
        if known is None:
            known = made[id(x)] = []
            known += [_finished(v, made) for v in x]
        return known
    if type(x) is tuple:
        # NOTE: tuples of the same tuples are one each, or a short file could ask for 2 ** n of them.
        if id(x) not in made:
            made[id(x)] = tuple(_finished(v, made) for v in x)
        return made[id(x)]
    if isinstance(x, _Dtype):
        return x.dtype
    if isinstance(x, _Named | _Storage | type):
        raise TorchFileError(f"load: this file holds {type(x).__name__.strip('_').lower()!r}, which is no value")
    return x
