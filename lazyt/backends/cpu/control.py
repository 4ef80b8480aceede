"""Control flow around vectors: rare branches, loops until no lane needs them, functions of vectors.

NOTE: all but `outlined` open new blocks in the body they are written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.backends.cpu.text import Body, Module, function, vector
from lazyt.backends.cpu.vector import Vec, where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Vecs = tuple[Vec, ...]


def rarely(condition: Vec, usual: Vecs, write: Callable[[], Vecs]) -> Vecs:
    """`usual`, but where `condition` holds the vectors of `write`, run only if a lane needs it."""
    body = condition.body
    rare, join, before = body.fresh("rare"), body.fresh("join"), body.block
    body.line(f"br i1 {condition.any()}, label %{rare}, label %{join}")
    body.label(rare)
    chosen = [where(condition, x, u) for x, u in zip(write(), usual, strict=True)]
    after = body.block
    body.line(f"br label %{join}")
    body.label(join)
    return tuple(
        u.renamed(body.let(f"phi {u.type} [{u.name}, %{before}], [{c.name}, %{after}]"))
        for u, c in zip(usual, chosen, strict=True)
    )


def repeat(start: Vecs, step: Callable[..., tuple[Vecs, Vec]], times: int = 0) -> Vecs:
    """`step` over and over from `start`: it gives the next vectors and where more is needed.

    At least once, then as long as any lane needs more; `times` times if that is given.
    """
    body = start[0].body
    loop, done, before = body.fresh("loop"), body.fresh("done"), body.block
    body.line(f"br label %{loop}")
    body.label(loop)
    head = len(body.lines)
    state = tuple(x.renamed(f"%{body.fresh('state')}") for x in start)
    count, following = f"%{body.fresh('count')}", f"%{body.fresh('count')}"
    end, more = step(*state)
    if times:
        body.line(f"{following} = add i32 {count}, 1")
        again = body.let(f"icmp ult i32 {following}, {times}")
    else:
        again = more.any()
    after = body.block
    body.line(f"br i1 {again}, label %{loop}, label %{done}")
    phis = [
        f"  {s.name} = phi {s.type} [{x.name}, %{before}], [{e.name}, %{after}]"
        for s, x, e in zip(state, start, end, strict=True)
    ]
    if times:
        phis.append(f"  {count} = phi i32 [0, %{before}], [{following}, %{after}]")
    body.lines[head:head] = phis
    body.label(done)
    return end


def outlined(
    symbol: str,
    results: Sequence[str],
    operands: Vecs,
    write: Callable[..., Vecs],
    cold: bool = False,
) -> Vecs:
    """What `write` makes of `operands`, as a call of a function that the module has once.

    `results` are the element types. For code that is too large, or too rarely run, to be
    repeated in every kernel that needs it. `symbol` is completed by the number of lanes. A `cold`
    call is laid out so that the code around it does not pay for it.
    """
    body, lanes = operands[0].body, operands[0].lanes
    types = [vector(element, lanes) for element in results]
    result = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    symbol = f"{symbol}.v{lanes}"
    parameters = [f"{x.type} %x{i}" for i, x in enumerate(operands)]

    def text(module: Module) -> str:
        inner = Body(module)
        values = write(*(Vec(inner, f"%x{i}", x.element, lanes) for i, x in enumerate(operands)))
        value = values[0].name
        if len(types) > 1:
            value = "poison"
            for i, x in enumerate(values):
                value = inner.let(f"insertvalue {result} {value}, {x.type} {x.name}, {i}")
        inner.line(f"ret {result} {value}")
        return function(result, symbol, parameters, inner)

    declaration = f"declare {result} @{symbol}({', '.join(x.type for x in operands)})"
    body.module.define(symbol, declaration, text)
    arguments = ", ".join(f"{x.type} {x.name}" for x in operands)
    call = body.let(f"call {result} @{symbol}({arguments}){' cold' if cold else ''}")
    if len(types) == 1:
        return (Vec(body, call, results[0], lanes),)
    return tuple(
        Vec(body, body.let(f"extractvalue {result} {call}, {i}"), element, lanes) for i, element in enumerate(results)
    )
