"""One launch of a plan, for a person to read: what it fuses, over what, what it moves and computes, and its code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lazyt.errors import NotSupportedError
from lazyt.forking import cached_property
from lazyt.ir import dtypes, graph as g, kernel as k
from lazyt.ir.graph_interpreter import Environment
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, LibraryCall, MatmulCall, ScatterCall
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.symbolic import Dim
from lazyt.ops import kernel_calls
from lazyt.tracing.printer import bytes_text, count_text, html_text, plural, site_text

if TYPE_CHECKING:
    from lazyt.backends.interface import Bound, Description
    from lazyt.ir.graph import Node, Origin
    from lazyt.ir.passes.schedule import Launch
    from lazyt.runtime.plan import Plan

Size = Callable[[int | Dim], int]

# Lines of what a kernel fuses and stores that are written out.
SHOWN = 8

# Why a value is stored rather than computed where it is read (ir/passes/fuse.py names the reasons).
WHY = {
    "output": "somebody holds it",
    "kept": "the backward reads it",
    "places": "wanted at several places, and not cheap to compute at each",
    "repeated": "would be computed again along an axis that it does not have",
    "checks": "a part of it is read, and all its indices are checked",
    "axes": "read through an index map that is not affine",
    "size": "the kernel is as large as kernels get",
    "packed": "the backward reads it later, in few bits",
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
    """A kernel or library call of a plan, at the sizes of one trace. Nothing here runs or compiles anything."""

    def __init__(self, number: int, call: Launch, plan: Plan, bound: Bound, size: Size, phase_of: int = 0) -> None:
        self.number = number
        self.phase_of = phase_of  # the number of the kernel whose second phase this is
        self._call = call
        self._plan = plan
        self._bound = bound
        self._size = size

    @cached_property
    def _description(self) -> Description:
        """What the backend says of it."""
        return self._plan.executable.describe(self._call, self._bound)

    @cached_property
    def title(self) -> str:
        """The public operations in it, such as `softmax + multiply`; the primitive too in a kernel of just one."""
        names = list(dict.fromkeys(_label(o) for o in self._origins))
        shown = names[:4] + [f"{len(names) - 4} more"] * (len(names) > 4)
        if len(names) == 1 and not self._plan.fused and isinstance(self._call, KernelCall):
            shown[0] += "".join(f" ({n.op})" for n in self._call.nodes[-1:])
        return " + ".join(shown) or "copy"

    @property
    def _map(self) -> KernelCall | None:
        """The kernel, or the epilogue of a product."""
        c = self._call
        return c.epilogue if isinstance(c, MatmulCall) else c if isinstance(c, KernelCall) else None

    @property
    def library(self) -> str:
        """The library and its routine, or the generated product; '' for a kernel alone."""
        return self._description.library

    @property
    def _attention(self) -> str:
        """The function of a call of attention; '' for anything else."""
        c = self._call
        return c.node.attrs.fn if isinstance(c, AttentionCall) and isinstance(c.node.attrs, g.Opaque) else ""

    @property
    def fallback(self) -> str:
        """Of a call that the host does for a device: the operation, its line, and why; '' for anything else."""
        why = allowed_fallback(getattr(self._call, "node", None)) or self._description.fallback
        return fallback_text(self._origins[0].name, self._origins[0].site, why) if why and self._origins else ""

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
        text = self._description.source([f"{name} at {site}" for name, site in self.fuses])
        return text or f"; {self.library}: {CODE[self.code]}"

    def assembly(self) -> str:
        """The assembly for this host, on a GPU SASS; of a product its epilogue's; of a library call one line."""
        return self._description.assembly() or f"# {self.library}: {CODE[self.code]}"

    def sass(self) -> str:
        """The machine code for the GPU that it runs on; NotSupportedError on the CPU, or without nvdisasm."""
        if not self._description.is_sass:
            raise NotSupportedError(
                f"not supported: sass of a kernel for {self._plan.device!r}, because it is a GPU's; see assembly()"
            )
        return self.assembly()

    @cached_property
    def code(self) -> str:
        """Where its machine code is: 'memory', 'disk', 'library', 'routine', 'product', or '' when not compiled yet."""
        return self._description.code

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
        if c.kernel.vector != "outer":
            passes = f", {self._passes} passes over each" if self._passes > 1 else ""
            return f"{plural(_product(outer), 'row')} of {_times(rows)}{passes}"
        return f"{plural(_product(outer), 'output')}, each over {_times(rows)}"

    @property
    def _passes(self) -> int:
        return 0 if self.kernel is None else sum(s.loops for s in self.kernel.stages)

    @property
    def _on_stack(self) -> bool:
        return self._description.on_stack

    @property
    def chosen(self) -> str:
        """Why a product or attention is computed as it is; '' for anything else."""
        return self._description.reason

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
        outputs = zip(self._plan.wanted, self._plan.schedule.outputs)  # noqa: B905 - residuals follow
        names = [f"%{i}" if kk == 0 else f"%{i}.{kk}" for (i, kk), o in outputs if o is n]
        where = ", ".join(dict.fromkeys(names)) or n.op + (
            f" of {_label(n.site)}," if isinstance(n.site, g.Origin) else ""
        )
        return f"{where} {n.dtype} {g.shape_text(self._shape(n))}"

    @cached_property
    def strategies(self) -> list[str]:
        """Which optimisations were applied to its code, and what a run may do with its results."""
        found = []
        if any(
            n.op == "select" and isinstance(n.site, g.Origin) and n.site.name.startswith("write to")
            for n in (self._map.nodes if self._map is not None else ())
        ):
            found.append("a write into most of an array, in one pass over all of it")
        return [*found, *self._description.strategies]

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
            if self._description.flops is not None:
                total = self._description.flops
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
        if n.op == "convolve_image":
            assert isinstance(n.attrs, g.Convolution)
            return _product((y[0] // n.attrs.groups, *y[2:])) // _product(n.attrs.strides)  # what meets an element
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
        if self.chosen:
            where = "; the product itself is never in memory" if self._on_stack else ""
            rows.append(("chosen", self.chosen + where))
        rows += [("strategies", text) for text in self.strategies]
        flops = "no flops counted"
        if self.flops:
            flops = f"{count_text(self.flops, 'flop')}, {self.intensity:.2g} flop/byte"
        rows.append(("moves", f"{bytes_text(self.read)} in, {bytes_text(self.written)} out; {flops}"))
        rows.append(("code", CODE[self.code]))
        lines, last = [self.line()], ""
        for word, text in rows:
            lines.append(f"    {word if word != last else '':<10}  {text}")
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


def allowed_fallback(n: Node | None) -> str:
    """Of a user's operation that falls back to its kernel for the CPU: why; '' for anything else."""
    if n is None or not isinstance(n.attrs, g.Opaque) or n.attrs.fn != kernel_calls.ON_HOST:
        return ""
    found: str = n.attrs.statics[0].fallback
    return found


def fallback_text(name: str, site: object, why: str) -> str:
    """What a GPU leaves to the host, the user's line, and why."""
    return f"{name} at {site_text(site)} ({why if why.startswith('no kernel') else f'no GPU form: {why}'})"


def _label(o: Origin) -> str:
    if o.again:
        return f"{o.name} again"
    return f"gradient of {o.name}" if o.backward else o.name


def _product(extents: Sequence[int]) -> int:
    n = 1
    for e in extents:
        n *= e
    return n


def _times(extents: Sequence[int]) -> str:
    return " x ".join(map(str, extents))


def sizes(bound: Bound) -> Size:
    """The value of an extent expression at the sizes of one trace."""
    return Environment((), (), (bound.extents, ())).size


def kernel_views(plan: Plan, bound: Bound) -> list[KernelView]:
    """Every launch of a plan, in order."""
    calls, size = plan.schedule.launches, sizes(bound)
    number = {id(c): i + 1 for i, c in enumerate(calls)}
    return [
        KernelView(i + 1, c, plan, bound, size, number.get(id(c.phase_of), 0) if isinstance(c, KernelCall) else 0)
        for i, c in enumerate(calls)
    ]
