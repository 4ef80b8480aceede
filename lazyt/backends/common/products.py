"""Matrix products of a plan: the strategy of each at given sizes, and the layout of its operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall
    from lazyt.ir.symbolic import Dim

    Patches = list[tuple[int, int, int]]
    Value = Callable[[int | Dim], int]

# Axes of a batch, at most.
MAX_BATCH = 6
# CBLAS's words for a matrix that is read as it stands, and transposed.
NO_TRANS, TRANS = 111, 112


@dataclass(frozen=True)
class Choice:
    """The strategy of one product, and its reason."""

    how: str  # 'generated' | 'blas' | 'numpy' | 'cudnn'
    m: int
    n: int
    k: int
    count: int  # products in the batch
    generated_cycles: int  # 0 where there is no generated code for it
    blas_cycles: int  # 0 where BLAS has no routine for it
    on_stack: bool = False  # whether only the epilogue needs the product
    timed: str = ""  # the autotuner's measurements, if it is on

    @property
    def reason(self) -> str:
        """The estimates, or the measurements, for people."""
        if self.timed:
            return self.timed
        if not self.blas_cycles:
            return "BLAS has no routine for it"
        if not self.generated_cycles:
            return "there is no generated code for it"
        return f"estimated {self.generated_cycles / 1e3:,.0f} kcycles generated, {self.blas_cycles / 1e3:,.0f} by BLAS"


class Product:
    """One product of a bound plan."""

    def __init__(self, bound: Any, call: MatmulCall, choice: Choice) -> None:
        self.bound = bound
        self.call = call
        self.choice: Any = choice

    @property
    def extra(self) -> dict[str, int]:
        """Bytes of temporaries that it needs in the arena, by name."""
        return {}


def leading(x: Node, strides: tuple[int | Dim, ...], value: Value) -> tuple[int, int] | None:
    """(transposition, leading dimension) of a matrix operand, if BLAS can read it."""
    r, s = (value(d) for d in x.shape[-2:])
    a, b = (value(d) for d in strides[-2:])
    if b == 1 and (a >= max(s, 1) or r <= 1):
        return NO_TRANS, max(a if r > 1 else s, s, 1)
    if a == 1 and (b >= max(r, 1) or s <= 1):
        return TRANS, max(b if s > 1 else r, r, 1)
    if s <= 1 and r <= 1:
        return NO_TRANS, max(s, 1)
    if r <= 1 and b == 1:
        return NO_TRANS, max(s, 1)
    return None
