"""The description of a device: each ability of its backend, under the one name that passes and syncs ask for it by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.fusion_result import KernelCall

    # The results of an attention call on these operands, in the backend's form; None: computed as products.
    Attention = Callable[[Builder, Node, Sequence[Node]], tuple[Node, ...] | None]
    Wanted = Callable[[Builder, Node], bool]

# The abilities that a flag of LAZYT_DEBUG takes away.
OF_FLAG = {
    "attention": ("attention",),
    "epilogues": ("epilogues",),
    "halves": ("half_products", "alike_products", "half_convolutions", "rounded_products"),
    "join": ("joined_axes",),
    "pack": ("packed_products",),
    "reuse": ("stage_reuse",),
    "vectors": ("vector_products",),
    "views": ("convolution_views",),
    "winograd": ("winograd",),
}


@dataclass(frozen=True)
class Target:
    """Optional features of a backend's device, for planning, syncs and inspection. The defaults suit any backend."""

    # Planning
    # Which convolutions stay calls: plain ones, or, if a function says, those that it wants; others become products.
    convolutions: bool | Callable[[Node], bool] = False
    winograd: bool = False  # Winograd's algorithm computes the convolutions that it may (ir/passes/lower_winograd.py)
    # A convolution reads a part of a larger image, and filters that are transposed and flipped, through strides.
    convolution_views: bool = False
    attention: Attention | None = None  # the attention calls that are kept; None: all become products
    epilogues: bool = False  # a kernel may run on the blocks of a product (see ir/passes/epilogue.py)
    stage_reuse: bool = False  # a kernel keeps what several of its stages need in memory (see ir/passes/stage_reuse.py)
    joined_axes: bool = False  # a kernel reduces over two axes in the order of one (see ir/passes/join_axes.py)
    vector_products: bool = False  # a product with a vector, and many of tiny matrices, are better as reductions
    packed_products: bool = False  # a product copies a transposed right operand into its own layout
    half_products: bool = False  # a product reads float16 and bfloat16, and gives float32
    # A product reads two operands of one half as they are, and gives float32 or that half. Others round a half from the
    # float32 that it was cast from, where that is stored anyhow: an input, or a result of a call.
    alike_products: bool = False
    # Which convolutions read bfloat16, and give float32; the others read float32 copies.
    half_convolutions: Wanted | None = None
    # Which float32 products, whose operands may be rounded to bfloat16, are faster so (see `Mode.rounded`).
    rounded_products: Wanted | None = None
    light_functions: bool = False  # a kernel computes elementary functions as fast as it reads what they give
    # Between two launches a value may lie in the host's memory, copied beside the kernels (see ir/passes/offload.py).
    offload: bool = False
    share: Callable[[KernelCall], float] | None = None  # of what a kernel's code may need; above 1 it is divided
    # Syncs
    first_run: bool = False  # a new, small program may run step by step, by NumPy: buffers are in the host's memory
    # Its bindings are `Replayable`, so a repeated sync runs without planning; if it is asynchronous, `Enqueuing`.
    replay: bool = False
    donation: bool = False  # results take the memory of inputs that nothing else refers to, and fill in a `Receipt`
    # A run may return before its values are ready: their buffers have `settle()`. Those that have `located(sites)` are
    # given a function of the lines that were recorded, for `errors.relocate`: the plan's may be another program's.
    asynchronous: bool = False

    def without(self, off: frozenset[str]) -> Target:
        """The device without the abilities that these flags take away, where they are off.

        >>> Target(half_products=True, epilogues=True).without(frozenset({"halves"})) == Target(epilogues=True)
        True
        """
        gone = {name: getattr(Target, name) for flag, names in OF_FLAG.items() if flag in off for name in names}
        return replace(self, **gone) if gone else self
