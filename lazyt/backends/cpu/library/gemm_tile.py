"""Shapes of micro-kernels, and the arguments of the generated products' native functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.common.products import MAX_BATCH
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np

# Elements along k that are added up in registers before they are added to C.
KC = 384
# Blocks of them that a tile of C meets one after another: those of B are packed together.
BLOCKS = 3
DEPTH = BLOCKS * KC
# Rows of a unit, at most: its part of A stays in the second-level cache.
DEEP = 384
# Operands up to this many bytes are read where they lie: they stay in the second-level cache.
NEAR = 1 << 16
# Rows of B that a tall micro-kernel asks for ahead of their use: a panel does not fit into the first-level cache.
PREFETCH = 12
# A finished part of C that is never in the result's memory has at most this many bytes: of a product, of a convolution.
FINISHED = 1 << 16
SCRATCH = 1 << 18
# Packed panels of B have at most this many.
PACKED_B = DEPTH * 256
# A part of A that is converted has at most this many.
PACKED_A = 1 << 20
# Rows of A that are packed lie this many elements further apart than they are long.
PAD = 16
# Rows of C that an epilogue gets together, at least.
CHUNK = 24

# Entries of a product's int64 arguments; after HEAD, MAX_BATCH times (extent, A stride, B stride).
FIELDS = (
    "m", "n", "k", "a_row", "a_col", "b_row", "b_panel", "c_row", "unit_rows", "unit_cols", "row_blocks", "col_blocks",
    "c_batch", "batch", "A", "B", "C",
    # The epilogue: its code, and where its arguments, and what must be known about them, lie from here (in entries).
    "epilogue", "arguments", "size", "axes", "accesses", "affines", "about", "scratch",
    # How B is packed (an index into PACK_B), the columns of a group that is packed together, the rows of a chunk.
    "pack_b", "group", "chunk",
    # An A that is converted: where its part lies in the working memory (bytes), and from line to line of it.
    "a_at", "a_line",
    # Working memory of the calling thread (a worker has its own, see thread_pool_ir.py).
    "workspace",
    # Panels of B that stay packed (see kept_panels.py): 0, or their address, plus FILL where they are packed now.
    "kept",
)  # fmt: skip
AT = {name: i for i, name in enumerate(FIELDS)}
HEAD = len(FIELDS)
SIZE = HEAD + 3 * MAX_BATCH
PACK_B = ("", "panel", "across")
FILL = 1
# Entries of a packing's arguments.
PACK_FIELDS = (
    "rows", "cols", "row_step", "col_step", "to_unit", "to_row", "units", "batch", "to_batch", "from", "to",
    # As of a product: where panels that stay are, instead of `to`; nothing is to be done if they are packed.
    "kept",
)  # fmt: skip
PACK_AT = {name: i for i, name in enumerate(PACK_FIELDS)}
PACK_HEAD = len(PACK_FIELDS)
PACK_SIZE = PACK_HEAD + 2 * MAX_BATCH
# Arguments of an epilogue are copied to the stack; kernels with more are launched on their own.
MAX_ARGUMENTS = 512


# Micro-kernels of so many vectors, the last of them masked or not.
Family = tuple[int, bool]


@dataclass(frozen=True)
class Tile:
    """The shape of a micro-kernel for a dtype: rows of C, vectors along them, and elements in a vector."""

    rows: tuple[int, ...]  # the heights that there are micro-kernels for, largest first
    vectors: int
    lanes: int
    fused: bool  # whether the host has a fused multiply-add
    narrow: tuple[tuple[int, ...], ...] = ()  # the heights of tiles of fewer vectors, from one on, if others

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def heights(self, vectors: int) -> tuple[int, ...]:
        """The heights of tiles of so many vectors."""
        # NOTE: not looked up, but compared: a binding that is written out tells what it compared.
        return next((heights for v, heights in enumerate(self.narrow, 1) if vectors == v), self.rows)

    @property
    def tallest(self) -> int:
        """The largest height that there is a micro-kernel for."""
        return max(self.heights(v + 1)[0] for v in range(self.vectors))

    def families(self, n: int) -> tuple[Family, ...]:
        """The micro-kernels for `n` columns: those of whole panels, and of the remainder."""
        whole, rest = ((self.vectors, False),) if n >= self.columns else (), n % self.columns
        if not rest:
            return whole
        return (*whole, (next(v for v in range(1, self.vectors + 1) if rest <= v * self.lanes), True))

    def __str__(self) -> str:
        return f"{self.rows[0]} x {self.columns}"


def tile_of(dtype: np.dtype, features: frozenset[str], width: int = 0, form: str = "row") -> Tile:
    """The tile for a dtype on a host with these features; `width` forces the number of bytes of a vector.

    32 registers hold 24 sums or 28: as many rows as go with what is cheap to read, B along the rows of A (form 'row'),
    A along its columns ('col').
    """
    if not width:
        width = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    lanes = max(width // max(dtype.itemsize, 4 if dtypes.kind(dtype) in "iu" else 1), 1)
    fused = "fma" in features or "neon" in features or "avx512f" in features
    if width == 64 and form == "col":
        return Tile((14, 8, 4, 2, 1), 2, lanes, fused)
    if width == 64:
        return Tile((6, 4, 2, 1), 4, lanes, fused, ((12, 6, 4, 2, 1), (12, 6, 4, 2, 1), (8, 4, 2, 1)))
    if "neon" in features:
        return Tile((8, 4, 2, 1), 2, lanes, fused)
    return Tile((6, 4, 2, 1), 2, lanes, fused)
