"""CUDA C for one kernel under one mapping: `name(args)`, where `args` is the kernel IR's argument layout by value.

The text is meant to be read: a value is named as in the kernel IR (%5 is v5), an extent n0, an index i0, the address
of an access p0. Compiled with --fmad=false: every operation rounds by itself, as the kernel IR says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cuda.codegen.emit_columns import emit_columns
from lazyt.backends.cuda.codegen.emit_levels import KERNEL, Levels
from lazyt.backends.cuda.codegen.emit_map import emit_map
from lazyt.backends.cuda.codegen.emit_row import emit_rows
from lazyt.backends.cuda.codegen.emit_scope import Scope
from lazyt.backends.cuda.codegen.emit_tile import emit_tiles, emit_whole_tiles
from lazyt.backends.cuda.codegen.emit_values import open_level
from lazyt.backends.cuda.codegen.mapping import divisors
from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.cuda.codegen.text import Body, Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyt.backends.cuda.codegen.mapping import Mapping
    from lazyt.ir.kernel import Kernel


# Threads that a multiprocessor shall hold at least: 128 registers each. Without a bound ptxas aims at 32, and spills.
RESIDENT = 512
# Where the arguments are, and which of how many blocks this is: of the launch, or of the array that it has a share of.
ALONE = (
    "    const s64 *const args = arguments.at;",
    "    const u32 block = blockIdx.x, blocks = gridDim.x;",
)
MANY = (
    "    const u32 *const share = (const u32 *)arguments.at[1] + 4 * (s64)blockIdx.x;",
    "    const s64 *const args = (const s64 *)arguments.at[0] + share[0];",
    "    const u32 block = share[1], blocks = share[2];",
)


def arguments(kernel: Kernel, mapping: Mapping) -> int:
    """How many entries the arguments have: the kernel's, scratch memory and portions of a row for phases, divisors.

    Of a launch for many: where all those are, and the shares.
    """
    if mapping.many:
        return 2
    return max(kernel.layout.size, 1) + 2 * (mapping.phase > 0) + divisors(kernel, mapping)


def emit(kernel: Kernel, mapping: Mapping, name: str, module: Module, notes: Sequence[str] = ()) -> str:
    """The text of kernel `name`, whose helpers go to `module`; `notes` (the user's lines) become comments above it."""
    levels = Levels(kernel, neighbours=mapping.tile and mapping.exact)
    body = Body(module)
    scope = Scope(kernel, levels, mapping, body)
    roots = [v for stage in kernel.stages for v in levels.roots(stage)]
    open_level(scope, KERNEL, levels.needed(roots, ()), ())
    if kernel.vector == "row":
        emit_rows(scope)
    elif mapping.tile:
        emit_whole_tiles(scope) if mapping.exact else emit_tiles(scope)
    elif kernel.rows:
        emit_columns(scope)
    else:
        emit_map(scope)
    size = arguments(kernel, mapping)
    comments = [f"// {line}" for line in notes] + [f"// {kernel.title}"] * bool(kernel.title)
    return "\n".join(
        [
            *comments,
            f'extern "C" __global__ void __launch_bounds__({mapping.threads}, {max(RESIDENT // mapping.threads, 1)})',
            f"{name}(const __grid_constant__ lt_args<{size}> arguments) {{",
            f"    typedef {mapping.index} index;",
            *(MANY if mapping.many else ALONE),
            *scope.head.lines,
            *body.lines,
            "}",
            "",
        ]
    )


def alone(kernel: Kernel, mapping: Mapping, name: str) -> str:
    """The text of one kernel behind the functions that it calls, for people: the preamble is left out."""
    module = Module()
    text = emit(kernel, mapping, name, module)
    return "\n".join([module.text(), text])


def program(kernels: Iterable[tuple[Kernel, Mapping, str]]) -> str:
    """A program with these kernels: what NVRTC compiles at once."""
    module = Module()
    texts = [emit(kernel, mapping, name, module) for kernel, mapping, name in kernels]
    return "\n".join([PREAMBLE, module.text(), *texts])
