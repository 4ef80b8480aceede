"""The native function that runs a map kernel on a part of its domain: a product's epilogue on one unit of it."""

from __future__ import annotations

from lazyt.backends.common.products import MAX_BATCH
from lazyt.backends.cpu.library.gemm_tile import AT, MAX_ARGUMENTS
from lazyt.ir.kernel import BLOCK

# Moves the arguments of a map kernel to a part of its domain, and runs it there.
# %args product arguments, %c where that part of the product is, %ldc its row stride, %fresh whether it is on the stack.
_EPILOGUE = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @epilogue(ptr %args, i64 %u, i64 %i0, i64 %j0, i64 %mu, i64 %nu, ptr %c, i64 %ldc)
    nounwind noinline {
entry:
  %own = alloca i64, i64 $MAX_ARGUMENTS, align 64
  %at = alloca i64, i64 $MAX_AXES, align 64
$LOADS
  %from = getelementptr i64, ptr %args, i64 %arguments
  %about.p = getelementptr i64, ptr %args, i64 %about
  %bytes = shl i64 %size, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %from, i64 %bytes, i1 false)
  ; where this part begins along every axis: the digits of the product's number, then row and column
  %col = sub i64 %axes, 1
  %row = sub i64 %axes, 2
  %row.p = getelementptr i64, ptr %at, i64 %row
  store i64 %i0, ptr %row.p
  %col.p = getelementptr i64, ptr %at, i64 %col
  store i64 %j0, ptr %col.p
  br label %digits
digits:
  %d = phi i64 [ %row, %entry ], [ %d1, %digit ]
  %rest = phi i64 [ %u, %entry ], [ %rest1, %digit ]
  %left = icmp sgt i64 %d, 0
  br i1 %left, label %digit, label %sizes
digit:
  %d1 = sub i64 %d, 1
  %e.p = getelementptr i64, ptr %own, i64 %d1
  %e = load i64, ptr %e.p
  %x = urem i64 %rest, %e
  %rest1 = udiv i64 %rest, %e
  %x.p = getelementptr i64, ptr %at, i64 %d1
  store i64 %x, ptr %x.p
  store i64 1, ptr %e.p
  br label %digits
sizes:
  %m.p = getelementptr i64, ptr %own, i64 %row
  store i64 %mu, ptr %m.p
  %n.p = getelementptr i64, ptr %own, i64 %col
  store i64 %nu, ptr %n.p
  %stays = icmp eq i64 %scratch, 0
  br label %accesses
accesses:
  %i = phi i64 [ 0, %sizes ], [ %i1, %access.done ]
  %p = phi i64 [ %axes, %sizes ], [ %p1, %access.done ]
  %some = icmp slt i64 %i, %accesses.n
  br i1 %some, label %access, label %affines
access:
  %w.p = getelementptr i64, ptr %about.p, i64 %i
  %w = load i64, ptr %w.p
  %address.p = getelementptr i64, ptr %own, i64 %p
  %strides = getelementptr i64, ptr %address.p, i64 1
  %is.tile = icmp slt i64 %w, 0
  br i1 %is.tile, label %tile, label %terms
tile:
  %c.i = ptrtoint ptr %c to i64
  store i64 %c.i, ptr %address.p
  %rs.p = getelementptr i64, ptr %strides, i64 %row
  store i64 %ldc, ptr %rs.p
  br label %access.done
terms:
  %a = phi i64 [ 0, %access ], [ %a1, %term ]
  %sum = phi i64 [ 0, %access ], [ %sum1, %term ]
  %more = icmp slt i64 %a, %axes
  br i1 %more, label %term, label %moved
term:
  %s.p = getelementptr i64, ptr %strides, i64 %a
  %s = load i64, ptr %s.p
  %y.p = getelementptr i64, ptr %at, i64 %a
  %y = load i64, ptr %y.p
  %sy = mul i64 %s, %y
  %sum1 = add i64 %sum, %sy
  %a1 = add i64 %a, 1
  br label %terms
moved:
  %address = load i64, ptr %address.p
  %by = mul i64 %sum, %w
  %address1 = add i64 %address, %by
  store i64 %address1, ptr %address.p
  br label %access.done
access.done:
  %i1 = add i64 %i, 1
  %p0 = add i64 %p, 1
  %p1 = add i64 %p0, %axes
  br label %accesses
affines:
  %f = phi i64 [ 0, %accesses ], [ %f1, %affine.done ]
  %q = phi i64 [ %p, %accesses ], [ %q2, %affine.done ]
  %fmore = icmp slt i64 %f, %affines.n
  br i1 %fmore, label %affine, label %run
affine:
  %coefs = getelementptr i64, ptr %own, i64 %q
  br label %fterms
fterms:
  %fa = phi i64 [ 0, %affine ], [ %fa1, %fterm ]
  %fsum = phi i64 [ 0, %affine ], [ %fsum1, %fterm ]
  %fleft = icmp slt i64 %fa, %axes
  br i1 %fleft, label %fterm, label %affine.done
fterm:
  %fs.p = getelementptr i64, ptr %coefs, i64 %fa
  %fs = load i64, ptr %fs.p
  %fy.p = getelementptr i64, ptr %at, i64 %fa
  %fy = load i64, ptr %fy.p
  %fsy = mul i64 %fs, %fy
  %fsum1 = add i64 %fsum, %fsy
  %fa1 = add i64 %fa, 1
  br label %fterms
affine.done:
  %off.p = getelementptr i64, ptr %coefs, i64 %axes
  %off = load i64, ptr %off.p
  %off1 = add i64 %off, %fsum
  store i64 %off1, ptr %off.p
  %f1 = add i64 %f, 1
  %q1 = add i64 %q, %axes
  %q2 = add i64 %q1, 1
  br label %affines
run:
  %blocks0 = add i64 %nu, $BLOCK_1
  %blocks = udiv i64 %blocks0, $BLOCK
  %units = mul i64 %mu, %blocks
  call void %kernel(ptr %own, i64 0, i64 %units)
  ret void
}
"""


def epilogue_text() -> str:
    loads = []
    for name, as_, kind in (
        ("epilogue", "kernel", "ptr"), ("arguments", "arguments", "i64"), ("size", "size", "i64"),
        ("axes", "axes", "i64"), ("accesses", "accesses.n", "i64"), ("affines", "affines.n", "i64"),
        ("about", "about", "i64"), ("scratch", "scratch", "i64"),
    ):  # fmt: skip
        loads.append(f"  %{as_}.at = getelementptr i64, ptr %args, i64 {AT[name]}")
        loads.append(f"  %{as_} = load {kind}, ptr %{as_}.at")
    text = _EPILOGUE.replace("$LOADS", "\n".join(loads)).replace("$BLOCK_1", str(BLOCK - 1))
    text = text.replace("$BLOCK", str(BLOCK)).replace("$MAX_ARGUMENTS", str(MAX_ARGUMENTS))
    return text.replace("$MAX_AXES", str(MAX_BATCH + 2))
