"""Describes how a launch is computed on a GPU, for people. Nothing here runs a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.library import attention, registry
from lazyt.backends.cuda.library.attention_kernels import Kernels
from lazyt.backends.cuda.library.convolutions import Convolution, why_windows
from lazyt.backends.cuda.library.products import is_tf32, read_by
from lazyt.backends.cuda.library.scatter import Scatter
from lazyt.backends.interface import Description
from lazyt.forking import cached_property
from lazyt.ir import dtypes, graph as g
from lazyt.ir.library_calls import TO_HOST
from lazyt.ir.passes.call_operands import is_move
from lazyt.ir.passes.kernelize import KernelCall
from lazyt.ir.passes.schedule import AttentionCall, LibraryCall, MatmulCall, ScatterCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.backends.common.products import Choice
    from lazyt.backends.cuda.binding import Binding
    from lazyt.ir.passes.schedule import Launch


class LaunchDescription(Description):
    """A launch of a plan at the sizes of a binding."""

    is_sass = True

    def __init__(self, call: Launch, bound: Binding) -> None:
        self._call, self._bound = call, bound

    @cached_property
    def _attending(self) -> attention.Attention | Kernels | None:
        """The library or code that computes an attention call."""
        return attention.chosen(self._bound, self._call) if isinstance(self._call, AttentionCall) else None

    @property
    def _kernels(self) -> Kernels | None:
        """lazyt's own kernels for a call of attention."""
        return self._attending if isinstance(self._attending, Kernels) else None

    @cached_property
    def library(self) -> str:  # type: ignore[override]
        c = self._call
        if isinstance(c, MatmulCall):
            product = self._bound.products[c]
            if isinstance(product, Convolution):
                return product.library
            if product.choice.how == "blas":
                read = read_by(c.node)
                return "cuBLAS gemm" + f" of {read}" * (read in dtypes.HALVES) + ", tf32" * is_tf32(read)
            return "CuPy matmul"
        if isinstance(c, ScatterCall):
            on_device = Scatter(self._bound, c).on_device
            return "native scatter" if on_device else "NumPy scatter in index order, on the host"
        if self._attending is not None:
            return self._attending.library
        if isinstance(c, LibraryCall):
            assert isinstance(c.node.attrs, g.Opaque)
            fn = c.node.attrs.fn
            if is_move(c.node):
                return f"copy {'to' if fn == TO_HOST else 'from'} the host's memory, beside the kernels"
            name = fn.replace("_", ".", 1)
            return f"CuPy {name}" if fn in registry.FUNCTIONS else f"NumPy {name}, on the host"
        return ""

    @property
    def reason(self) -> str:  # type: ignore[override]
        c = self._call
        if self._attending is not None:
            return self._attending.reason
        if not isinstance(c, MatmulCall):
            return ""
        product = self._bound.products[c]
        if isinstance(product, Convolution):
            return product.reason
        names = [c.node.site.name] if isinstance(c.node.site, g.Origin) else []
        return why_windows(self._bound.where.cudnn, names) or product.choice.reason

    @property
    def strategies(self) -> Sequence[str]:  # type: ignore[override]
        return self._bound.strategies_of(self._call) if isinstance(self._call, KernelCall) else ()

    @property
    def fallback(self) -> str:  # type: ignore[override]
        c = self._call
        if isinstance(c, ScatterCall):
            return "" if Scatter(self._bound, c).on_device else "one complex number for all places"
        if isinstance(c, LibraryCall) and isinstance(c.node.attrs, g.Opaque):
            return registry.ON_HOST.get(c.node.attrs.fn, "")
        return ""

    @property
    def code(self) -> str:  # type: ignore[override]
        if isinstance(self._call, KernelCall):
            return "memory" if self._bound.is_loaded(self._call) else ""
        if self._kernels is not None:
            return "memory" if self._kernels.is_loaded else ""
        return "routine" if self.library.startswith("native") else "library"

    @property
    def flops(self) -> int | None:  # type: ignore[override]
        product = self._bound.products[self._call] if isinstance(self._call, MatmulCall) else None
        if not isinstance(product, Convolution):
            return None
        choice: Choice = product.choice
        return 2 * choice.m * choice.n * choice.k * choice.count

    def source(self, notes: Sequence[str] = ()) -> str:
        """CUDA C."""
        if isinstance(self._call, KernelCall):
            return self._bound.source_of(self._call, notes)
        return "" if self._kernels is None else self._kernels.source

    def assembly(self) -> str:
        """SASS; NotSupportedError without nvdisasm."""
        if isinstance(self._call, KernelCall):
            return self._bound.sass_of(self._call)
        return "" if self._kernels is None else self._kernels.sass()
