"""Compiled kernels: functions by address, LLVM IR and sources, called by a declared C signature.

    void scale(const float* x, int64_t size, double factor, float* out)

The names of parameters say what they get: a tensor of the schema (a pointer to const), `out` (`out0`, `out1`, ... where
there are several results), `NAME_shape`, `NAME_ndim` and `NAME_size` of a tensor or result, `size` of the first
result, or a number of the schema.
"""

from __future__ import annotations

import ctypes
import re
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lazyt.backends.registry import host
from lazyt.errors import DTypeError, KernelError
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.library.schema import Argument, Schema, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Recorded = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]

# C's names of types -> lazyt's dtypes and ctypes' types.
_INTEGERS = [f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)]
TYPES: dict[str, tuple[np.dtype[Any], Any]] = {
    **{f"{name}_t": (getattr(dtypes, name), getattr(ctypes, f"c_{name}")) for name in _INTEGERS},
    "float": (dtypes.float32, ctypes.c_float),
    "double": (dtypes.float64, ctypes.c_double),
    "bool": (dtypes.bool_, ctypes.c_bool),
    "int": (dtypes.int32, ctypes.c_int),
    "long long": (dtypes.int64, ctypes.c_longlong),
    "_Float16": (dtypes.float16, None),
    "__half": (dtypes.float16, None),
    "__bf16": (dtypes.bfloat16, None),
    "__nv_bfloat16": (dtypes.bfloat16, None),
}
_SIGNATURE = re.compile(r"\s*(void|int)\s+([A-Za-z_]\w*)\s*\((.*)\)\s*;?\s*", re.DOTALL)
_PARAMETER = re.compile(r"(const\s+)?(.*?)\s*(\*?)\s*(?:__restrict__\s+|restrict\s+)?([A-Za-z_]\w*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a C function."""

    name: str
    type: str
    is_pointer: bool
    is_const: bool


def parameters(signature: str) -> tuple[str, str, list[Parameter]]:
    """The type that a C function returns, its name, and its parameters; SchemaError, with the place, for other text."""
    m = _SIGNATURE.fullmatch(signature)
    if m is None:
        raise SchemaError(
            f"signature: a C function that gives void or int is required\n  {signature}\n  ^ such as "
            "'void f(const float* x, int64_t size, float* out)'"
        )
    found: list[Parameter] = []
    at = m.start(3)
    for part in m.group(3).split(","):
        stripped = part.strip()
        place = at + len(part) - len(part.lstrip())
        at += len(part) + 1
        if not stripped:
            continue
        p = _PARAMETER.fullmatch(stripped)
        if p is None or p.group(2).strip() not in TYPES:
            known = ", ".join(TYPES)
            raise SchemaError(
                f"signature: {stripped!r} is no parameter; types are {known}, and pointers to them\n  {signature}\n"
                f"  {' ' * place}^"
            )
        found.append(Parameter(p.group(4), p.group(2).strip(), bool(p.group(3)), bool(p.group(1))))
    return m.group(1), m.group(2), found


@dataclass(frozen=True, slots=True)
class Source:
    """What a parameter gets: 'tensor', 'out', 'number', 'shape', 'ndim' or 'size' of argument or result `index`."""

    what: str
    index: int = 0
    of_result: bool = False


class Compiled(ABC):
    """A C function bound to the schema of an operation, which writes results that are there."""

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.returns, self.name, self.parameters = parameters(signature)
        self.sources: list[Source] = []
        self.schema: Schema | None = None

    def bound(self, schema: Schema) -> Self:
        """This function for an operation; SchemaError where a parameter means nothing there."""
        made = self._again()
        made.schema, made.sources = schema, [_source(schema, p, self.signature) for p in self.parameters]
        written = {s.index for s in made.sources if s.what == "out"}
        missing = [k for k in range(schema.results) if k not in written]
        if missing:
            raise SchemaError(f"signature: {self.signature} writes no result {missing[0]} of {schema}")
        return made

    @abstractmethod
    def _again(self) -> Self:
        """The same code, which is not bound."""

    @abstractmethod
    def launch(self, xp: Any, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Call it on arrays of `xp`, and have it write the results."""

    def run(self, xp: Any, arguments: Sequence[Any], recorded: Recorded) -> Any:
        """The results, in new memory."""
        results = tuple(xp.empty(shape, dtype) for shape, dtype in recorded)
        self.launch(xp, arguments, results)
        return results

    def check(self, schema: Schema, values: Sequence[Any], recorded: Recorded) -> None:
        """DTypeError where a tensor is not of the dtype that the signature says; at the line of the call."""
        for p, s in zip(self.parameters, self.sources, strict=True):
            if s.what not in ("tensor", "out") or (s.what == "tensor" and values[s.index] is None):
                continue
            dtype = recorded[s.index][1] if s.what == "out" else values[s.index].dtype
            if dtype != TYPES[p.type][0]:
                what = "result" if s.what == "out" else "argument"
                raise DTypeError(
                    f"{schema.qualified}: {what} {p.name!r} is {dtype}, and its kernel takes {p.type}* "
                    f"({self.signature})"
                )

    def _given(self, xp: Any, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """A value for each parameter: an array, a number, or None."""
        found: list[Any] = []
        for s in self.sources:
            x = results[s.index] if s.of_result else arguments[s.index]
            if s.what == "tensor":
                x = None if x is None else xp.ascontiguousarray(x)
            elif s.what == "shape":
                x = xp.asarray(x.shape, dtype=np.int64)
            elif s.what == "ndim":
                x = len(x.shape)
            elif s.what == "size":
                x = int(x.size)
            found.append(x)
        return found


def _source(schema: Schema, p: Parameter, signature: str) -> Source:
    names = {a.name: (i, a) for i, a in enumerate(schema.arguments)}

    def fail(why: str) -> SchemaError:
        return SchemaError(f"signature: parameter {p.name!r} of {signature}: {why} (schema: {schema})")

    if p.name in names:
        i, a = names[p.name]
        if a.is_list:
            raise fail(f"not supported: {a.type}, because it has no form in C")
        if a.kind == "Tensor":
            if not p.is_pointer or not p.is_const:
                raise fail("a tensor is passed as a pointer to const: inputs are not written")
            return Source("tensor", i)
        return _number(a, i, p, fail)
    results = {"out": 0} if schema.results == 1 else {}
    results |= {f"out{k}": k for k in range(schema.results)}
    if p.name in results:
        if not p.is_pointer or p.is_const:
            raise fail("a result is written: it is a pointer, and not to const")
        return Source("out", results[p.name], True)
    base, _, what = p.name.rpartition("_")
    if p.name == "size":
        base, what = "out0" if schema.results > 1 else "out", "size"
    if what in ("shape", "ndim", "size") and (base in results or (base in names and names[base][1].kind == "Tensor")):
        if (what == "shape") != p.is_pointer or (what == "shape" and p.type not in ("int64_t", "long long")):
            raise fail("a shape is const int64_t*, a size or an ndim an integer")
        return Source(what, results[base], True) if base in results else Source(what, names[base][0])
    raise fail("no argument, result, or size has this name")


def _number(a: Argument, i: int, p: Parameter, fail: Callable[[str], SchemaError]) -> Source:
    kinds = {"float": "f", "int": "iu", "bool": "b"}
    if a.optional or p.is_pointer or dtypes.kind(TYPES[p.type][0]) not in kinds.get(a.kind, ""):
        raise fail(f"{p.type}{'*' * p.is_pointer} is no form of {a.type}")
    return Source("number", i)


def _address(pointer: Any) -> int:
    """The address of a function: an integer, of ctypes, of cffi, or anything with an `address` (as Numba's cfunc)."""
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        found = pointer
    elif hasattr(pointer, "address"):
        found = int(pointer.address)
    elif isinstance(pointer, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        found = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    elif type(pointer).__module__ == "_cffi_backend":
        found = int(sys.modules["_cffi_backend"].FFI().cast("uintptr_t", pointer))
    else:
        raise TypeError(
            f"c_function: an address, or a function of ctypes, cffi or Numba (cfunc) is required, got {pointer!r}"
        )
    if not found:
        raise ValueError("c_function: the address of the function is null")
    return found


class CFunction(Compiled):
    """A function in memory; see `c_function`."""

    def __init__(self, address: int, signature: str, keep: Any) -> None:
        super().__init__(signature)
        for p in self.parameters:
            if not p.is_pointer and TYPES[p.type][1] is None:
                raise SchemaError(f"signature: {p.type} {p.name!r} of {signature} cannot be passed as a number")
        self.address, self.keep = address, keep
        types = [ctypes.c_void_p if p.is_pointer else TYPES[p.type][1] for p in self.parameters]
        self.call = ctypes.CFUNCTYPE(ctypes.c_int if self.returns == "int" else None, *types)(address)

    def _again(self) -> Self:
        return type(self)(self.address, self.signature, self.keep)

    def launch(self, xp: Any, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Call it on NumPy's arrays; KernelError if it gives anything but 0."""
        given = self._given(xp, arguments, results)
        status = self.call(*[x.ctypes.data if isinstance(x, np.ndarray) else x for x in given])
        if status:
            raise KernelError(f"{self.name} reported a failure: it gave {status}, and 0 is success")


class _Launched(Compiled):
    """A source whose function is launched in blocks of work-items, on arrays of the device."""

    language = ""

    def __init__(self, source: str, signature: str, block: int, grid: Callable[..., Any] | None) -> None:
        super().__init__(signature)
        if self.returns != "void":
            raise SchemaError(f"signature: a kernel of {self.language} gives void: {signature}")
        self.source, self.block, self.grid = source, block, grid

    def _again(self) -> Self:
        return type(self)(self.source, self.signature, self.block, self.grid)

    def launch(self, xp: Any, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Launch it on the current stream."""
        given = self._given(xp, arguments, results)
        size = int(results[0].size)
        blocks = (-(-size // self.block),) if self.grid is None else tuple(self.grid(*(r.shape for r in results)))
        numbers = [
            x if p.is_pointer or x is None else TYPES[p.type][0].type(x)
            for p, x in zip(self.parameters, given, strict=True)
        ]
        if size:
            self._function(xp)(blocks, (self.block,), tuple(numbers))

    @abstractmethod
    def _function(self, xp: Any) -> Any:
        """What launches it, of numbers of blocks, the size of one, and arguments."""


class CudaSource(_Launched):
    """CUDA C; see `cuda_source`."""

    language = "CUDA C"
    _kernel: Any = None

    def _function(self, xp: Any) -> Any:
        if self._kernel is None:
            self._kernel = xp.RawKernel(self.source, self.name, options=("--std=c++17",))
        return self._kernel


class KernelSource(_Launched):
    """Another language, which backends of plugins compile; see `kernel_source`."""

    def __init__(self, source: str, signature: str, block: int, grid: Callable[..., Any] | None, language: str) -> None:
        self.language = language
        super().__init__(source, signature, block, grid)

    def _again(self) -> Self:
        return type(self)(self.source, self.signature, self.block, self.grid, self.language)

    def _function(self, xp: Any) -> Any:
        return xp.load_source(self.source, self.name, self.language)


def c_function(pointer: Any, signature: str) -> CFunction:
    """A kernel for the CPU by address: `impl("ns::name", "cpu", c_function(pointer, "void f(const float* x, ...)"))`.

    `pointer` is an address, or a function of ctypes, cffi or Numba (`cfunc`). The names of the parameters say what they
    get: a tensor of the schema (`const float* x`), `out` (or `out0`, `out1`, ...), `x_shape` (`const int64_t*`),
    `x_ndim`, `x_size`, `size` of the first result, and the schema's numbers. Arrays are C-contiguous. A function that
    gives int says 0 for success; anything else is a KernelError at the sync. Dtypes are checked where a call is
    recorded. The function runs without the interpreter's lock, and must not write its inputs.
    Raises SchemaError for a signature that does not fit.

    >>> import lazyt as lt, ctypes
    >>> kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    >>> fill = kind(lambda out, size: ctypes.memset(out, 0, 4 * size) and None)
    >>> none = lt.library.define("docs::none(Tensor x) -> Tensor")
    >>> _ = none.impl("cpu", lt.library.c_function(fill, "void none(float* out, int64_t size)"))
    >>> _ = none.register_fake(lambda x: x)
    >>> none(lt.ones(2)).tolist()
    [0.0, 0.0]
    """
    return CFunction(_address(pointer), signature, pointer)


def llvm_ir(text: str, signature: str) -> CFunction:
    """A kernel for the CPU as LLVM IR: the function that the C signature names, which is compiled for this processor.

    The signature is that of `c_function`. Raises KernelError where LLVM refuses the text, with its message.

    >>> import lazyt as lt
    >>> text = "define void @first(ptr %x, ptr %out) { %v = load float, ptr %x store float %v, ptr %out ret void }"
    >>> first = lt.library.define("docs::first(Tensor x) -> Tensor")
    >>> _ = first.impl("cpu", lt.library.llvm_ir(text, "void first(const float* x, float* out)"))
    >>> _ = first.register_fake(lambda x: x.new_empty(()))
    >>> first(lt.asarray([5.0, 6.0])).item()
    5.0
    """
    _, name, _ = parameters(signature)
    code = host().load_code(text, name)
    return CFunction(code.address, signature, code)


def cuda_source(source: str, signature: str, *, block: int = 256, grid: Callable[..., Any] | None = None) -> CudaSource:
    """A kernel for NVIDIA GPUs as CUDA C: the `extern "C" __global__` function that the signature names.

    The signature is that of `c_function`. It is launched with `block` threads in each block; `grid` gives the numbers
    of blocks of the shapes of the results, and is by default one thread an element of the first. NVRTC compiles the
    source at the first call. Nothing is launched for empty results.

    >>> import lazyt as lt
    >>> kernel = lt.library.cuda_source(
    ...     'extern "C" __global__ void twice(const float* x, long long size, float* out) {'
    ...     "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < size) out[i] = 2 * x[i]; }",
    ...     "void twice(const float* x, long long size, float* out)")
    >>> twice = lt.library.define("docs::twice(Tensor x) -> Tensor")
    >>> _ = twice.impl("cuda", kernel)
    """
    return CudaSource(source, signature, block, grid)


def kernel_source(
    source: str, signature: str, *, language: str, block: int = 256, grid: Callable[..., Any] | None = None
) -> KernelSource:
    """A kernel in a language that a backend compiles (`Backend.languages`), such as 'OpenCL C' of lazyt-opencl.

    The signature is that of `c_function`, with C's names of types; it names the function of the source. It is launched
    in groups of `block` work-items; `grid` gives the numbers of groups of the shapes of the results, and is by default
    one work-item an element of the first. The backend compiles it at the first call. Nothing is launched for empty
    results. Raises SchemaError for a signature that does not fit, KernelError, with the compiler's message, at a sync.

    >>> import lazyt as lt
    >>> text = "__kernel void twice(__global const float* x, long size, __global float* out) {"
    >>> text += "size_t i = get_global_id(0); if (i < size) out[i] = 2 * x[i]; }"
    >>> signature = "void twice(const float* x, int64_t size, float* out)"
    >>> kernel = lt.library.kernel_source(text, signature, language="OpenCL C")
    >>> twice = lt.library.define("docs::doubled(Tensor x) -> Tensor")
    >>> twice.impl("cpu", kernel)
    Traceback (most recent call last):
    lazyt.library.registration.RegistrationError: impl: backend 'cpu' compiles no OpenCL C; it compiles no source
    """
    return KernelSource(source, signature, block, grid, language)
