"""The LLVM IR of attention: a panel of queries processes the keys block by block.

    scores   s[key, query] = by * sum over d of k[key, d] * q[query, d]       queries along the lanes of registers
    weights  m, l: the maximum so far and the sum of exp(s - m), a lane each; w = exp(s - m)
    result   o[e, query] = o * exp(old m - m) + sum over keys of v[key, e] * w[key, query]

A panel is as wide as the micro-kernels of products (gemm_micro.py). q is transposed into working memory once a unit,
and o back from there at its end. All that is made of scores lies there too: KEYS x a panel, whatever there is in memory
of q, k and v. A unit is some panels of one matrix. Where queries see earlier keys only, blocks behind them are left
out. Bits depend on the sizes alone: panels are independent, and each processes blocks of KEYS keys in order.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function
from lazyt.backends.cpu.library.attention_tile import KEYS, PANELS, SCORES
from lazyt.backends.cpu.library.attention_writer import Writer
from lazyt.backends.math.vector import constant, where

if TYPE_CHECKING:
    import numpy as np

    from lazyt.backends.cpu.library.gemm_tile import Tile
    from lazyt.backends.math.vector import Vec


class Forward(Writer):
    PARAMS = (
        "ptr %q, ptr %o, ptr %state, ptr %s, ptr %t, ptr %k, i64 %k_row, ptr %v, i64 %v_row, "
        "i64 %keys, i64 %d, i64 %e, i1 %more, i64 %ahead"
    )

    def step(self, nv: int) -> None:
        """%state has the maxima, the sums, and space for the scale of o."""
        f, n = Function(), self.panel
        exp = self.rules["exp"]
        f.line("%last.key = sub i64 %keys, 1")
        f.line(f"call void @row.{nv}(i64 %d, ptr %k, i64 %k_row, ptr %q, i64 {n}, ptr %s, i64 {n}, i64 %keys, "
               "i1 false, i64 0)")  # fmt: skip
        self.hide(f, nv)
        tops = [self.load(f, a) for a in self.part(f, "%state", 0, nv)]
        with f.loop("0", "%keys", "1", [(self.vector, x.name) for x in tops]) as key:
            for a, held in zip(self.row(f, "%s", key.index, nv), key.carried, strict=True):
                x, top = self.load(f, a), self.vec(f, held)
                key.next.append(where(x > top, x, top).name)
        found = [self.vec(f, x) for x in key.carried]
        # NOTE: before the first key that is seen there is no maximum to take off.
        safe = [where(x.eq(-math.inf), 0.0, x) for x in found]
        scales = [exp(old - new) for old, new in zip(tops, safe, strict=True)]
        with f.loop("0", "%keys", "1", [(self.vector, "zeroinitializer")] * nv) as key:
            ats = self.row(f, "%s", key.index, nv)
            for a, held, top in zip(ats, key.carried, safe, strict=True):
                w = exp(self.load(f, a) - top)
                self.store(f, w, a)
                key.next.append((self.vec(f, held) + w).name)
        sums = self.part(f, "%state", 1, nv)
        for at, x in zip(self.part(f, "%state", 0, nv), found, strict=True):
            self.store(f, x, at)
        for at, scale, part in zip(sums, scales, key.carried, strict=True):
            self.store(f, self.load(f, at) * scale + self.vec(f, part), at)
        # Where somebody asks for the sums alone (a gradient in a later sync) there is no o.
        with f.when(f.let("icmp ne ptr %o, null")):
            with f.when("%more"):
                self.scaled(f, scales, nv)
            f.line(f"call void @col.{nv}(i64 %keys, ptr %v, i64 %v_row, ptr %s, i64 {n}, ptr %o, i64 {n}, i64 %e, "
                   "i1 %more, i64 0)")  # fmt: skip
        f.line("ret void")
        self.add(f, f"define internal void @step.{nv}({self.PARAMS}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def scaled(self, f: Function, scales: list[Vec], nv: int) -> None:
        with f.loop("0", "%e", "1") as row:
            for a, scale in zip(self.row(f, "%o", row.index, nv), scales, strict=True):
                self.store(f, self.load(f, a) * scale, a)

    def finish(self) -> None:
        """`(o, state, e)`: o divided by the sums, and the logarithms of the rows in place of the maxima.

        A row whose keys are all masked has a sum of 0: it is divided by inf, and its logarithm is inf.
        """
        f, nv = Function(), self.tile.vectors
        sums = [self.load(f, a) for a in self.part(f, "%state", 1, nv)]
        if self.mask:
            sums = [where(x.eq(0.0), math.inf, x) for x in sums]
        self.scaled(f, [1.0 / x for x in sums], nv)
        for at, x in zip(self.part(f, "%state", 0, nv), sums, strict=True):
            top = self.load(f, at)
            if self.mask:
                top = where(top.eq(-math.inf), 0.0, top)
            self.store(f, top + self.rules["log"](x), at)
        f.line("ret void")
        params = "ptr %o, ptr %state, i64 %e"
        self.add(f, f"define internal void @finish({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    # What the driver asks for, which is another's where operands are no floats of this kind

    def begin(self, f: Function, arg: dict[str, str]) -> None:
        self.areas(f, arg, (("qt", PANELS), ("s", SCORES), ("t", SCORES), ("st", PANELS)))

    def take_queries(self, f: Function, arg: dict[str, str], source: str, left: str, width: str, target: str) -> None:
        f.line(f"call void @transpose(ptr {source}, i64 {arg['q_row']}, i64 {arg['d']}, i64 {left}, "
               f"i64 {width}, ptr {target})")  # fmt: skip
        self.scale(f, target, arg["d"], width, arg["by"])

    def take_values(self, f: Function, arg: dict[str, str], source: str, keys: str) -> None:
        """Before a block of keys is met by the panels."""

    def own_arguments(self, arg: dict[str, str], v: str) -> tuple[str, str]:
        """The values of a step, and its last arguments."""
        return f"ptr {v}, i64 {arg['v_row']}", ""

    def give_results(self, f: Function, arg: dict[str, str], ot: str, left: str, out: str) -> None:
        f.line(f"call void @transpose.back(ptr {ot}, i64 {left}, i64 {arg['e']}, ptr {out}, i64 {arg['e']})")

    def driver(self, name: str) -> None:
        f, e, n = Function(), self.element, self.panel
        m = self.stored
        arg = self.arguments(f)
        self.begin(f, arg)
        _, q_size, o_size = self.sizes(f, arg)
        asked = f.let(f"icmp ne ptr {arg['o']}, null")
        features = f.let(f"select i1 {asked}, i64 {arg['e']}, i64 0")
        with f.loop("%begin", "%end", "1") as unit:
            block = f.let(f"urem i64 {unit.index}, {arg['blocks']}")
            number = f.let(f"udiv i64 {unit.index}, {arg['blocks']}")
            offset = self.batch(f, arg, number)
            q0 = f.let(f"mul i64 {block}, {arg['unit_rows']}")
            rows = f.smin(f.let(f"sub i64 {arg['queries']}, {q0}"), arg["unit_rows"])
            q1 = f.at(m, f.at(m, arg["q"], offset["q"]), f.let(f"mul i64 {q0}, {arg['q_row']}"))
            k1, v1 = f.at(m, arg["k"], offset["k"]), f.at(m, arg["v"], offset["v"])
            before = f.let(f"mul i64 {number}, {arg['queries']}")
            line = f.let(f"add i64 {before}, {q0}")
            to = f.at(m, arg["o"], f.let(f"mul i64 {line}, {arg['e']}"))
            with f.loop("0", rows, str(n)) as p:
                which = f.let(f"udiv i64 {p.index}, {n}")
                left, width, _ = self.width(f, rows, p.index)
                source = f.at(m, q1, f.let(f"mul i64 {p.index}, {arg['q_row']}"))
                target = f.at(e, "%qt", f.let(f"mul i64 {which}, {q_size}"))
                self.take_queries(f, arg, source, left, width, target)
                state = self.state(f, which, o_size)
                low, zero = constant(self.vec(f, ""), -math.inf), constant(self.vec(f, ""), 0.0)
                for part, x in ((0, low), (1, zero)):
                    for at in self.part(f, state, part, self.tile.vectors):
                        self.store(f, x, at)
            last = f.let(f"add i64 {q0}, {rows}")
            limit = f.let(f"select i1 {arg['is.causal']}, i64 {f.smin(last, arg['keys'])}, i64 {arg['keys']}")
            with f.loop("0", limit, str(KEYS)) as block_of:
                k0 = block_of.index
                keys = f.smin(f.let(f"sub i64 {limit}, {k0}"), str(KEYS))
                k2 = f.at(m, k1, f.let(f"mul i64 {k0}, {arg['k_row']}"))
                v2 = f.at(m, v1, f.let(f"mul i64 {k0}, {arg['v_row']}"))
                self.take_values(f, arg, v2, keys)
                own_v, own_last = self.own_arguments(arg, v2)
                more = f.let(f"icmp ne i64 {k0}, 0")
                with f.loop("0", rows, str(n)) as p:
                    which = f.let(f"udiv i64 {p.index}, {n}")
                    left, width, vectors = self.width(f, rows, p.index)
                    own, ahead = self.seen(f, arg, f.let(f"add i64 {q0}, {p.index}"), left, k0, keys)
                    with f.when(f.let(f"icmp sgt i64 {own}, 0")):
                        self.turn_mask(f, arg, offset, f.let(f"add i64 {q0}, {p.index}"), k0, own, left, width)
                        step = f.load("ptr", f.at("ptr", "@steps", vectors))
                        qt = f.at(e, "%qt", f.let(f"mul i64 {which}, {q_size}"))
                        state = self.state(f, which, o_size)
                        ot = f.let(f"select i1 {asked}, ptr {f.at(e, state, str(2 * n))}, ptr null")
                        f.line(
                            f"call void {step}(ptr {qt}, ptr {ot}, ptr {state}, ptr %s, ptr %t, ptr {k2}, "
                            f"i64 {arg['k_row']}, {own_v}, i64 {own}, i64 {arg['d']}, i64 {arg['e']}, i1 {more}, "
                            f"i64 {ahead}{own_last})"
                        )
            with f.loop("0", rows, str(n)) as p:
                which = f.let(f"udiv i64 {p.index}, {n}")
                left, _, _ = self.width(f, rows, p.index)
                state = self.state(f, which, o_size)
                ot = f.let(f"select i1 {asked}, ptr {f.at(e, state, str(2 * n))}, ptr null")
                f.line(f"call void @finish(ptr {ot}, ptr {state}, i64 {features})")
                with f.when(asked):
                    out = f.at(m, to, f.let(f"mul i64 {p.index}, {arg['e']}"))
                    self.give_results(f, arg, ot, left, out)
                with f.when(f.let(f"icmp ne ptr {arg['l']}, null")):
                    self.copy(f, state, f.at(e, arg["l"], f.let(f"add i64 {line}, {p.index}")), left)
        self.end(f)
        self.close(f, name)


@cache
def attention_text(dtype: np.dtype, tile: Tile, mask: str, used: tuple[int, ...]) -> tuple[str, str]:
    """The module of attention for a dtype, a kind of mask and panels of so many vectors, and its name."""
    w = Forward(dtype, tile, mask, used)
    for nv in used:
        w.product("row", nv)
        w.product("col", nv)
        w.step(nv)
    w.finish()
    w.transposes()
    w.steps()
    w.driver("lazyt_attention")
    return w.module("lazyt_attention")
