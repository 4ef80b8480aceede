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


class _Gradient(Writer):
    PARAMS = (
        "ptr %q, ptr %g, ptr %dq, ptr %rows, ptr %s, ptr %p, ptr %t, ptr %k, i64 %k_row, ptr %v, i64 %v_row, "
        "i64 %keys, i64 %d, i64 %e, i1 %more, i64 %ahead, ptr %own.q, i64 %q_row, ptr %own.g, i64 %g_row, "
        "ptr %dk, ptr %dv, i64 %queries, "
    )

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

    def driver(self, name: str) -> None:
        f, e, n = Function(), self.element, self.panel
        size = self.dtype.itemsize
        f.body.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        arg = self.arguments(f)
        self.areas(f, arg, (("st", PANELS_BACK), ("s", SCORES), ("p", SCORES), ("t", SCORES)))
        _, q_size, _ = self.sizes(f, arg)
        deep_e = f.let(f"and i64 {f.let('add i64 ' + arg['e'] + f', {self.lanes - 1}')}, {-self.lanes}")
        # A panel: l and delta, then q, ct and dq transposed.
        g_at = f.let(f"add i64 {q_size}, {2 * n}")
        dq_at = f.let(f"add i64 {g_at}, {f.let(f'mul i64 {deep_e}, {n}')}")
        whole = f.let(f"add i64 {dq_at}, {q_size}")
        with f.loop("%begin", "%end", "1") as unit:
            offset = self.batch(f, arg, unit.index)
            q0, k0, v0, g0 = (f.at(e, arg[x], offset[x]) for x in "qkvg")
            line = f.let(f"mul i64 {unit.index}, {arg['queries']}")
            dq = f.at(e, arg["dq"], f.let(f"mul i64 {line}, {arg['d']}"))
            sums = {}
            key = f.let(f"mul i64 {unit.index}, {arg['keys']}")
            for to, features in (("dk", "d"), ("dv", "e")):
                there = f.let(f"icmp ne ptr {arg[to]}, null")
                at = f.at(e, arg[to], f.let(f"mul i64 {key}, {arg[features]}"))
                sums[to] = f.let(f"select i1 {there}, ptr {at}, ptr null")
                with f.when(there):
                    count = f.let(f"mul i64 {f.let('mul i64 ' + arg['keys'] + ', ' + arg[features])}, {size}")
                    f.line(f"call void @llvm.memset.p0.i64(ptr {at}, i8 0, i64 {count}, i1 false)")
            with f.loop("0", arg["queries"], arg["unit_rows"]) as group:
                first = group.index
                rows = f.smin(f.let(f"sub i64 {arg['queries']}, {first}"), arg["unit_rows"])

                def panel(p: str) -> tuple[str, str]:
                    which = f.let(f"udiv i64 {p}, {n}")
                    return f.at(e, "%st", f.let(f"mul i64 {which}, {whole}")), f.let(f"add i64 {first}, {p}")

                with f.loop("0", rows, str(n)) as p:
                    state, query = panel(p.index)
                    left, width, _ = self.width(f, rows, p.index)
                    for part, name_of in ((0, "l"), (1, "delta")):
                        source = f.at(e, arg[name_of], f.let(f"add i64 {line}, {query}"))
                        self.fetch(f, source, f.at(e, state, str(part * n)), left)
                    for base, row, features, to in ((q0, "q_row", "d", str(2 * n)), (g0, "g_row", "e", g_at)):
                        source = f.at(e, base, f.let(f"mul i64 {query}, {arg[row]}"))
                        f.line(f"call void @transpose(ptr {source}, i64 {arg[row]}, i64 {arg[features]}, i64 {left}, "
                               f"i64 {width}, ptr {f.at(e, state, to)})")  # fmt: skip
                    self.scale(f, f.at(e, state, str(2 * n)), arg["d"], width, arg["by"])
                last = f.let(f"add i64 {first}, {rows}")
                limit = f.let(f"select i1 {arg['is.causal']}, i64 {f.smin(last, arg['keys'])}, i64 {arg['keys']}")
                with f.loop("0", limit, str(KEYS)) as block_of:
                    begin = block_of.index
                    keys = f.smin(f.let(f"sub i64 {limit}, {begin}"), str(KEYS))
                    here = {x: f.at(e, base, f.let(f"mul i64 {begin}, {arg[row]}"))
                          for x, base, row in (("k", k0, "k_row"), ("v", v0, "v_row"))}  # fmt: skip
                    into: dict[str, str] = {}
                    for x, features in (("dk", "d"), ("dv", "e")):
                        there = f.let(f"icmp ne ptr {sums[x]}, null")
                        moved = f.at(e, sums[x], f.let(f"mul i64 {begin}, {arg[features]}"))
                        into[x] = f.let(f"select i1 {there}, ptr {moved}, ptr null")
                    more = f.let(f"icmp ne i64 {begin}, 0")
                    with f.loop("0", rows, str(n)) as p:
                        state, query = panel(p.index)
                        left, width, vectors = self.width(f, rows, p.index)
                        own, ahead = self.seen(f, arg, query, left, begin, keys)
                        with f.when(f.let(f"icmp sgt i64 {own}, 0")):
                            self.turn_mask(f, arg, offset, query, begin, own, left, width)
                            step = f.load("ptr", f.at("ptr", "@steps", vectors))
                            own_q = f.at(e, q0, f.let(f"mul i64 {query}, {arg['q_row']}"))
                            own_g = f.at(e, g0, f.let(f"mul i64 {query}, {arg['g_row']}"))
                            f.line(
                                f"call void {step}(ptr {f.at(e, state, str(2 * n))}, ptr {f.at(e, state, g_at)}, "
                                f"ptr {f.at(e, state, dq_at)}, ptr {state}, ptr %s, ptr %p, ptr %t, ptr {here['k']}, "
                                f"i64 {arg['k_row']}, ptr {here['v']}, i64 {arg['v_row']}, i64 {own}, i64 {arg['d']}, "
                                f"i64 {arg['e']}, i1 {more}, i64 {ahead}, ptr {own_q}, i64 {arg['q_row']}, "
                                f"ptr {own_g}, i64 {arg['g_row']}, ptr {into['dk']}, ptr {into['dv']}, i64 {left}, "
                                f"{e} {arg['by']})"
                            )
                with f.when(f.let(f"icmp ne ptr {arg['dq']}, null")), f.loop("0", rows, str(n)) as p:
                    state, query = panel(p.index)
                    left, _, _ = self.width(f, rows, p.index)
                    out = f.at(e, dq, f.let(f"mul i64 {query}, {arg['d']}"))
                    f.line(f"call void @transpose.back(ptr {f.at(e, state, dq_at)}, i64 {left}, i64 {arg['d']}, "
                           f"ptr {out}, i64 {arg['d']})")  # fmt: skip
        self.close(f, name)

    def fetch(self, f: Function, source: str, to: str, left: str) -> None:
        """The first `left` elements to a panel's row, zeros behind them."""
        name = f"llvm.masked.load.v{self.lanes}{suffix_of(self.dtype)}.p0"
        for v in range(self.tile.vectors):
            at = f.let(f"sub i64 {left}, {v * self.lanes}")
            some = f.body.call("i64", "llvm.smax.i64", ("i64", at), ("i64", "0"))
            mask = f.mask(self.lanes, f.smin(some, str(self.lanes)))
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
    w = _Gradient(dtype, tile, mask, used)
    for nv in used:
        w.product("row", nv)
        w.product("col", nv)
        w.step(nv)
    w.parts(families)
    w.transposes()
    w.steps()
    w.driver("lazyt_attention_gradient")
    return w.module("lazyt_attention_gradient")
