"""`save` and `load`: tensors in a safetensors file when that library is there, else in NumPy's `.npz`.

Nothing is pickled: a file from a stranger can hold arrays, numbers and texts, and nothing else.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.functions import torch_files
from lazyt.functions.archives import Allowance, Archive, FileError, UnsupportedFile, parsing
from lazyt.functions.conversion import tensor
from lazyt.functions.pickle_records import shown
from lazyt.ir import dtypes
from lazyt.runtime.device import check as check_device
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.tensor_state import Handle

_SEPARATOR = "."
_numbers = itertools.count()
_STORED = {"F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2}
_FOREIGN = {f"__{d.name}__": d for d in dtypes.ALL if dtypes.of(d).foreign}
# Where a file says how its arrays stood in what was saved: a text of JSON, an entry of a .npz or safetensors' metadata.
_TREE = "__lazyt__"
_ZIP = b"PK"
_KEYS = (str, int, float, bool, type(None))
# What a header of NumPy's format says of an array of numbers; records, texts and objects have another dtype.
_HEADER = [
    re.compile(rb"""['"]%s['"]\s*:\s*%s""" % field)
    for field in (
        (b"descr", rb"""['"]([<>|=]?[biufc]\d{1,2})['"]"""), (b"fortran_order", b"(True|False)"),
        (b"shape", rb"\(([\d\s,L]*)\)"),
    )
]  # fmt: skip
_LONGEST_HEADER = 10_000
_DEEP = 200
_OF_TEXT = 32  # bytes that a byte of JSON takes as an object


class _Writer:
    """Arrays by name, and the tree that they stood in as JSON: a list of its kind and what is in it."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.open: list[Any] = []

    def node(self, x: Any, name: str) -> list[Any]:
        """A part of the tree; its arrays go by the keys that lead to them, and a number where two have one name."""
        if isinstance(x, Handle | np.ndarray | np.generic):
            unique, n = name, 1
            while unique in self.arrays:
                n += 1
                unique = f"{name}~{n}"
            self.arrays[unique] = tensor(x)._array("save") if not isinstance(x, Handle) else x._array("save")
            return ["tensor", unique]
        if isinstance(x, float):
            return ["float", float(x).hex() if np.isfinite(x) else str(float(x))]
        if isinstance(x, complex):
            return ["complex", self.node(x.real, name), self.node(x.imag, name)]
        if x is None or isinstance(x, bool | int | str):
            return ["is", x]
        if isinstance(x, bytes):
            return ["bytes", x.decode("latin1")]
        if not isinstance(x, dict | list | tuple):
            instead = "; save its state_dict()" if hasattr(x, "state_dict") else ""
            raise DTypeError(
                "save: tensors, numbers, strings, bytes, None, and dicts, lists and tuples of them are saved, not "
                f"{type(x).__name__!r} (at {name or 'the top'!r}){instead}"
            )
        if any(x is outer for outer in self.open):
            raise DTypeError(f"save: {type(x).__name__!r} at {name!r} is inside itself")
        self.open.append(x)
        inside = f"{name}{_SEPARATOR}" if name else ""
        if isinstance(x, dict):
            for k in x:
                if type(k) not in _KEYS:
                    raise DTypeError(f"save: keys are strings, numbers or None, not {k!r}")
            out = ["dict", *([k, self.node(v, f"{inside}{k}")] for k, v in x.items())]
        else:
            out = ["list" if isinstance(x, list) else "tuple"]
            out += [self.node(v, f"{inside}{i}") for i, v in enumerate(x)]
        self.open.pop()
        return out


def _read(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The value of a node of the tree that `_Writer` wrote."""
    whole: list[Any] = node if type(node) is list and node else [None]
    kind, *rest = whole
    if kind in ("list", "tuple"):
        found = [_read(x, tensors) for x in rest]
        return found if kind == "list" else tuple(found)
    if kind == "dict" and all(type(pair) is list and len(pair) == 2 and type(pair[0]) in _KEYS for pair in rest):
        return {k: _read(v, tensors) for k, v in rest}
    if kind == "complex" and len(rest) == 2:
        parts = [_read(x, tensors) for x in rest]
        if all(type(x) is float for x in parts):
            return complex(*parts)
    if len(rest) == 1:
        x = rest[0]
        if kind == "is" and type(x) in _KEYS:
            return x
        if type(x) is str:
            if kind == "tensor" and x in tensors:
                return tensors[x]
            if kind == "float":
                return float.fromhex(x)
            if kind == "bytes":
                return x.encode("latin1")
    raise FileError(f"its tree is damaged, or of a newer lazyt: {shown(node)} stands in it")


def save(tree: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write a tensor, or dicts, lists and tuples of tensors (a `state_dict()`), numbers, strings and None; syncs.

    `.safetensors` files need the safetensors package; any other name, and a binary file object, is written as an
    uncompressed `.npz`. A named file is replaced atomically. Raises DTypeError for anything else in the tree.

    >>> import lazyt as lt, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.npz")
    >>> lt.save({"w": lt.ones(2), "epochs": [1, 2.5]}, path)
    >>> lt.load(path)
    {'w': <lazyt.Tensor shape=(2,) dtype=float32 device=cpu [1., 1.]>, 'epochs': [1, 2.5]}
    """
    w = _Writer()
    text = json.dumps(w.node(tree, ""))
    if not isinstance(path, str | os.PathLike):
        _write_npz(path, w.arrays, text)
        return
    path = os.fspath(path)
    # NOTE: a number too, for a signal handler, or another thread, may write to the same path meanwhile.
    partial = f"{path}.partial.{os.getpid()}.{next(_numbers)}"
    try:
        if path.endswith(".safetensors"):
            # NOTE: `ascontiguousarray` makes a 0-d array 1-d.
            arrays = {k: np.asarray(v, order="C") for k, v in w.arrays.items()}
            _library().numpy.save_file(arrays, partial, metadata={_TREE: text})
        else:
            with open(partial, "wb") as f:
                _write_npz(f, w.arrays, text)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _write_npz(f: IO[bytes], arrays: dict[str, np.ndarray[Any, Any]], text: str) -> None:
    entries = {_encode(k, v): _plain(v) for k, v in arrays.items()}
    try:
        np.savez(f, **{_TREE: np.frombuffer(text.encode(), np.uint8)}, **entries)  # type: ignore[arg-type]
    except Exception as e:
        # NOTE: `zipfile` cannot close what an interrupt left open, and raises an error of its own in its place.
        cause = e.__context__
        while isinstance(cause, Exception):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        raise


def load(
    path: str | os.PathLike[str] | IO[bytes], map_location: Any = None, *, weights_only: bool | None = True
) -> Any:  # fmt: skip
    """The tree that `save` wrote, from a name or a binary file object; of files of others a flat dict of tensors.

    The format is found by the first bytes: `.npz`, `.safetensors`, or PyTorch's `.pt`, whose dicts, lists, tuples,
    numbers and tensors are as `torch.save` had them. Nothing in a file is run: one that asks for more than tensors and
    containers raises an error that names it, with `weights_only=False` too. Each tensor has memory of its own.
    `map_location`: a device to move all tensors to. Raises OSError for a missing file; StateError, a ValueError, for
    a damaged one, and for one whose content would take much more memory than the file has bytes.
    """
    device = None if map_location is None else check_device(map_location)
    if isinstance(path, str | os.PathLike):
        with open(path, "rb") as f:
            return _opened(f, os.fspath(path), device)
    name = getattr(path, "name", "")
    return _opened(io.BytesIO(path.read()), name if isinstance(name, str) else "", device, "")


def _opened(f: io.BufferedIOBase, name: str, device: Any, path: str | None = None) -> Any:
    """The content of a file. path: where safetensors finds it, "" for nowhere (default: its name)."""
    file = f"{name!r}" if name else "this file"

    def make(a: np.ndarray[Any, Any], requires_grad: bool = False) -> Tensor:
        # NOTE: a damaged bool may be a byte of any value, and compiled code relies on 0 and 1.
        a = a.view(np.uint8) != 0 if a.dtype == np.bool_ else a
        return tensor(a, device=device, requires_grad=requires_grad)

    try:
        return _loaded(f, name if path is None else path, make)
    except FileError as e:
        raise type(e)(f"load: {file}: {e}") from e.__cause__


def _loaded(f: io.BufferedIOBase, path: str, make: Callable[..., Tensor]) -> Any:
    start = f.read(512)
    f.seek(0)
    if start[:2] == _ZIP:
        archive = Archive(f)
        return torch_files.read_zip(archive, make) if torch_files.is_torch_zip(archive.names) else _npz(archive, make)
    if torch_files.is_legacy(start):
        return torch_files.read_legacy(f, make)
    if start[257:262] == b"ustar":
        raise UnsupportedFile(
            "not supported: tar archives, as PyTorch before version 0.1.10 wrote them; load and save it with PyTorch"
        )
    if start[8:9] != b"{":
        raise FileError(f"it is neither an .npz, nor a .safetensors, nor a .pt file: it begins with {start[:16]!r}")
    if path:
        return _load_safetensors(path, make)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "held.safetensors")
        with open(path, "wb") as held:
            held.write(f.read())
        return _load_safetensors(path, make)


def _npz(archive: Archive, make: Callable[..., Tensor]) -> Any:
    """The arrays of an `.npz` file, and its tree if lazyt wrote it."""
    allowance = Allowance(archive.size, 64, "the arrays of it", "save them with numpy.savez, which does not compress")
    text, tensors, largest = None, {}, 0
    for name in archive.names:
        key = name.removesuffix(".npy")
        a = _npy(name, archive.read(name, allowance))
        if key == _TREE:
            if not archive.is_stored(name):
                allowance.take(_OF_TEXT * a.nbytes)
            with parsing():
                text = a.tobytes().decode()
            continue
        # NOTE: the bytes of one entry are there beside its tensor.
        allowance.take(max(a.nbytes - largest, 0))
        largest = max(largest, a.nbytes)
        marked = _FOREIGN.get(key.partition("/")[0])
        if marked is not None:
            if a.dtype != dtypes.of(marked).bits_dtype:
                raise FileError(f"it is damaged: the {marked} array {name!r:.80} has the dtype {a.dtype}")
            a = a.view(marked)
        tensors[_decode(key)] = make(a)
    return _placed(text, tensors)


@parsing()
def _npy(name: str, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array of an entry in NumPy's format."""
    start = raw[:12].tobytes()
    wide = 2 if start[6:7] == b"\1" else 4
    first = 8 + wide
    end = first + int.from_bytes(start[8:first], "little")
    header = raw[first : min(end, _LONGEST_HEADER)].tobytes()
    found = [pattern.search(header) for pattern in _HEADER]
    if start[:6] != b"\x93NUMPY" or end > min(len(raw), _LONGEST_HEADER) or not all(found):
        raise FileError(f"entry {name!r:.80} is no array of numbers in NumPy's format")
    descr, order, sizes = (m[1].decode() for m in found if m)
    dtype = np.dtype(descr)
    if not dtypes.is_known(dtype.newbyteorder("=")):
        raise FileError(f"entry {name!r:.80} has the dtype {dtype}, which no tensor has")
    shape = tuple([int(n) for n in sizes.replace("L", "").split(",") if n.strip()])
    count = math.prod(shape)
    if count * dtype.itemsize > len(raw) - end:
        raise FileError(f"it is damaged: entry {name!r:.80} of {len(raw) - end} bytes holds no {shape} of {dtype}")
    a = raw[end : end + count * dtype.itemsize].view(dtype).reshape(shape, order="F" if order == "True" else "C")
    return a.astype(dtype.newbyteorder("="), copy=False)


def _load_safetensors(path: str, make: Callable[..., Tensor]) -> Any:
    library, tensors = _library(), {}
    with parsing():
        f = library.safe_open(path, framework="np")
    # NOTE: NumPy's side of the library reads no floats of 8 bits. It has checked the header.
    with open(path, "rb") as held:
        start = 8 + int.from_bytes(held.read(8), "little")
        header = json.loads(held.read(start - 8))
    with f:
        for k in f.keys():  # noqa: SIM118 - it is no dict
            with parsing():
                stored = _STORED.get(header[k]["dtype"])
                if stored is None:
                    a = f.get_tensor(k)
                else:
                    first, end = header[k]["data_offsets"]
                    raw = np.fromfile(path, np.uint8, end - first, offset=start + first)
                    a = raw.view(stored).reshape(header[k]["shape"])
            if not dtypes.is_known(a.dtype):
                raise FileError(f"{k!r:.80} has the dtype {a.dtype}, which no tensor has")
            tensors[k] = make(a)
        return _placed((f.metadata() or {}).get(_TREE), tensors)


@parsing()
def _placed(text: str | None, tensors: dict[str, Tensor]) -> Any:
    """The tree of a text, with its tensors; without a text the lone tensor, or all by name."""
    if text is None:
        return tensors[""] if set(tensors) == {""} else tensors
    try:
        return _read(json.loads(text), tensors)
    except RecursionError:
        if _depth(text) < _DEEP:
            raise  # the caller's own calls
        raise FileError(f"its tree is nested {_depth(text)} deep") from None


def _depth(text: str) -> int:
    """The depth to which the lists of a text of JSON are nested."""
    brackets = re.sub(r'"(?:[^"\\]|\\.)*"|[^\[\]"]', "", text)
    return max(itertools.accumulate((1 if c == "[" else -1 for c in brackets), initial=0))


def _library() -> Any:
    if importlib.util.find_spec("safetensors") is None:
        raise NotSupportedError(
            "not supported: .safetensors files, because the package is missing: pip install safetensors"
        )
    import safetensors.numpy  # an optional dependency, loaded when a file of its kind is named

    return safetensors


# NumPy's format knows no bfloat16: its bits travel as uint16 under a marked name. An empty name is the lone tensor.
def _encode(name: str, a: np.ndarray[Any, Any]) -> str:
    return (f"__{a.dtype.name}__" if dtypes.of(a.dtype).foreign else "") + "/" + name


def _plain(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(dtypes.of(a.dtype).bits_dtype) if dtypes.of(a.dtype).foreign else a


def _decode(key: str) -> str:
    # A file that another program wrote has names without the prefix.
    return key.partition("/")[2] if key.partition("/")[0] in ("", *_FOREIGN) else key


__all__ = ["load", "save"]
