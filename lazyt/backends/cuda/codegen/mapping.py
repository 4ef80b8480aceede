"""The mapping of a kernel's points to threads: chosen by extents, strides and alignment, and compiled into the code.

    maps      a thread takes `wide` neighbours along the vector axis, and goes on by the size of the grid
    rows      a team of `warps` warps takes a row; with `steps` its elements stay in shared memory between stages (with
              `plain` only what is loaded does, not what is costly to compute), and where the order of folding is free a
              lane takes `wide` neighbours
              few long rows are divided between blocks in `phase` 1, a block a chunk or (`segments`) a warp a segment;
              phase 2 folds what they found, in order
    columns   a thread takes a column; `groups` warps of a block share 32 columns, 128 rows (FLUSH) each in turn
    tiles     a block takes 32 x 32 points of the last two axes; what lies across is read through shared memory;
              `exact` ones are 64 x 64 and whole, and a thread takes `wide` neighbours of them

Nothing here changes a bit of a result: sums have the kernel IR's order under every mapping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lazyt.backends.cuda.flags import switches
from lazyt.backends.math.reduction import Reduction
from lazyt.ir.kernel import CHUNK, FLUSH, LANES, Cast, Load, Op, Reduce, moving_axes, operands_of
from lazyt.ir.passes.split_reduction import by_stages, split, whole
from lazyt.ir.prims import ELEMENTWISE

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from lazyt.ir.kernel import Kernel, Stage, Value
    from lazyt.ir.passes.split_reduction import Piece

    Slots = list[tuple[int, list[int]]]

WARP = 32
BLOCK = 256
# What one warp folds before its lanes are flushed: a row's elements have 16 chains of 128 in it.
SEGMENT = FLUSH * LANES
MAX_WARPS = 16
MAX_GROUPS = 8
# With more elementary functions than these a thread computes for longer than it loads, and code is repeated for all.
WIDE_COSTLY = 6
# Fewer rows than multiprocessors, each longer than a team takes at once, are divided between blocks.
LONG = MAX_WARPS * SEGMENT
# Chunks whose totals a block has room for, one a lane of its warps: with no more, a row may be divided by segments.
MOST_CHUNKS = MAX_WARPS * LANES
# Rows of several row axes, of more than so many chunks, are divided between blocks.
MANY_CHUNKS = 2
# The warps of a block that takes segments.
SEGMENT_WARPS = 4
# A tile's side, and that of whole tiles, of which a launch has so many; the warps that share it.
TILE = 32
WHOLE_TILE = 64
WHOLE_TILES = 512
TILE_WARPS = 8
# Bytes that a block's tiles may take; what does not fit is read across memory.
TILES = 40 << 10
# Rows of several row axes are divided between blocks when the last is this long.
SHORT = 1024
# Shared memory that a block may have without asking for more.
SHARED = 48 << 10
# What the warps of a row fold a reduction through, at most, and for how many a device leaves room.
FOLD, RESERVED_FOLDS = 8 * MAX_WARPS * LANES, 8
# Positions that an index must be able to count: points, and what a grid steps past them.
SMALL = 1 << 30

# What kernels keep of a row, by their keys and `plain`.
MOST_FOUND = 1024
_found_slots: dict[tuple[str, bool], Slots] = {}


@dataclass(frozen=True, slots=True)
class Mapping:
    index: str = "s64"  # the type of indices and offsets: s32 or s64
    threads: int = BLOCK  # of a block
    wide: int = 1
    warps: int = 1
    steps: int = 0  # elements of a row that a lane keeps; 0: none
    plain: bool = False  # it keeps loads alone
    even: int = 1  # what the row's length is a multiple of: of a lane's neighbours, of a warp's
    exact: bool = False  # the team's lanes keep just the row, or all tiles are whole: no bounds to check
    groups: int = 1
    single: bool = False  # the last row axis has one element: totals of chunks, one after the other
    tile: bool = False
    phase: int = 0  # 0: a launch does all
    segments: bool = False  # in phases: by segments, not by chunks
    many: bool = False  # for several arrays at once: horizontal_fusion.py

    @property
    def key(self) -> str:
        marks = "e" * self.exact + "s" * self.single + "t" * self.tile + "g" * self.segments + "m" * self.many
        marks += "p" * self.plain
        sizes = (self.threads, self.wide, self.warps, self.steps, self.groups, self.phase, self.even)
        return "_".join([self.index, *map(str, sizes), *([marks] if marks else [])])

    @property
    def at_once(self) -> bool:
        """Whether what a lane keeps is one round of its team."""
        return 0 < self.steps <= SEGMENT // WARP


def choose(kernel: Kernel, entries: Sequence[int], shared: int = SHARED) -> Mapping:
    """The mapping for a launch with these argument entries (see `Kernel.layout`).

    `shared` is how much shared memory a block of the device may have when it asks for it.
    """
    extents = entries[: kernel.axes]
    index = "s32" if _is_small(kernel, entries) else "s64"
    if kernel.vector == "row":
        return _rows(kernel, entries, index, shared)
    if kernel.rows:
        if switches["tile"] and (loads := tiled_loads(kernel)):
            tiles = Mapping(index, threads=WARP * TILE_WARPS, tile=True)
            return _whole_tiles(kernel, entries, tiles, loads) if switches["wide"] else tiles
        if kernel.rows > 1 and extents[-1] == 1:
            return Mapping(index, threads=2 * WARP, single=True)
        groups = min(MAX_GROUPS, _power(-(-extents[-1] // FLUSH)))
        return Mapping(index, threads=WARP * groups if groups > 1 else BLOCK, groups=groups)
    costly = sum(isinstance(v, Op) and ELEMENTWISE[v.name].costly for v in kernel.values)
    return Mapping(index, wide=_width(kernel, entries) if costly <= WIDE_COSTLY else 1)


def _rows(kernel: Kernel, entries: Sequence[int], index: str, shared: int) -> Mapping:
    n = entries[kernel.axes - 1]
    warps = min(MAX_WARPS, _power(-(-n // SEGMENT)))
    wide = _width(kernel, entries)
    even = next(k for k in (WARP * wide, WARP, wide, 1) if n % k == 0)
    read_again = Mapping(index, BLOCK if warps == 1 else WARP * warps, wide, warps, even=even)
    folds = sum(isinstance(v, Reduce) for v in kernel.values)
    room = SHARED if warps == 1 else shared - FOLD * max(folds - RESERVED_FOLDS, 0)
    found = []
    for plain in (False, True) if switches["keep"] and kernel.rows == 1 else ():
        slots = [itemsize for itemsize, _ in kept_slots(kernel, plain)]
        # A warp's stores of 16 bytes a lane lie in all banks of shared memory, longer ones of a lane do not.
        narrow = replace(read_again, plain=plain, wide=min(wide, 16 // max(slots))) if slots else read_again
        kept = _keeping(narrow, n, sum(slots), room) if slots else None
        found += [] if kept is None else [kept]
    # Two blocks that compute some values again are better than one that waits for its memory.
    if len(found) > 1 and shared_bytes(kernel, found[0]) > room // 2 >= shared_bytes(kernel, found[1]) and warps > 1:
        return found[1]
    return found[0] if found else read_again


def _keeping(mapping: Mapping, n: int, size: int, room: int) -> Mapping | None:
    """With the rows of n elements kept, of each so many bytes, if there is room for them in a block."""
    warps, lanes = mapping.warps, WARP * mapping.warps
    if n > warps * SEGMENT:
        steps = -(-n // lanes)
    elif warps == 1 and n and mapping.even % (WARP * mapping.wide) == 0:
        steps = n // WARP
    else:
        steps = _power(-(-min(n, SEGMENT) // WARP))
    exact = n == steps * lanes and n <= warps * SEGMENT
    kept = replace(mapping, steps=steps, exact=exact, wide=min(mapping.wide, steps))
    while warps == 1 and kept.threads > WARP and size * steps * kept.threads > room:
        kept = replace(kept, threads=kept.threads // 2)
    return kept if size * steps * kept.threads <= room else None


def _whole_tiles(kernel: Kernel, entries: Sequence[int], tiles: Mapping, loads: Sequence[int]) -> Mapping:
    """Larger tiles, for a launch that has enough of them and none in part."""
    extents = entries[: kernel.axes]
    height, width = extents[-1], extents[kernel.vector_axis]
    whole = replace(tiles, exact=True)
    dtypes = [kernel.values[v].dtype for v in loads]
    size = WHOLE_TILE * (WHOLE_TILE + 1) * sum(d.itemsize for d in dtypes)
    enough = math.prod(sizes(kernel, whole, extents)) >= WHOLE_TILES
    if height % WHOLE_TILE or width % WHOLE_TILE or size > TILES or not enough:
        return tiles
    n = min(_width(kernel, entries), 16 // min(d.itemsize for d in dtypes))
    along = [a for v in loads if kernel.accesses[a := kernel.values[v].access].classes[-1] == "1"]  # type: ignore[union-attr]
    while n > 1 and not all(_is_aligned(kernel, a, entries, n, kernel.axes - 1) for a in along):
        n //= 2
    return replace(whole, wide=n)


def tiled_loads(kernel: Kernel) -> list[int]:
    """The loads of a map over a row axis that lie along that axis, where its lanes lie across: none if it folds."""
    if kernel.vector != "outer" or kernel.rows != 1 or len(kernel.stages) > 1 or kernel.stages[0].reduces:
        return []
    across, along = kernel.vector_axis, kernel.axes - 1
    found: list[int] = []
    left = TILES
    for v, value in enumerate(kernel.values):
        if not isinstance(value, Load) or value.where is not None:
            continue
        classes, size = kernel.accesses[value.access].classes, TILE * (TILE + 1) * value.dtype.itemsize
        if classes[along] in "1-" and classes[across] == "n" and size <= left:
            found.append(v)
            left -= size
    return found


def pieces_of(
    kernel: Kernel,
    extents: Sequence[int],
    strides: Sequence[Sequence[int]],
    coefs: Sequence[Sequence[int]],
    processors: int,
) -> list[Piece]:
    """The kernels that are launched for one: itself, or what gives work to all processors where it has few units."""
    if is_staged(kernel, extents, processors):
        return by_stages(kernel, extents, strides, coefs)
    if is_divided(kernel, extents, processors):
        return split(kernel, extents, strides, coefs)
    return [whole(kernel, tuple(extents), strides, coefs)]


def phases(kernel: Kernel, mapping: Mapping, extents: Sequence[int], processors: int) -> tuple[Mapping, ...]:
    """The mapping of each launch that the kernel takes: one, or for few long rows that it walks once, one or two.

    By chunks where those are enough for all processors, else by segments: a row of 128 Ki elements has 64 warps.
    """
    if not _is_few_long_rows(kernel, extents, processors):
        return (mapping,)
    first, *rest = kernel.stages
    if not first.loops or any(s.loops for s in rest):
        return (mapping,)
    count = -(-extents[-1] // CHUNK)
    block = replace(mapping, threads=WARP * MAX_WARPS, warps=MAX_WARPS, steps=0, exact=False, plain=False)
    if first.reduces and (math.prod(extents[: kernel.outer]) * count >= 2 * processors or count > MOST_CHUNKS):
        return replace(block, phase=1), replace(block, phase=2)
    warps = replace(block, threads=WARP * SEGMENT_WARPS, warps=1, segments=True, phase=1)
    if not first.reduces and not rest:
        return (warps,)
    return warps, replace(block, segments=True, phase=2)


def is_staged(kernel: Kernel, extents: Sequence[int], processors: int) -> bool:
    """Whether each stage of a kernel is a kernel of its own, which has phases: few long rows that are read again."""
    return sum(s.loops for s in kernel.stages) > 1 and _is_few_long_rows(kernel, extents, processors)


def _is_few_long_rows(kernel: Kernel, extents: Sequence[int], processors: int) -> bool:
    if kernel.vector != "row" or kernel.rows != 1 or not switches["split"]:
        return False
    return math.prod(extents[: kernel.outer]) < processors and extents[-1] > LONG


def is_divided(kernel: Kernel, extents: Sequence[int], processors: int) -> bool:
    """Whether a kernel has too few columns, or rows of several axes, for all processors, each worth being divided.

    See `ir/passes/split_reduction.py`; the place of an extreme has no parts.
    """
    folds = [v for v in kernel.values if isinstance(v, Reduce)]
    if not folds or kernel.has_check or any(v.name.startswith("arg") for v in folds) or not switches["split"]:
        return False
    outer, last = extents[: kernel.outer], extents[-1]
    if kernel.vector == "outer":
        blocks, rows = math.prod(outer[:-1]) * -(-outer[-1] // WARP), math.prod(extents[kernel.outer :])
        return blocks < 4 * processors and last >= FLUSH and rows >= 2 * FLUSH * MAX_GROUPS
    if math.prod(outer) >= processors or kernel.rows == 1:
        return False
    return last > MANY_CHUNKS * CHUNK or (last >= SHORT and math.prod(extents[kernel.outer : -1]) > 1)


def portions(mapping: Mapping, extents: Sequence[int]) -> int:
    """Into how many chunks or segments phase 1 divides a row."""
    return -(-extents[-1] // (SEGMENT if mapping.segments else CHUNK))


def scratch_words(kernel: Kernel, mapping: Mapping) -> int:
    """What the phases of a kernel hand over for each of a row's portions.

    A word a reduction, two with a place; a sum or product by segments has its lanes.
    """
    folds = [v for r in kernel.stages[0].reduces if isinstance(v := kernel.values[r], Reduce)]
    return sum(words_of(Reduction(v.name, v.dtype, kernel.values[v.operand].dtype, v.operand), mapping) for v in folds)


def words_of(fold: Reduction, mapping: Mapping) -> int:
    """What phase 1 hands over of one fold, for each of a row's portions."""
    if fold.blocked and mapping.segments:
        return LANES
    return 1 + fold.is_arg


def shared_bytes(kernel: Kernel, mapping: Mapping) -> int:
    """The shared memory that a launch asks for, besides what the kernel declares."""
    return sum(itemsize for itemsize, _ in kept_slots(kernel, mapping.plain)) * mapping.steps * mapping.threads


def kept_slots(kernel: Kernel, plain: bool) -> Slots:
    """What a lane may keep of a row, as slots of one element: (itemsize, the values that take turns in it).

    Kept are loads and, unless `plain`, costly values along the row that more than one stage needs; where that is less,
    a value of two loads in their place, or a load widened. A costly value may take the place of one that no stage after
    its own reads: each point reads that before.
    """
    key = kernel.key, plain
    found = _found_slots.get(key)
    if found is None:
        if len(_found_slots) >= MOST_FOUND:
            _found_slots.clear()
        found = _found_slots[key] = _find_slots(kernel, plain)
    return found


def _find_slots(kernel: Kernel, plain: bool) -> Slots:
    costly = {v for v in _needed_in(kernel, ()) if isinstance(kernel.values[v], Op) and not plain}
    # What a costly value was computed from is needed no more once that is kept.
    best = _slots(kernel, _needed_in(kernel, costly), plain)
    sums: set[int] = set()
    for v, value in enumerate(kernel.values):
        if is_of_loads(kernel, v) and not isinstance(value, Load):
            found = _slots(kernel, _needed_in(kernel, {*costly, *sums, v}, {*sums, v}), plain)
            if sum(size for size, _ in found) < sum(size for size, _ in best):
                best = found
                sums.add(v)
    return best


def is_of_loads(kernel: Kernel, v: int) -> bool:
    """Whether a value may be kept as what is loaded is: a load, that widened, or what is computed of two."""
    value = kernel.values[v]
    if not isinstance(value, Op | Cast):
        return isinstance(value, Load)
    operands = [kernel.values[o] for o in operands_of(value)]
    sources = [kernel.values[x.operand] if isinstance(x, Cast) else x for x in operands]
    loads = [x for x in sources if isinstance(x, Load) and x.where is None]
    if len(loads) < len(sources) or len(loads) != 1 + isinstance(value, Op):
        return False
    return all(kernel.accesses[x.access].classes[-1] != "0" for x in loads)


def _slots(kernel: Kernel, stages: dict[int, list[int]], plain: bool) -> Slots:
    slots: Slots = []
    for v, (first, *_) in sorted(stages.items(), key=lambda item: (item[1][0], item[0])):
        if plain and not is_of_loads(kernel, v):
            continue
        size = kernel.values[v].dtype.itemsize
        free = (s for s in slots if s[0] == size and stages[s[1][-1]][-1] <= first)
        slot = None if is_of_loads(kernel, v) else next(free, None)
        if slot is None:
            slots.append((size, [v]))
        else:
            slot[1].append(v)
    return sorted(slots, key=lambda s: -s[0])


def _needed_in(kernel: Kernel, kept: Container[int], sums: Container[int] = ()) -> dict[int, list[int]]:
    """The values that may be kept and that several stages need, when those `kept` are computed by their first stage."""
    moves = moving_axes(kernel)
    found: dict[int, list[int]] = {}
    for i, stage in enumerate(kernel.stages):
        known = [v for v in found if v in kept]
        for v in _evaluated(kernel, stage, known) if stage.loops else ():
            worth = v in sums or _is_kept(kernel.values[v])
            # NOTE: what all rows read is near anyway.
            if worth and kernel.axes - 1 in moves[v] and any(a < kernel.outer for a in moves[v]):
                found.setdefault(v, []).append(i)
    return {v: stages for v, stages in found.items() if len(stages) > 1}


def _is_kept(value: Value) -> bool:
    if isinstance(value, Load):
        return value.where is None
    return isinstance(value, Op) and ELEMENTWISE[value.name].costly


def _evaluated(kernel: Kernel, stage: Stage, known: Container[int]) -> set[int]:
    """The values that a stage needs at each point, nothing below those `known`."""
    seen: set[int] = set()
    todo = [kernel.values[r].operand for r in stage.reduces]  # type: ignore[union-attr]
    todo += [t.value for t in stage.stores]
    while todo:
        v = todo.pop()
        if v not in seen and not isinstance(kernel.values[v], Reduce):
            seen.add(v)
            if v not in known:
                todo.extend(operands_of(kernel.values[v]))
    return seen


def _is_small(kernel: Kernel, entries: Sequence[int]) -> bool:
    """Whether 32-bit indices count the kernel's points and reach all that it addresses."""
    extents = entries[: kernel.axes]
    points = 1
    for e in extents:
        points *= max(e, 1)
    if points > SMALL:
        return False
    for at in kernel.layout.accesses:
        strides = entries[at + 1 : at + 1 + kernel.axes]
        if sum(abs(s) * max(e - 1, 0) for s, e in zip(strides, extents, strict=True)) > SMALL:
            return False
    return True


def _width(kernel: Kernel, entries: Sequence[int]) -> int:
    """Neighbours that a thread takes: 16 bytes of the narrowest dtype, or fewer, so that wide accesses are aligned."""
    axis = kernel.vector_axis
    wide = [i for i, a in enumerate(kernel.accesses) if a.classes[axis] == "1"]
    # NOTE: a single element is an array like any other, so an optimizer's update of one goes with the others.
    alone = entries[axis] < 2 and kernel.axes > 1
    if not wide or alone or not switches["wide"]:
        return 1
    n = min(8, 16 // min(kernel.accesses[i].dtype.itemsize for i in wide))
    while n > 1 and not all(_is_aligned(kernel, i, entries, n, axis) for i in wide):
        n //= 2
    return n


def _is_aligned(kernel: Kernel, access: int, entries: Sequence[int], n: int, axis: int) -> bool:
    """Whether each group of n neighbours along an axis starts at a multiple of its size, or of 16 bytes."""
    at, itemsize = kernel.layout.accesses[access], kernel.accesses[access].dtype.itemsize
    size = min(16, n * itemsize)
    others = (a for a in range(kernel.axes) if a != axis and entries[a] != 1)
    return entries[at] % size == 0 and all(entries[at + 1 + a] * itemsize % size == 0 for a in others)


def sizes(kernel: Kernel, mapping: Mapping, extents: Sequence[int]) -> list[int]:
    """What a launch counts its units of work by: the outer axes, where the last may be taken by several at once."""
    outer = list(extents[: kernel.outer])
    if kernel.vector == "row":
        return outer
    if mapping.tile:
        side = WHOLE_TILE if mapping.exact else TILE
        return [*outer[:-1], -(-extents[-1] // side), -(-outer[-1] // side)]
    columns = WARP if mapping.groups > 1 else mapping.threads
    outer[-1] = -(-outer[-1] // (columns if kernel.rows else mapping.wide))
    return outer


def divisors(kernel: Kernel, mapping: Mapping) -> int:
    """How many of the `sizes` a unit's number is divided by with a multiplication: an argument each."""
    return max(kernel.outer + mapping.tile - 1, 0) if mapping.index == "s32" else 0


def magic(divisor: int) -> int:
    """m and s with n // divisor = n * m >> s for all n below 2**31: s stands above the 32 bits of m."""
    s = 31 + max(divisor - 1, 0).bit_length()
    return -(-(1 << s) // max(divisor, 1)) | s << 32


def extras(kernel: Kernel, mapping: Mapping, extents: Sequence[int]) -> list[int]:
    """The arguments behind the kernel's own and those of phases."""
    return [magic(n) for n in sizes(kernel, mapping, extents)[1:]] if divisors(kernel, mapping) else []


def grid(kernel: Kernel, mapping: Mapping, extents: Sequence[int], processors: int) -> int:
    """How many blocks: enough for all points, no more than keep `processors` multiprocessors busy for some time."""
    blocks = math.prod(sizes(kernel, mapping, extents))
    if mapping.phase == 1:
        blocks = -(-blocks * portions(mapping, extents) // (SEGMENT_WARPS if mapping.segments else 1))
    elif kernel.vector == "row":
        blocks = -(-blocks // (mapping.threads // (WARP * mapping.warps)))
    elif not kernel.rows:
        blocks = -(-blocks // mapping.threads)
    return max(1, min(blocks, processors * 32))


def _power(n: int) -> int:
    """The least power of two that is no less than n."""
    return 1 << max(n - 1, 0).bit_length()
