"""One launch of a plan, for a person to read: what it fuses, over what, what it moves and computes, and its code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from lazyt.backends import cuda
from lazyt.backends.cpu.binding import DONATED
from lazyt.backends.cpu.code_cache import assembly_of, code_at, source_of
from lazyt.backends.cpu.codegen.emit import ways_of
from lazyt.backends.cpu.executor import Bound
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import blas
from lazyt.backends.cpu.library.attention_tile import KEYS
from lazyt.backends.cpu.library.registry import bound_room_of
from lazyt.backends.cpu.thread_pool import get_num_threads
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes, graph as g, kernel as k
from lazyt.ir.graph_interpreter import Walk
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, LibraryCall, MatmulCall, ScatterCall, nbytes
from lazyt.ir.passes.split_reduction import worth_splitting
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.symbolic import Dim
from lazyt.tracing.printer import bytes_text, count_text, html_text, plural, site_text

if TYPE_CHECKING:
    from lazyt.backends.cpu.library.products import Choice
    from lazyt.ir.graph import Node, Origin
    from lazyt.ir.passes.schedule import Launch
    from lazyt.runtime.plan_cache import Plan

Size = Callable[[int | Dim], int]

# Lines of what a kernel fuses and stores that are written out.
SHOWN = 8

# Why a value is stored rather than computed where it is read (ir/passes/fuse.py names the reasons).
WHY = {
    "output": "somebody holds it",
    "places": "wanted at several places, and not cheap to compute at each",
    "repeated": "would be computed again along an axis that it does not have",
    "axes": "read through an index map that is not affine",
    "size": "the kernel is as large as kernels get",
    "needs": "one kernel would need more stack, or more code, than kernels may",
    "reduction": "a reduction that another kernel reads when it is finished",
    "call": "made by a library call",
    "matmul": "a matrix product reads it from memory",
    "opaque": "a library call reads it from memory",
    "scatter": "a scatter reads it from memory",
    "gathered": "read at indices that are data",
    "complex": "its real and imaginary parts are read from memory",
    "reshaped": "read in another shape",
    "part": "it is a part of a concatenation",
    "concat": "its parts are written by several kernels",
    "update": "it is written over a copy",
    "fusion is off": "one operation a kernel",
}
ARITHMETIC = frozenset(ELEMENTWISE) - frozenset(
    (
        "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shl", "shr", "select", "real", "imag", "conj",
        "complex", "copysign", "random_bits", "isnan", "isinf", "isfinite", "signbit", "nextafter",
    )
)  # fmt: skip


class KernelView:
    """A kernel or library call of a plan, at the sizes of one walk. Nothing here runs or compiles anything."""

    def __init__(self, number: int, call: Launch, plan: Plan, bound: Bound, size: Size, phase_of: int = 0) -> None:
        self.number = number
        self.phase_of = phase_of  # the number of the kernel whose second phase this is
        self._call = call
        self._plan = plan
        self._bound = bound
        self._size = size

    @property
    def _gpu(self) -> cuda.executor.Bound | None:
        """What is bound for a GPU; None on the CPU, where nothing of the CUDA backend is loaded to know that."""
        bound = self._bound
        return bound if self._on_gpu and isinstance(bound, cuda.executor.Bound) else None

    @property
    def _on_gpu(self) -> bool:
        return self._plan.device != "cpu"

    @cached_property
    def title(self) -> str:
        """The public operations in it, such as `softmax + multiply`; the primitive too in a kernel of just one."""
        names = list(dict.fromkeys(_label(o) for o in self._origins))
        shown = names[:4] + [f"{len(names) - 4} more"] * (len(names) > 4)
        if len(names) == 1 and not self._plan.fused and isinstance(self._call, KernelCall):
            shown[0] += "".join(f" ({n.op})" for n in self._call.nodes[-1:])
        return " + ".join(shown) or "copy"

    @property
    def _choice(self) -> Choice | None:
        """How a product is computed."""
        return self._bound.products[self._call].choice if isinstance(self._call, MatmulCall) else None

    @property
    def _cudnn(self) -> cuda.convolutions.Convolution | None:
        """A convolution that cuDNN is asked for."""
        found = self._bound.products[self._call] if isinstance(self._call, MatmulCall) else None
        return found if self._on_gpu and isinstance(found, cuda.convolutions.Convolution) else None

    @property
    def _map(self) -> KernelCall | None:
        """The kernel, or the epilogue of a product."""
        c = self._call
        return c.epilogue if isinstance(c, MatmulCall) else c if isinstance(c, KernelCall) else None

    @property
    def library(self) -> str:
        """The library and its routine, or the generated product; '' for a kernel alone."""
        c = self._call
        if self._cudnn is not None:
            return self._cudnn.library
        if isinstance(c, MatmulCall):
            how = "numpy" if self._choice is None else self._choice.how
            if how == "generated":
                return f"generated {self._choice.tile} product"  # type: ignore[union-attr]
            if how == "blas":
                if self._on_gpu:
                    return "cuBLAS gemm" + ", tf32" * cuda.products.is_tf32(c.node.dtype)
                return blas.routine(c.node.dtype)
            return "CuPy matmul" if self._on_gpu else "NumPy matmul"
        if isinstance(c, ScatterCall):
            if self._gpu is not None and cuda.scatter.Scatter(self._gpu, c).on_device:
                return "native scatter"
            return "native scatter" if self._plan.executable.native else self._hosted("NumPy scatter in index order")
        if isinstance(c, AttentionCall):
            return "generated attention" if self._attending is None else self._attending.library
        if isinstance(c, LibraryCall):
            assert isinstance(c.node.attrs, g.Opaque)
            fn = c.node.attrs.fn
            if self._plan.executable.native and bound_room_of(self._bound, c) is not None:
                return f"native {fn}"
            if self._on_gpu and fn in cuda.registry.FUNCTIONS:
                return f"CuPy {fn.replace('_', '.', 1)}"
            return self._hosted(f"NumPy {fn.replace('_', '.', 1)}")
        return ""

    @cached_property
    def _attending(self) -> cuda.attention.Attention | cuda.attention_kernels.Kernels | None:
        """What computes a call of attention on a GPU."""
        c, bound = self._call, self._gpu
        return cuda.attention.chosen(bound, c) if isinstance(c, AttentionCall) and bound is not None else None

    @property
    def _attention(self) -> str:
        """The function of a call of attention; '' for anything else."""
        c = self._call
        return c.node.attrs.fn if isinstance(c, AttentionCall) and isinstance(c.node.attrs, g.Opaque) else ""

    @property
    def fallback(self) -> str:
        """Of a call that a GPU's plan does on the host: the operation, its line, and why; '' for anything else."""
        c, bound = self._call, self._gpu
        why = ""
        if bound is not None and isinstance(c, ScatterCall) and not cuda.scatter.Scatter(bound, c).on_device:
            why = "one complex number for all places"
        elif bound is not None and isinstance(c, LibraryCall):
            why = cuda.registry.ON_HOST.get(c.node.attrs.fn, "")  # type: ignore[union-attr]
        if not why or not self._origins:
            return ""
        return fallback_text(self._origins[0].name, self._origins[0].site, why)

    def _hosted(self, what: str) -> str:
        """The name of a call that is NumPy's: a GPU's operands are copied to the host for it."""
        return f"{what}, on the host" if self._on_gpu else what

    @property
    def kernel(self) -> k.Kernel | None:
        """The kernel IR, of a product its epilogue's; None for a library call."""
        return None if self._map is None else self._map.kernel

    @property
    def ir(self) -> str:
        """The kernel IR as text; '' for a library call."""
        return "" if self.kernel is None else self.kernel.text

    def source(self) -> str:
        """The LLVM IR, on a GPU CUDA C; of a product its epilogue's; of a library call one line that says which."""
        if self._gpu is not None and isinstance(self._call, KernelCall):
            return self._gpu.source_of(self._call, [f"{name} at {site}" for name, site in self.fuses])
        if self._on_gpu and isinstance(self._attending, cuda.attention_kernels.Kernels):
            return self._attending.source
        if self.kernel is None and isinstance(self._call, MatmulCall):
            for text, _ in self._bound.products[self._call].modules:
                return text
        return f"; {self.library}: {CODE[self.code]}" if self.kernel is None else source_of(self.kernel)

    def assembly(self) -> str:
        """The assembly for this host, on a GPU SASS; of a product its epilogue's; of a library call one line."""
        if self._gpu is not None and isinstance(self._call, KernelCall):
            return self._gpu.sass_of(self._call)
        if self._on_gpu and isinstance(self._attending, cuda.attention_kernels.Kernels):
            return self._attending.sass()
        return f"# {self.library}: {CODE[self.code]}" if self.kernel is None else assembly_of(self.kernel)

    def sass(self) -> str:
        """The machine code for the GPU that it runs on; NotSupportedError on the CPU, or without nvdisasm."""
        if not self._on_gpu:
            raise NotSupportedError(
                "not supported: sass of a kernel for the CPU, because it is a GPU's; see assembly()"
            )
        return self.assembly()

    @cached_property
    def code(self) -> str:
        """Where its machine code is: 'memory', 'disk', 'library', 'routine', 'product', or '' when not compiled yet."""
        if self._gpu is not None and isinstance(self._call, KernelCall):
            return "memory" if self._gpu.is_loaded(self._call) else ""
        if self._on_gpu and isinstance(self._attending, cuda.attention_kernels.Kernels):
            return "memory" if self._attending.is_loaded else ""
        if self.kernel is not None:
            return code_at(self.kernel)
        if (self._attention and not self._on_gpu) or (self._choice is not None and self._choice.how == "generated"):
            return "product"
        return "routine" if self.library.startswith("native") else "library"

    @cached_property
    def _origins(self) -> list[Origin]:
        c = self._call
        nodes: tuple[Node, ...] = () if isinstance(c, KernelCall) else (c.node,)
        if self._map is not None:
            nodes += self._map.nodes
        found = {n.site: None for n in nodes if isinstance(n.site, g.Origin)}
        return sorted(found, key=lambda o: o.backward)

    @property
    def steps(self) -> set[int]:
        """Where the operations in it stand in the program."""
        return {o.step for o in self._origins}

    @property
    def fuses(self) -> list[tuple[str, str]]:
        """The public operations in it, each with the user's line."""
        return list(dict.fromkeys((_label(o), site_text(o.site)) for o in self._origins))

    @property
    def domain(self) -> str:
        """What it runs over."""
        c = self._call
        if isinstance(c, MatmulCall):
            x, y = (self._shape(n) for n in c.node.operands)
            return f"{g.shape_text(x)} @ {g.shape_text(y)}"
        if isinstance(c, LibraryCall | ScatterCall):
            return ", ".join(g.shape_text(self._shape(n)) for n in c.operands)
        extents = self._extents
        outer, rows = extents[: c.kernel.outer], extents[c.kernel.outer :]
        if not any(isinstance(v, k.Reduce) for v in c.kernel.values):
            return f"{_product(extents):,} elements" + (f" as {_times(extents)}" if len(extents) > 1 else "")
        if c.kernel.vector == "row":
            passes = f", {self._passes} passes over each" if self._passes > 1 else ""
            return f"{plural(_product(outer), 'row')} of {_times(rows)}{passes}"
        return f"{plural(_product(outer), 'output')}, each over {_times(rows)}"

    @property
    def _passes(self) -> int:
        return 0 if self.kernel is None else sum(s.loops for s in self.kernel.stages)

    @property
    def _on_stack(self) -> bool:
        return self._choice is not None and self._choice.on_stack

    @property
    def chosen(self) -> str:
        """Of a product: the estimates by which it is generated or left to BLAS; '' for anything else."""
        if self._attending is not None:
            return self._attending.reason
        if self._attention:
            _, keys = self._scores
            return f"at most {min(keys, KEYS)} of {plural(keys, 'key')} at a time; the weights are never in memory"
        if self._choice is None:
            return ""
        if self._cudnn is not None:
            return self._cudnn.reason
        if self._gpu is not None:
            return (
                cuda.convolutions.why_windows(self._gpu.where.cudnn, [o.name for o in self._origins])
                or self._choice.reason
            )
        return self._choice.reason

    @property
    def stores(self) -> list[tuple[str, str]]:
        """Each value that it stores, and why that is not computed where it is read."""
        c = self._call
        out = []
        if isinstance(c, AttentionCall):
            out += [(self._value(r), self._why(r)) for r in c.results if r is not None]
        elif not isinstance(c, KernelCall) and not self._on_stack:
            out.append((self._value(c.node), self._why(c.node)))
        for r in sorted(self._map.group.roots if self._map is not None else (), key=lambda r: r.node.serial):
            if r.target is r.node:
                out.append((self._value(r.node), self._why(r.node)))
            else:
                out.append((self._value(r.node), f"straight into its part of {self._value(r.target)}"))
        return out

    def _why(self, n: Node) -> str:
        why = self._plan.division.why.get(n, "")
        return WHY.get(why, why)

    def _value(self, n: Node) -> str:
        outputs = zip(self._plan.wanted, self._plan.schedule.outputs, strict=True)
        names = [f"%{i}" if kk == 0 else f"%{i}.{kk}" for (i, kk), o in outputs if o is n]
        where = ", ".join(dict.fromkeys(names)) or n.op + (
            f" of {_label(n.site)}," if isinstance(n.site, g.Origin) else ""
        )
        return f"{where} {n.dtype} {g.shape_text(self._shape(n))}"

    @cached_property
    def ways(self) -> list[str]:
        """Which optimisations were applied to its code, and what a run may do with its results."""
        c, bound, found = self._call, self._bound, []
        if any(
            n.op == "select" and isinstance(n.site, g.Origin) and n.site.name.startswith("write to")
            for n in (self._map.nodes if self._map is not None else ())
        ):
            found.append("a write into most of an array, in one pass over all of it")
        if self._gpu is not None:
            return found + (self._gpu.ways_of(c) if isinstance(c, KernelCall) else [])
        if self.kernel is not None:
            assert self._map is not None
            found += [*self._map.ways, *ways_of(self.kernel)]
            threads = get_num_threads()
            early = switches["early"]
            divided = switches["split"] and worth_splitting(self.kernel, self._extents, threads, early)
            if isinstance(c, KernelCall) and divided:
                found.append(f"few long rows, each divided among {plural(threads, 'thread')}")
        if isinstance(c, LibraryCall) and self.library.startswith("NumPy") and switches["adopt"]:
            found.append("results of NumPy's are taken over with their memory")
        made = set(c.writes)
        if any(d.output in made and self._size(nbytes(d.output)) >= DONATED for d in bound.exe.donations):
            found.append("in the place of a leaf, when nobody else holds that")
        return found

    # What it moves and computes

    def _shape(self, n: Node) -> tuple[int, ...]:
        return tuple(map(self._size, n.shape))

    @cached_property
    def _extents(self) -> tuple[int, ...]:
        assert self._map is not None
        return tuple(map(self._size, self._map.extents))

    @cached_property
    def read(self) -> int:
        """Bytes read, each element once; what the kernel wrote itself is not counted."""
        return self._moved(False)

    @cached_property
    def written(self) -> int:
        """Bytes written."""
        return self._moved(True)

    def _moved(self, writes: bool) -> int:
        call, c, size = self._call, self._map, self._size
        by_buffer: dict[Node, int] = {}
        if isinstance(call, MatmulCall):
            made = [] if self._on_stack else [call.node]
            by_buffer = {n: size(nbytes(n)) for n in (made if writes else {b for b, _, _ in call.operands})}
        elif not isinstance(call, KernelCall):
            by_buffer = {n: size(nbytes(n)) for n in (call.writes if writes else call.reads)}
        if c is None:
            return sum(by_buffer.values())
        moving = k.moving_axes(c.kernel)
        gathers = {v.access: moving[i] for i, v in enumerate(c.kernel.values) if isinstance(v, k.Gather)}
        for i, (a, access) in enumerate(zip(c.accesses, c.kernel.accesses, strict=True)):
            if access.writes == writes and (writes or a.buffer not in call.writes):
                axes = gathers.get(i, [x for x, s in enumerate(a.strides) if size(s)])
                moved = _product([self._extents[x] for x in axes]) * a.itemsize
                by_buffer[a.buffer] = by_buffer.get(a.buffer, 0) + moved
        return sum(min(moved, size(nbytes(n))) for n, moved in by_buffer.items())

    @cached_property
    def flops(self) -> int:
        """Floating-point operations, an elementary function counted as one; 0 where a library keeps it to itself."""
        call, c = self._call, self._map
        total = 0
        if isinstance(call, MatmulCall):
            complex_ = 4 if dtypes.kind(call.node.dtype) == "c" else 1
            total = 2 * complex_ * _product(self._shape(call.node)) * self._depth(call.node)
            if self._cudnn is not None:
                ch = self._cudnn.choice
                total = 2 * ch.m * ch.n * ch.k * ch.count
        if isinstance(call, AttentionCall):
            d, e = (self._shape(call.node.operands[i])[-1] for i in (1, 2))
            products = d + e if self._attention == "attention" else 3 * d + 2 * e
            return 2 * products * _product(self._shape(call.node.operands[0])[:-1]) * self._scores[1]
        if c is None:
            return total
        moving = k.moving_axes(c.kernel)
        for i, v in enumerate(c.kernel.values):
            if dtypes.kind(v.dtype) != "f":
                continue
            if isinstance(v, k.Op) and v.name in ARITHMETIC:
                total += _product([self._extents[a] for a in moving[i]])
            elif isinstance(v, k.Reduce):
                total += _product(self._extents)
        return total

    @property
    def _scores(self) -> tuple[int, int]:
        """Of attention: queries and keys."""
        assert isinstance(self._call, AttentionCall)
        q, keys = (self._shape(n) for n in self._call.node.operands[:2])
        return q[-2], keys[-2]

    def _depth(self, n: Node) -> int:
        """How many products are summed up for an element of a product or a convolution."""
        x, y = map(self._shape, n.operands)
        if n.op == "convolve":
            return _product(y[1:])  # a filter's channels and sizes
        if n.op == "convolve_filter":
            return _product(y) // max(y[1], 1)  # samples and places
        return x[-1]

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte moved."""
        return self.flops / max(self.read + self.written, 1)

    # Text

    def __repr__(self) -> str:
        return f"<kernel {self._about}>"

    @property
    def _about(self) -> str:
        library = f"{self.library}, " if self.library else ""
        return f"{self.title}: {library}{self.domain}"

    def line(self) -> str:
        """One line: its number, title and domain."""
        phase = f", the second phase of [{self.phase_of}]" if self.phase_of else ""
        return f"[{self.number}] {self._about}{phase}"

    def __str__(self) -> str:
        rows = [("fuses", f"{name} at {site}") for name, site in _shown(self.fuses)]
        rows += [("stores", f"{what}: {why}") for what, why in _shown(self.stores)]
        if self._choice is not None or self._attention:
            where = "; the product itself is never in memory" if self._on_stack else ""
            rows.append(("chosen", self.chosen + where))
        rows += [("ways", way) for way in self.ways]
        flops = "no flops counted"
        if self.flops:
            flops = f"{count_text(self.flops, 'flop')}, {self.intensity:.2g} flop/byte"
        rows.append(("moves", f"{bytes_text(self.read)} in, {bytes_text(self.written)} out; {flops}"))
        rows.append(("code", CODE[self.code]))
        lines, last = [self.line()], ""
        for word, text in rows:
            lines.append(f"    {word if word != last else '':<6}  {text}")
            last = word
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_text(str(self))


CODE = {
    "memory": "compiled already, in memory",
    "disk": "compiled already, on disk",
    "library": "a library's",
    "routine": "a routine of lazyt's own, beside the kernels",
    "product": "micro-kernels, the same for products of all sizes",
    "": "not compiled yet",
}


def _shown(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return rows if len(rows) <= SHOWN else [*rows[: SHOWN - 1], (f"{len(rows) - SHOWN + 1} more", "other places")]


def fallback_text(name: str, site: object, why: str) -> str:
    """What a GPU leaves to the host, the user's line, and why."""
    return f"{name} at {site_text(site)} (no GPU form: {why})"


def _label(o: Origin) -> str:
    return f"gradient of {o.name}" if o.backward else o.name


def _product(extents: Sequence[int]) -> int:
    n = 1
    for e in extents:
        n *= e
    return n


def _times(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def sizes(bound: Bound) -> Size:
    """The value of an extent expression at the sizes of one walk."""
    return Walk((), (), (bound.extents, ())).size


def kernel_views(plan: Plan, bound: Bound) -> list[KernelView]:
    """Every launch of a plan, in order."""
    calls, size = plan.schedule.launches, sizes(bound)
    number = {id(c): i + 1 for i, c in enumerate(calls)}
    return [
        KernelView(i + 1, c, plan, bound, size, number.get(id(c.phase_of), 0) if isinstance(c, KernelCall) else 0)
        for i, c in enumerate(calls)
    ]
