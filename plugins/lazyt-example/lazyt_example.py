"""A backend of lazyt to copy: two devices in NumPy's memory, with streams, staging memory and generated code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from lazyt.backends import KernelArguments, Pending, Properties, StreamedBackend
from lazyt.ir import kernel as k
from lazyt.ir.kernel_interpreter import convert_scalar, evaluate_op
from lazyt.ir.library_calls import FUNCTIONS
from lazyt.ir.numpy_semantics import cast

Array = np.ndarray[Any, Any]

DEVICES, MEMORY = 2, 1 << 30


class StagingPool:
    """Memory that copies to a device go through, kept for the next: on a real device it would be page-locked."""

    def __init__(self) -> None:
        self.free: defaultdict[int, list[Array]] = defaultdict(list)  # by size, a power of two

    def take(self, nbytes: int) -> Array:
        size = 1 << max(nbytes - 1, 4095).bit_length()
        try:
            return self.free[size].pop()
        except IndexError:
            return np.empty(size, np.uint8)

    def give(self, a: Array) -> None:
        self.free[a.nbytes].append(a)


class ExampleBackend(StreamedBackend):
    """Devices `example:0` and `example:1`."""

    name = "example"
    interface_version = 1
    autocast_dtype = "bfloat16"

    def __init__(self) -> None:
        super().__init__()
        self.staging = StagingPool()

    def device_count(self) -> int:
        return DEVICES

    def properties(self, device: str) -> Properties:
        return Properties("NumPy's memory", MEMORY)

    # Memory

    def allocate(self, nbytes: int, device: str) -> Array:
        if self.allocator.statistics(device).allocated + nbytes > MEMORY:
            raise MemoryError(f"it has {MEMORY:,}")
        return np.empty(nbytes, np.uint8)

    def write(self, block: Array, content: Array, device: str) -> Pending:
        staged = self.staging.take(content.nbytes)
        staged[: content.nbytes] = content

        def copy() -> None:
            block[: content.nbytes] = staged[: content.nbytes]
            self.staging.give(staged)

        return self.current_stream(device).submit(copy)

    def read(self, block: Array, into: Array, device: str) -> None:
        into[:] = block[: into.nbytes]

    def view(self, block: Array) -> Array:
        return block

    # Code

    def compile_kernel(self, kernel: k.Kernel, device: str) -> Callable[[KernelArguments], None] | None:
        return ElementwiseCode(kernel) if ElementwiseCode.suits(kernel) else None

    def function(self, fn: str) -> Callable[..., Any] | None:
        return np.matmul if fn == "matmul" else FUNCTIONS[fn] if fn == "sort" else None


class ElementwiseCode:
    """A map kernel as a Python function over NumPy views: a statement for each value of the kernel IR."""

    def __init__(self, kernel: k.Kernel) -> None:
        lines = [f"# {kernel.title}", "def run(view, op, cast, full, scalars):"]
        for i, v in enumerate(kernel.values):
            match v:
                case k.Load():
                    lines.append(f"    v{i} = view({v.access})")
                case k.Const():
                    lines.append(f"    v{i} = full({v.value!r}, {v.dtype.name!r})")
                case k.Scalar():
                    lines.append(f"    v{i} = full(scalars[{v.position}], {v.dtype.name!r})")
                case k.Op():
                    lines.append(
                        f"    v{i} = op({v.name!r}, [{', '.join(f'v{o}' for o in v.operands)}], {v.dtype.name!r})"
                    )
                case k.Cast():
                    lines.append(f"    v{i} = cast(v{v.operand}, {v.dtype.name!r})")
        lines += [f"    view({s.access})[...] = v{s.value}" for stage in kernel.stages for s in stage.stores]
        self.source = "\n".join(lines) + "\n"
        self._dtypes = {v.dtype.name: v.dtype for v in kernel.values if hasattr(v, "dtype")}
        space: dict[str, Any] = {"inf": np.inf, "nan": np.nan}
        exec(compile(self.source, f"<kernel {kernel.title}>", "exec"), space)
        self._run = space["run"]

    @staticmethod
    def suits(kernel: k.Kernel) -> bool:
        """Whether it only loads, computes element by element, and stores."""
        plain = all(isinstance(v, k.Load | k.Const | k.Scalar | k.Op | k.Cast) for v in kernel.values)
        return plain and kernel.rows == 0 and all(getattr(v, "where", None) is None for v in kernel.values)

    def __call__(self, args: KernelArguments) -> None:
        d = self._dtypes
        with np.errstate(all="ignore"):
            self._run(
                args.view,
                lambda name, xs, dtype: evaluate_op(name, xs, d[dtype]),
                lambda x, dtype: cast(x, d[dtype]),
                lambda x, dtype: np.asarray(convert_scalar(x, d[dtype]), d[dtype]),
                args.scalars,
            )
