"""LLVM IR that runs chains of launches in tiles of rows and launches (see time_tiles.py); one text for all chains.

    upright   tile i, launch t: rows [i W + left_t, (i + 1) W - right_t), so less with each launch
    inverted  the gap between tiles i and i + 1: rows [(i + 1) W - right_t, (i + 1) W + left_t)
    plain     a launch as it is, for a run whose addresses are not those that the tiles were made for
    check     whether they are

The int64 entries of a chain, in order: whether tiles are right for this run, launches, rows of a tile, tiles; then for
each launch its kernel's address, the place of its arguments behind the first entry, its rows, left, right, and units of
a row. Places are relative, because a program's table may be copied.
"""

from __future__ import annotations

import hashlib

HEAD, FIELDS = 4, 6

_TEXT = """
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

define internal i64 @entry(ptr %args, i64 %at) nounwind alwaysinline {
  %p = getelementptr i64, ptr %args, i64 %at
  %x = load i64, ptr %p, align 8
  ret i64 %x
}

; rows [low, high) of a launch, cut to those that it has
define internal void @rows(ptr %args, i64 %launch, i64 %low, i64 %high, ptr %workspace) nounwind {
entry:
  %at = mul i64 %launch, $FIELDS
  %own = getelementptr i64, ptr %args, i64 $HEAD
  %fields = getelementptr i64, ptr %own, i64 %at
  %count = call i64 @entry(ptr %fields, i64 2)
  %first = call i64 @llvm.smax.i64(i64 %low, i64 0)
  %last = call i64 @llvm.smin.i64(i64 %high, i64 %count)
  %some = icmp slt i64 %first, %last
  br i1 %some, label %run, label %out
run:
  %kernel = load ptr, ptr %fields, align 8
  %place = call i64 @entry(ptr %fields, i64 1)
  %arguments = getelementptr i64, ptr %args, i64 %place
  %units = call i64 @entry(ptr %fields, i64 5)
  %begin = mul i64 %first, %units
  %end = mul i64 %last, %units
  call void %kernel(ptr %arguments, i64 %begin, i64 %end, ptr %workspace)
  br label %out
out:
  ret void
}

define void @$P_upright(ptr %args, i64 %begin, i64 %end, ptr %workspace) nounwind {
entry:
  %right.run = load i64, ptr %args, align 8
  %on = icmp ne i64 %right.run, 0
  %launches = call i64 @entry(ptr %args, i64 1)
  %width = call i64 @entry(ptr %args, i64 2)
  %tiles = call i64 @entry(ptr %args, i64 3)
  br i1 %on, label %tile, label %out
tile:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %tile.end ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %start, label %out
start:
  %from = mul i64 %i, %width
  %to = add i64 %from, %width
  %is.first = icmp eq i64 %i, 0
  %i.next = add i64 %i, 1
  %is.last = icmp eq i64 %i.next, %tiles
  br label %launch
launch:
  %t = phi i64 [ 0, %start ], [ %t.next, %launch ]
  %at = mul i64 %t, $FIELDS
  %own = getelementptr i64, ptr %args, i64 $HEAD
  %fields = getelementptr i64, ptr %own, i64 %at
  %left = call i64 @entry(ptr %fields, i64 3)
  %right = call i64 @entry(ptr %fields, i64 4)
  %low.in = add i64 %from, %left
  %low = select i1 %is.first, i64 0, i64 %low.in
  %high.in = sub i64 %to, %right
  %high = select i1 %is.last, i64 9223372036854775807, i64 %high.in
  call void @rows(ptr %args, i64 %t, i64 %low, i64 %high, ptr %workspace)
  %t.next = add i64 %t, 1
  %again = icmp slt i64 %t.next, %launches
  br i1 %again, label %launch, label %tile.end
tile.end:
  br label %tile
out:
  ret void
}

define void @$P_inverted(ptr %args, i64 %begin, i64 %end, ptr %workspace) nounwind {
entry:
  %right.run = load i64, ptr %args, align 8
  %on = icmp ne i64 %right.run, 0
  %launches = call i64 @entry(ptr %args, i64 1)
  %width = call i64 @entry(ptr %args, i64 2)
  br i1 %on, label %tile, label %out
tile:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %tile.end ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %start, label %out
start:
  %i.next = add i64 %i, 1
  %border = mul i64 %i.next, %width
  br label %launch
launch:
  %t = phi i64 [ 0, %start ], [ %t.next, %launch ]
  %at = mul i64 %t, $FIELDS
  %own = getelementptr i64, ptr %args, i64 $HEAD
  %fields = getelementptr i64, ptr %own, i64 %at
  %left = call i64 @entry(ptr %fields, i64 3)
  %right = call i64 @entry(ptr %fields, i64 4)
  %low = sub i64 %border, %right
  %high = add i64 %border, %left
  call void @rows(ptr %args, i64 %t, i64 %low, i64 %high, ptr %workspace)
  %t.next = add i64 %t, 1
  %again = icmp slt i64 %t.next, %launches
  br i1 %again, label %launch, label %tile.end
tile.end:
  br label %tile
out:
  ret void
}

; entries: the place of the chain's, the address of the kernel, the place of its arguments
define void @$P_plain(ptr %args, i64 %begin, i64 %end, ptr %workspace) nounwind {
entry:
  %chain.at = load i64, ptr %args, align 8
  %right.run = call i64 @entry(ptr %args, i64 %chain.at)
  %off = icmp eq i64 %right.run, 0
  br i1 %off, label %run, label %out
run:
  %kernel.at = getelementptr i64, ptr %args, i64 1
  %kernel = load ptr, ptr %kernel.at, align 8
  %place = call i64 @entry(ptr %args, i64 2)
  %arguments = getelementptr i64, ptr %args, i64 %place
  call void %kernel(ptr %arguments, i64 %begin, i64 %end, ptr %workspace)
  br label %out
out:
  ret void
}

; entries: the place of the chain's, how many addresses; then of each its place, and what it should be
define void @$P_check(ptr %args, i64 %begin, i64 %end, ptr %workspace) nounwind {
entry:
  %chain.at = load i64, ptr %args, align 8
  %chain = getelementptr i64, ptr %args, i64 %chain.at
  %count = call i64 @entry(ptr %args, i64 1)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %right = phi i64 [ 1, %entry ], [ %still, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %out
body:
  %twice = mul i64 %i, 2
  %one = add i64 %twice, 2
  %place = call i64 @entry(ptr %args, i64 %one)
  %address = call i64 @entry(ptr %args, i64 %place)
  %two = add i64 %twice, 3
  %wanted = call i64 @entry(ptr %args, i64 %two)
  %same = icmp eq i64 %address, %wanted
  %still = select i1 %same, i64 %right, i64 0
  %next = add i64 %i, 1
  br label %head
out:
  store i64 %right, ptr %chain, align 8
  ret void
}
"""
NAMES = ("upright", "inverted", "plain", "check")


def text() -> tuple[str, dict[str, str]]:
    """The module, and the names of its functions."""
    body = _TEXT.replace("$FIELDS", str(FIELDS)).replace("$HEAD", str(HEAD))
    prefix = f"lazyt_tiles_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return body.replace("$P", prefix), {name: f"{prefix}_{name}" for name in NAMES}
