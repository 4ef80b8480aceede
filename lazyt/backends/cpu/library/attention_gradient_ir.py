"""The LLVM IR of attention's gradient: a panel of queries processes the keys block by block, as in attention_ir.py.

    s[key, query] = by * sum over d of k[key, d] * q[query, d], w = exp(s - l)
    p[key, query] = sum over e of v[key, e] * ct[query, e], s' = w * (p - delta) * by
    dq[d, query] += k[key, d] * s'[key, query];  dk[key, d] += s' @ q;  dv[key, e] += w @ ct

q and ct are transposed into working memory, and dq back from there. A unit is one matrix: its panels add to dk and
dv one after another.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from lazyt.backends.cpu.codegen.looptext import Function, suffix_of
from lazyt.backends.cpu.library.attention_tile import KEYS, PANELS_BACK, SCORES
from lazyt.backends.cpu.library.attention_writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from lazyt.backends.cpu.library.gemm_tile import Family, Tile


class Gradient(Writer):
    PARAMS = (
        "ptr %q, ptr %g, ptr %dq, ptr %rows, ptr %s, ptr %p, ptr %t, ptr %k, i64 %k_row, ptr %v, i64 %v_row, "
        "i64 %keys, i64 %d, i64 %e, i1 %more, i64 %ahead, ptr %own.q, i64 %q_row, ptr %own.g, i64 %g_row, "
        "ptr %dk, ptr %dv, i64 %queries, "
    )
    # Further arguments of a step.
    working = ""

    def step(self, nv: int) -> None:
        """%rows has l and delta, %own.q and %own.g are where q and ct lie in memory."""
        f, n = Function(), self.panel
        f.line("%last.key = sub i64 %keys, 1")
        for features, row, transposed, to in (("d", "k", "q", "s"), ("e", "v", "g", "p")):
            f.line(f"call void @row.{nv}(i64 %{features}, ptr %{row}, i64 %{row}_row, ptr %{transposed}, i64 {n}, "
                   f"ptr %{to}, i64 {n}, i64 %keys, i1 false, i64 0)")  # fmt: skip
        self.hide(f, nv)
        logs = [self.load(f, a) for a in self.part(f, "%rows", 0, nv)]
        deltas = [self.load(f, a) for a in self.part(f, "%rows", 1, nv)]
        by = self.splat(f, "%by")
        with f.loop("0", "%keys", "1") as key:
            ats = zip(self.row(f, "%s", key.index, nv), self.row(f, "%p", key.index, nv), logs, deltas, strict=True)
            for s, p, log, delta in ats:
                w = self.rules["exp"](self.load(f, s) - log)
                self.store(f, w, s)
                self.store(f, w * (self.load(f, p) - delta) * by, p)
        f.line(f"call void @col.{nv}(i64 %keys, ptr %k, i64 %k_row, ptr %p, i64 {n}, ptr %dq, i64 {n}, i64 %d, "
               "i1 %more, i64 0)")  # fmt: skip
        for features, a, own, to in (("d", "p", "q", "dk"), ("e", "s", "g", "dv")):
            with f.when(f.let(f"icmp ne ptr %{to}, null")), f.loop("0", f"%{features}", str(n)) as part:
                wide = f.smin(f.let(f"sub i64 %{features}, {part.index}"), str(n))
                before = f.let(f"udiv i64 {f.let(f'sub i64 {wide}, 1')}, {self.lanes}")
                last = f.let(f"sub i64 {wide}, {f.let(f'mul i64 {before}, {self.lanes}')}")
                whole = f.let(f"icmp eq i64 {last}, {self.lanes}")
                which = f.let(f"add i64 {before}, {f.let(f'select i1 {whole}, i64 {self.tile.vectors}, i64 0')}")
                code = f.load("ptr", f.at("ptr", "@parts", which))
                b, c = f.at(self.element, f"%own.{own}", part.index), f.at(self.element, f"%{to}", part.index)
                f.line(f"call void {code}(i64 %queries, ptr %{a}, i64 {n}, ptr {b}, i64 %{own}_row, ptr {c}, "
                       f"i64 %{features}, i64 %keys, i1 true, i64 {last})")  # fmt: skip
        f.line("ret void")
        params = f"{self.PARAMS}{self.element} %by"
        self.add(f, f"define internal void @step.{nv}({params}) nounwind noinline {{\nentry:\n{f.text()}\n}}")

    def parts(self, families: Iterable[Family]) -> None:
        """Products with their columns along features: by the vectors of these, whole ones behind the others."""
        vectors = range(1, self.tile.vectors + 1)
        for nv, tail in families:
            if tail or nv not in self.used:
                self.product("row", nv, tail)
        masked = [f"ptr @row.{nv}.tail" if (nv, True) in families else "ptr null" for nv in vectors]
        whole = [f"ptr @row.{nv}" if (nv, False) in families else masked[nv - 1] for nv in vectors]
        self.texts.append(f"@parts = internal constant [{2 * len(vectors)} x ptr] [{', '.join([*masked, *whole])}]")

    # What the driver asks for, which is another's where operands are no floats of this kind

    def begin(self, f: Function, arg: dict[str, str]) -> None:
        self.areas(f, arg, (("st", PANELS_BACK), ("s", SCORES), ("p", SCORES), ("t", SCORES)))

    def layout(self, f: Function, arg: dict[str, str]) -> dict[str, str]:
        """Where a panel has what, behind l and delta, and the size of it `whole`."""
        _, q_size, _ = self.sizes(f, arg)
        deep = f.let(f"and i64 {f.let('add i64 ' + arg['e'] + f', {self.lanes - 1}')}, {-self.lanes}")
        g_at = f.let(f"add i64 {q_size}, {2 * self.panel}")
        dq_at = f.let(f"add i64 {g_at}, {f.let(f'mul i64 {deep}, {self.panel}')}")
        return {"q": str(2 * self.panel), "g": g_at, "dq": dq_at, "whole": f.let(f"add i64 {dq_at}, {q_size}")}

    def take_queries(
        self, f: Function, arg: dict[str, str], at: dict[str, str], sources: dict[str, str], left: str, width: str
    ) -> None:
        """Pack q and ct of a panel. at: where it has what."""
        for x, features in (("q", "d"), ("g", "e")):
            f.line(f"call void @transpose(ptr {sources[x]}, i64 {arg[f'{x}_row']}, i64 {arg[features]}, i64 {left}, "
                   f"i64 {width}, ptr {at[x]})")  # fmt: skip
        self.scale(f, at["q"], arg["d"], width, arg["by"])

    def take_keys(self, f: Function, arg: dict[str, str], source: str, keys: str) -> None:
        """Before a block of keys is met by the panels."""

    def own_rows(self, arg: dict[str, str], at: dict[str, str], sources: dict[str, str]) -> str:
        """q and ct of a panel as rows, which dk and dv are made of."""
        return f"ptr {sources['q']}, i64 {arg['q_row']}, ptr {sources['g']}, i64 {arg['g_row']}"

    def driver(self, name: str) -> None:
        f, e, n = Function(), self.element, self.panel
        m = self.stored
        size = self.dtype.itemsize
        f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        arg = self.arguments(f)
        self.begin(f, arg)
        layout = self.layout(f, arg)
        with f.loop("%begin", "%end", "1") as unit:
            offset = self.batch(f, arg, unit.index)
            q0, k0, v0, g0 = (f.at(m, arg[x], offset[x]) for x in "qkvg")
            line = f.let(f"mul i64 {unit.index}, {arg['queries']}")
            dq = f.at(e, arg["dq"], f.let(f"mul i64 {line}, {arg['d']}"))
            sums = {}
            key = f.let(f"mul i64 {unit.index}, {arg['keys']}")
            for to, features in (("dk", "d"), ("dv", "e")):
                there = f.let(f"icmp ne ptr {arg[to]}, null")
                own = f.at(e, arg[to], f.let(f"mul i64 {key}, {arg[features]}"))
                sums[to] = f.let(f"select i1 {there}, ptr {own}, ptr null")
                with f.when(there):
                    count = f.let(f"mul i64 {f.let('mul i64 ' + arg['keys'] + ', ' + arg[features])}, {size}")
                    f.line(f"call void @llvm.memset.p0.i64(ptr {own}, i8 0, i64 {count}, i1 false)")
            with f.loop("0", arg["queries"], arg["unit_rows"]) as group:
                first = group.index
                rows = f.smin(f.let(f"sub i64 {arg['queries']}, {first}"), arg["unit_rows"])

                def panel(p: str) -> tuple[str, dict[str, str], str, dict[str, str]]:
                    """Where its own memory is and has what, its first query, and where q and ct lie."""
                    which = f.let(f"udiv i64 {p}, {n}")
                    own = f.at(e, "%st", f.let(f"mul i64 {which}, {layout['whole']}"))
                    query = f.let(f"add i64 {first}, {p}")
                    rows_of = ("q", q0, arg["q_row"]), ("g", g0, arg["g_row"])
                    lie = {x: f.at(m, base, f.let(f"mul i64 {query}, {row}")) for x, base, row in rows_of}
                    return own, {x: f.at(e, own, there) for x, there in layout.items()}, query, lie

                with f.loop("0", rows, str(n)) as p:
                    own, at, query, sources = panel(p.index)
                    left, width, _ = self.width(f, rows, p.index)
                    for part, name_of in ((0, "l"), (1, "delta")):
                        source = f.at(e, arg[name_of], f.let(f"add i64 {line}, {query}"))
                        self.fetch(f, source, f.at(e, own, str(part * n)), left)
                    self.take_queries(f, arg, at, sources, left, width)
                last = f.let(f"add i64 {first}, {rows}")
                limit = f.let(f"select i1 {arg['is.causal']}, i64 {f.smin(last, arg['keys'])}, i64 {arg['keys']}")
                with f.loop("0", limit, str(KEYS)) as block_of:
                    begin = block_of.index
                    keys = f.smin(f.let(f"sub i64 {limit}, {begin}"), str(KEYS))
                    here = {x: f.at(m, base, f.let(f"mul i64 {begin}, {arg[row]}"))
                          for x, base, row in (("k", k0, "k_row"), ("v", v0, "v_row"))}  # fmt: skip
                    self.take_keys(f, arg, here["k"], keys)
                    into: dict[str, str] = {}
                    for x, features in (("dk", "d"), ("dv", "e")):
                        there = f.let(f"icmp ne ptr {sums[x]}, null")
                        moved = f.at(e, sums[x], f.let(f"mul i64 {begin}, {arg[features]}"))
                        into[x] = f.let(f"select i1 {there}, ptr {moved}, ptr null")
                    more = f.let(f"icmp ne i64 {begin}, 0")
                    with f.loop("0", rows, str(n)) as p:
                        own, at, query, sources = panel(p.index)
                        left, width, vectors = self.width(f, rows, p.index)
                        seen, ahead = self.seen(f, arg, query, left, begin, keys)
                        with f.when(f.let(f"icmp sgt i64 {seen}, 0")):
                            self.turn_mask(f, arg, offset, query, begin, seen, left, width)
                            step = f.load("ptr", f.at("ptr", "@steps", vectors))
                            f.line(
                                f"call void {step}(ptr {at['q']}, ptr {at['g']}, ptr {at['dq']}, ptr {own}, ptr %s, "
                                f"ptr %p, ptr %t, ptr {here['k']}, i64 {arg['k_row']}, ptr {here['v']}, "
                                f"i64 {arg['v_row']}, i64 {seen}, i64 {arg['d']}, i64 {arg['e']}, i1 {more}, "
                                f"i64 {ahead}, {self.own_rows(arg, at, sources)}, ptr {into['dk']}, ptr {into['dv']}, "
                                f"i64 {left}, {e} {arg['by']}{self.working})"
                            )
                with f.when(f.let(f"icmp ne ptr {arg['dq']}, null")), f.loop("0", rows, str(n)) as p:
                    _, at, query, _ = panel(p.index)
                    left, _, _ = self.width(f, rows, p.index)
                    out = f.at(e, dq, f.let(f"mul i64 {query}, {arg['d']}"))
                    f.line(f"call void @transpose.back(ptr {at['dq']}, i64 {left}, i64 {arg['d']}, "
                           f"ptr {out}, i64 {arg['d']})")  # fmt: skip
        self.end(f)
        self.close(f, name)

    def taken(self, f: Function, left: str, v: int) -> str:
        """Which lanes of a row's vector v are among the first `left`."""
        at = f.let(f"sub i64 {left}, {v * self.lanes}")
        some = f.body.call("i64", "llvm.smax.i64", ("i64", at), ("i64", "0"))
        return f.mask(self.lanes, f.smin(some, str(self.lanes)))

    def fetch(self, f: Function, source: str, to: str, left: str) -> None:
        """The first `left` elements to a panel's row, zeros behind them."""
        name = f"llvm.masked.load.v{self.lanes}{suffix_of(self.dtype)}.p0"
        for v in range(self.tile.vectors):
            mask = self.taken(f, left, v)
            here = f.at(self.element, source, str(v * self.lanes))
            x = f.body.call(
                self.vector, name, ("ptr", f"align {self.dtype.itemsize} {here}"), (f"<{self.lanes} x i1>", mask),
                (self.vector, "zeroinitializer"),
            )  # fmt: skip
            self.store(f, self.vec(f, x), f.at(self.element, to, str(v * self.lanes)))


@cache
def gradient_text(
    dtype: np.dtype, tile: Tile, mask: str, used: tuple[int, ...], families: tuple[Family, ...]
) -> tuple[str, str]:
    """The module of attention's gradient, and its name; `families` are those that features take (see `parts`)."""
    w = Gradient(dtype, tile, mask, used)
    for nv in used:
        w.product("row", nv)
        w.product("col", nv)
        w.step(nv)
    w.parts(families)
    w.transposes()
    w.steps()
    w.driver("lazyt_attention_gradient")
    return w.module("lazyt_attention_gradient")
