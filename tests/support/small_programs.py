"""Programs of hand-written kernels for the CPU backend's engine and threads."""

from __future__ import annotations

import hashlib

import numpy as np

from lazyt.backends import object_cache
from lazyt.backends.cpu import engine, thread_pool

NO_CACHE = object_cache.ObjectCache(None)


# args: [address of an int64 array, value]
ADD = """
define void @NAME(ptr %args, i64 %begin, i64 %end) nounwind {
entry:
  %base = load ptr, ptr %args
  %value.at = getelementptr i64, ptr %args, i64 1
  %value = load i64, ptr %value.at
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  %at = getelementptr i64, ptr %base, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, %value
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}
"""


def compiled(template: str, cache: object_cache.ObjectCache = NO_CACHE) -> tuple[engine.Module, int]:
    name = f"test_{hashlib.sha256(template.encode()).hexdigest()[:16]}"
    module = engine.compile_module(template.replace("NAME", name), [name], cache=cache)
    return module, module.address(name)


def add_program(x: np.ndarray, y: np.ndarray) -> tuple[thread_pool.Program, list[int]]:
    """x += 1 three times, y += 10 three times, with joins, odd grains and a row of no units."""
    _, add = compiled(ADD)
    n, m = x.size, y.size
    rows = [
        (add, 0, n, 1000, 0),
        (add, 2, m, 100, 1),
        (add, 0, n, 777, 0),
        (add, 2, m, 0, 0),
        (add, 0, 0, 10, 1),
        (add, 0, n, n, 1),
        (add, 2, m, 1, 0),
    ]
    program = thread_pool.Program(rows, [0, 1, 0, 10], [(0, 0, 0), (2, 1, 0)], 2)
    return program, [x.ctypes.data, y.ctypes.data]
