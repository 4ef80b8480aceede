"""Random programs with loops: a few functions, a state, and iterations that differ only by a schedule.

The state that lazyt caches for a place in a program (a sync, a training step, a public call, a `backward()`) is used
by the next iteration, mostly unchanged, and sometimes with other extents, another grad mode, other live values or an
error. All of that is drawn from a seed, and written as the source of a module that uses the names of `loops.Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lazyt.testing.array_programs import Pick
from lazyt.testing.choices import EVERYTHING, Choices
from lazyt.testing.mixed_programs import MixedWriter, write_at_once

# What a function does to a matrix `t` of n rows and d columns, beside `a`, its argument, `s`, a scalar, and the weights
# `w` (d, d) and `v` (d,): values of the same shape again.
MAPS = (
    "lt.tanh({t})", "lt.exp({t} * 0.3)", "lt.sin({t})", "lt.sqrt(lt.abs({t}) + 1)", "-{t}", "abs({t})", "{t} * {t}",
    "{t} ** 2", "lt.nn.functional.relu({t})", "lt.sigmoid({t})", "lt.log1p(abs({t}))", "{t} / (1 + {u} * {u})",
    "{t} + {u}", "{t} * {u}", "{t} - {u}", "{t} * {s}", "{s} - {t}", "{t} + {s}", "{t} / ({s} + 3)", "{t} * v",
    "{t} + v", "lt.maximum({t}, {u})", "lt.where({t} > 0, {u}, {t})", "lt.clip({t}, -1, 1)", "lt.clip({t}, -{s}, 2)",
    "{t} @ w", "lt.nn.functional.linear({t}, w, v)", "lt.matmul({t}, w.T)", "({u} @ {t}.T) @ {t} * 0.1",
)  # fmt: skip
ALONG = (
    "{t} - lt.mean({t}, axis=1, keepdims=True)", "{t} * lt.sum({t}, axis=0)", "{t} + {t}.max(axis=-1, keepdims=True)",
    "{t} / (1 + lt.std({t}, axis=0))", "lt.softmax({t}, axis=1)", "lt.log_softmax({t}, -1)", "lt.cumsum({t}, axis=1)",
    "lt.sort({t}, axis=-1)", "{t} + lt.argmax({t}, axis=0)", "{t} * lt.any({t} > 0, axis=1, keepdims=True)",
    "lt.cumulative_sum({t}, axis=0)", "{t} * lt.logsumexp({t}, axis=0)", "{t} - lt.min({t})", "{t} + {t}.var()",
    "lt.prod({t} * 0.5, axis=1, keepdims=True) + {t}", "{t} * lt.count_nonzero({t} > 0, axis=0)",
    "lt.nn.functional.layer_norm({t}, ({t}.shape[1],))", "{t} * (1 + lt.argsort(v))",
    "{t} * lt.vecdot({t}, {u})[:, None]",
    "{t} + lt.trace(w)", "{t} + lt.dot(v, v)", "{t} * lt.outer({t}[:, 0], v)", "{t} + {t}.sum() * 0.1",
)  # fmt: skip
MOVES = (
    "{t}[::-1]", "{t}[:, ::-1]", "lt.flip({t}, axis=1)", "lt.roll({t}, 1, axis=0)", "lt.roll({t}, {i}, axis=1)",
    "lt.concat([{t}[1:], {u}[:1]])", "lt.pad({t}[:, 1:], ((0, 0), (1, 0)))", "{t}.reshape(-1).reshape({t}.shape)",
    "{t}.T.T", "lt.stack([{t}, {u}]).sum(axis=0)", "{t} * {t}[{i}]", "{t} + {t}[:, {i}:][:, :1]",
    "{t}[[0, -1] + [0] * ({t}.shape[0] - 2)]",
    "lt.take({t}, at % {t}.shape[0], axis=0)", "lt.tile({t}, (1, 2))[:, ::2]", "lt.repeat({t}, 2, axis=0)[1::2]",
    "lt.tril({t}) + {u}", "lt.triu({t}, k=1)", "lt.squeeze(lt.expand_dims({t}, axis=0), axis=0)",
    "lt.moveaxis({t}, 0, 1).T", "lt.broadcast_to({t}[{i}], {t}.shape)", "lt.concat(lt.split({t}, 1)[::-1])",
    "{t} + lt.arange({t}.shape[1])", "{t} * lt.ones({t}.shape)", "{t} + lt.eye(*{t}.shape)",
    "lt.where(mask({t}), {t}, {u})",
    "lt.take_along_axis({t}, lt.argsort({u}, axis=0), axis=0)", "{t} + lt.diagonal(w)", "{t} - lt.full({t}.shape, 2.0)",
)  # fmt: skip
DRAWN = (
    "{t} + lt.random.rand(*{t}.shape)", "{t} * lt.random.bernoulli(0.7, shape={t}.shape)",
    "{t} + lt.random.normal(0.0, 0.1, {t}.shape)", "lt.nn.functional.dropout({t}, 0.4)",
)  # fmt: skip
WRITES = (
    "{t} += {u}", "{t} *= {s}", "{t}[0] = 0.5", "{t}[:, 1:] *= 2", "{t}[{t} > 1] = 0.25", "{t}[::2] += {u}[::2]",
    "{t}[[0, 0]] = 1.5", "{t}[{i}] = {s}", "{t} -= 1", "{t}[...] = {u}", "{t}[:, {i}] = v[{i}]", "{t}.T[0] += 1",
)  # fmt: skip
# What a function lets somebody hold, or look at, of what it computes on the way.
INSIDE = (
    "if {c}: kept[:] = [*kept, t][-3:]", "if {c}: kept[:] = [t]", "kept[:] = [t] if {c} else []",
    "kept[:] = [t[1:], t] if {c} else [t]", "if {c}: kept[:] = [t[0]]", "if {c}: see(t.sum())", "if {c}: retain(t)",
    "if {c}: lt.sync()", "if {c}: kept[:] = [u]", "if {c}: kept[:] = []",
)  # fmt: skip
SCALARS = (
    "2", "0.5", "3.0", "k % 3", "k * 0.25", "np.float32(0.5)", "np.float64(k)", "np.int64(2)", "True",
    "(2 if k % 6 else 0.5)",
    "(1.0 if k % 4 else 1)", "lt.asarray(0.5)", "(0.5 if k % 5 else np.float32(2))", "-0.0", "float(k)",
)  # fmt: skip
# Calls of which an argument changes its kind from turn to turn: {o} and {m} are numbers or broadcast against `t`, {o}
# may be None, {j} is an index of its rows, {x} an axis.
CHANGING = (
    "lt.clip({t} * 1, {o}, {o})", "lt.clip({t}, {o}, 2)", "({t} + 0).clip({m}, {o})", "lt.where({t} * 1 > 0, {m}, {t})",
    "lt.where({t} > 0, {t} * 1, {m})", "({t} * 1) + {m}", "{m} - {t}", "({t} + 1) * {m}", "lt.maximum({t} * 1, {m})",
    "lt.minimum({m}, {t})", "({t} * 1 > {m}) * {t}", "lt.isclose({t} * 1, {m}) + {t}", "{t} * lt.dot(v * 1, {m}).sum()",
    "{t} + ({t} * 1)[{j}].sum()", "{t} + ({t} * 1)[{j}, 0].mean()", "{t} * ({t} * 1)[{j}, {j}].sum()",
    "{t} - lt.sum({t} * 1, {x}, keepdims=True)", "{t} + lt.flip({t} * 1, {x})", "np.clip({t} * 1, {o}, {m})",
)  # fmt: skip
# Writes of which the place or the value does.
CHANGING_WRITES = (
    "{t}[{j}] = {m}", "{t}[0] = {m}", "{t}[{i}] *= {m}", "{t} += {m}", "{t} *= {m}", "{t}[1:][0] = {m}",
    "{t}[:1] -= {m}",
    "{t}.T[...] = 0.5; {t}[{j}] = {m}", "r = {t}[1:]; r[...] = {m}; r += {m}", "r = {t}[-1]; {t}[0] = {m}; r *= {m}",
    "{t}[...] = {m}", "r = {t}[:]; r += {m}; {t}[0] = r[-1]", "{t}[0], {t}[-1] = {m}, {m}", "{t}[::-1][{i}] = {m}",
)  # fmt: skip
ARGUMENTS = {
    # A number, one of NumPy's, a tensor that was met before or not, one that is new or pending, a view.
    "m": ("2", "0.5", "True", "-0.0", "np.float32(0.5)", "np.int64(1)", "v", "data(v.shape, k)", "lt.asarray(0.5)",
          "v * 0.5", "w[0]", "{t}[:1]", "s"),
    "j": ("0", "-1", "None", "...", "[0, 1]", "np.int64(1)", "True", "slice(None)", "slice(0, 1)", "at[:2] % 2",
          "at[0] % 2", "lt.asarray([0, 1])", "lt.asarray(1)", "lt.argmax({t}[:, 0])"),
    "x": ("0", "1", "-1", "None", "(0, 1)", "np.int64(0)", "True"),
}  # fmt: skip
ARGUMENTS["o"] = ("None", "None", *ARGUMENTS["m"])
LOSSES = (
    "lt.mean({h} * {h})", "lt.sum(abs({h})) * 0.1", "lt.nn.functional.mse_loss({h}, y[:{h}.shape[0]])",
    "lt.nn.functional.cross_entropy({h}, at[:{h}.shape[0]] % {h}.shape[1])", "({h}[0] * {h}[0]).sum()", "{h}.std()",
    "lt.sum(lt.tanh({h}))",
)  # fmt: skip
MODULES = ("Linear({d}, {d})", "Tanh()", "ReLU()", "LayerNorm({d})", "Dropout(0.3)", "BatchNorm1d({d})", "GELU()")
OPTIMIZERS = (
    "SGD({p}, lr=0.1)", "SGD({p}, lr=0.05, momentum=0.9)", "SGD({p}, lr=0.05, momentum=0.9, nesterov=True)",
    "Adam({p}, lr=0.05)", "AdamW({p}, lr=0.05)", "RMSprop({p}, lr=0.02)", "Adagrad({p}, lr=0.05)",
)  # fmt: skip
# What is read of a value; the first two sync and read nothing.
READS = (
    "lt.sync()", "lt.sync({h})", "see({h})", "see({h}.sum().item())", "see(float({h}.sum()))",
    "see(bool(({h} > 0).any()))", "see({h}.tolist())", "see(int(lt.count_nonzero({h})))", "see(str({h}))",
    "see({h}.detach().numpy())", "look({h}.detach())",
)  # fmt: skip
HOLDS = (
    "kept = [*kept, {h}][-3:]", "old = {h}", "old = {h}.detach()", "kept = [*kept, {h}[1:]][-2:]", "{h} = None",
    "kept = []",
    "old = {p}.detach()", "old = lt.copy({p}.detach())", "kept = [*kept, {p}.grad][-3:]", "del old; old = None",
    "old = {h}.T", "x = {h}.detach()", "{h} = {h} + 0", "see(kept[-1] if kept else None)", "see(old)", "{h} += 1",
    "old = {p}.grad", "kept = [{h}, {h}[0], {h}.T]", "y = {h}.detach()[:2]",
    "see([z.sum() for z in kept if z is not None])", "old = {h} if {c} else None", "kept = [{h}] if {c} else []",
    "retain({h})", "see({h}.grad)", "hook = on_gradient({h})", "{h} = {h}.detach()",
    "{h} = {h}.detach(); {h}[0] = {p}.sum() * 0.1", "old = {h}.detach(); old *= {p}.mean()",
)  # fmt: skip
ON_PARAMETERS = (
    "with lt.no_grad(): {p} *= 0.9", "with lt.no_grad(): {p}[0] = 0.5", "with lt.no_grad(): {p}[...] = {p} * 0.5",
    "{p}.requires_grad_({c})", "{p}.grad = None", "hook = {p}.register_hook(lambda g: g * 2)",
    "hook = {p}.register_hook(lambda g: note(g.shape))", "hook.remove()", "{p} = param({p}.shape, k)",
    "{p} = {p}.detach().requires_grad_()", "note({p}.is_leaf, {p}.grad is None)", "see({p}.grad)",
    "with lt.no_grad(): {p} += 0.01 * ({p}.grad if {p}.grad is not None else 1)", "{p}.grad = lt.ones({p}.shape)",
    "lt.nn.utils.clip_grad_norm_([{p}], 0.5)", "with lt.no_grad(): old = {p} * 2",
    "y = {p}[:1]; note({p}.requires_grad and see(lt.autograd.grad((y * y).sum(), y)))",
)  # fmt: skip
MISTAKES = (
    "lt.ones((k, 3)) + lt.ones(k + 9)", "old = x[lt.asarray([0, {n} if {c} else 1])]", "x @ lt.ones((7, 9))",
    "with lt.no_sync(): see(float(x.sum() + 1))", "x[99]", "see(lt.take(x, lt.asarray([99]), axis=0).numpy())",
    "loss.backward()", "raise ValueError(k)", "lt.linalg.inv(w * ({c})).sum().item()",
)  # fmt: skip
CONTEXTS = (
    "lt.no_grad() if {c} else same()", "lt.eager() if {c} else same()", "lt.no_grad() if {c} else lt.enable_grad()",
    "lt.no_grad(), lt.enable_grad() if {c} else same()", "lt.no_grad()", "lt.enable_grad() if {c} else lt.no_grad()",
    "lt.no_sync() if {c} else same()",
)  # fmt: skip


class LoopWriter:
    """Writes one program; `lines` are its source."""

    def __init__(self, pick: Pick, choices: Choices = EVERYTHING) -> None:
        self.pick = pick
        self.choices = choices
        self.lines: list[str] = []
        self.tell: Callable[[list[str]], None] = lambda lines: None  # what is run while it is written
        self.history: list[dict[str, np.ndarray]] = []
        self.values = ["h", "g"]
        self.weights = ["w", "v"]
        self.rows, self.columns = ((3, 4), (5, 3), (2, 2), (48, 40), (1, 4), (8, 5))[pick(6)]
        self.trained = pick(3) > 0
        # Turns that are all alike but for one or two of them: what is remembered is used, and then something is other.
        self.calm = pick(2) == 0
        self.steady = ""  # a period that several parts of the program share

    def one(self, of: Sequence[str], most: int = 0) -> str:
        """One of these; with `most`, of the part that programs of this block draw from."""
        some = self.choices.of(of, most) if most else of
        return some[self.pick(len(some))]

    def when(self) -> str:
        """In which turns: periods, single turns, the first or last ones."""
        p, n = 2 + self.pick(6), self.pick(8)
        kinds = [f"k == {6 + n}", f"k > {5 + n}", f"k in ({5 + n % 4}, {10 + n})", f"k % 7 == {n % 7}"]
        if not self.calm:
            kinds += [f"k % {p} == {n % p}", f"k % {p}", f"k % {p} > {p // 2}", f"k < {4 + n}", f"k // {p} % 2"]
        return self.one(kinds)

    def fill(self, template: str, **names: str) -> str:
        """A template with all its names."""
        some = {
            "i": self.one(("0", "1", "-1", "k % 2")), "c": self.steady if self.pick(2) else self.when(),
            "d": str(self.columns),
            "h": self.one(self.values), "p": self.one(self.weights), "n": str(self.rows + 9), "s": "s", "u": "a",
            "t": "t",
        }  # fmt: skip
        return template.format(**{**some, **names})

    def program(self) -> None:
        """Functions, state, loop, and what is looked at in the end."""
        self.steady = self.when()
        functions = [self.function(f"f{n}") for n in range(1 + self.pick(3))]
        if self.pick(3) == 0:
            functions.append(self.table())
        if self.pick(3) == 0:
            functions.append(self.function("j", pure=True))
        shape = f"({self.rows}, {self.columns})"
        made = "param" if self.trained else "data"
        self.lines += [
            f"w = {made}(({self.columns}, {self.columns}), 1)", f"v = {made}(({self.columns},), 2)",
            f"x = data({shape}, 3)",
            f"y = data({shape}, 4)", f"at = lt.asarray(np.arange({self.rows + 4}) * 5 % 7)",
        ]  # fmt: skip
        parameters = ("[w, v]", "[w]", "[{'params': [w]}, {'params': [v], 'lr': 0.01}]")[self.pick(3)]
        if self.pick(4) == 0:
            layers = ", ".join(f"lt.nn.{self.fill(self.one(MODULES))}" for _ in range(1 + self.pick(3)))
            self.lines.append(f"net = lt.nn.Sequential(lt.nn.Linear({self.columns}, {self.columns}), {layers})")
            functions.append("net({t})")
            parameters = ("net.parameters()", "[*net.parameters(), w, v]")[self.pick(2)]
        self.lines += [
            f"opt = lt.optim.{self.one(OPTIMIZERS).format(p=parameters)}",
            "h = g = lt.zeros((2, 2))",
            "loss = old = hook = None",
            "kept = []",
            f"for k in turns({10 + self.pick(16)}):",
            "    try:",
        ]
        turn = self.turn(functions)
        self.lines += [f"        {line}" for line in turn]
        self.lines += ["    except Exception as e:", "        note(e)", "    note(w, v, h, g, loss)"]
        if self.pick(3) == 0:
            self.lines.append(f"    {self.fill(self.one(READS))}")
        self.lines += ["finish(x, y, w, v, w.grad, v.grad, h, g, loss, old, kept)"]
        self.lines = "\n".join(self.lines).split("\n")

    def function(self, name: str, pure: bool = False) -> str:
        """Define a function of a matrix and a scalar; how it is called. A `pure` one is under `jit`."""
        body = ["t = a" if self.pick(3) else "t = a * 1"]
        kinds = (MAPS, MAPS, MAPS, ALONG, MOVES, MOVES if pure else DRAWN)
        for _ in range(1 + self.pick(6)):
            if self.pick(6) == 0:
                if body[-1] == "t = a":
                    body.append("t = t + 0")
                line = self.one(WRITES, 8) if self.pick(2) else self.changing(CHANGING_WRITES)
                body.append(self.fill(line))
                continue
            other = "u" if any(line.startswith("u = ") for line in body) and self.pick(2) else "a"
            template = self.one(kinds[self.pick(len(kinds))], 12) if self.pick(6) else self.changing()
            if self.pick(5) == 0:
                body.append("u = t")
            body.append(f"t = {self.fill(template, u=other)}")
            if not pure and self.pick(3 if self.calm else 5) == 0:
                body.append(self.fill(self.one(INSIDE)).replace("[u]", f"[{other}]"))
        twice = pure and self.pick(4) == 0
        result = "lt.tanh(t)" if self.pick(3) else "t"
        body += ["t = " + result, "return t, t"] if twice else ["return " + result]
        if self.calm and not pure and self.pick(2):
            # Held in a few turns, and read later: else nobody holds it.
            body.insert(1 + self.pick(len(body)), f"if {self.when()}: kept[:] = [*kept, t][-3:]")
        self.lines += [*["@lt.jit"] * pure, f"def {name}(a, s):", *(f"    {line}" for line in body)]
        return f"sum({name}({{t}}, {{s}}))" if twice else f"{name}({{t}}, {{s}})"

    def changing(self, of: Sequence[str] = CHANGING) -> str:
        """A call or a write of which arguments are of one kind in some turns, and of others in the rest."""
        out = self.one(of)
        for name, kinds in ARGUMENTS.items():
            while (place := f"{{{name}}}") in out:
                a, b, c = (self.one(kinds) for _ in range(3))
                other = f"({b} if {self.when()} else {c})" if self.pick(3) == 0 else b
                out = out.replace(place, f"({a} if {self.when()} else {other})", 1)
        return out

    def table(self) -> str:
        """Define a function of statements over the whole operation table."""
        w = MixedWriter(self.pick, choices=self.choices)
        w.tell = self.tell
        with np.errstate(all="ignore"):
            write_at_once(w, 2 + self.pick(4))
        constants = [n for n in w.lines if "leaf(" in n]
        names = [n.split(" ")[0] for n in constants]
        self.lines += ["xp = lt", *constants, "def g0():", *[f"    global {', '.join(names)}"] * bool(names)]
        self.lines += [f"    {line}" for line in w.lines if line not in constants]
        self.lines.append(f"    return {w.alive[-1]} * 1" if w.alive else "    return lt.ones(2)")
        return "g0()"

    def turn(self, functions: Sequence[str]) -> list[str]:
        """The statements of one turn."""
        out: list[str] = []
        if self.pick(8 if self.calm else 3) == 0:
            shape = f"({self.rows}, {self.columns})"
            other = f"({self.rows} + {self.one(('1', 'k % 3', '2', 'k'))}, {self.columns})"
            out.append(f"x = data({other} if {self.when()} else {shape}, {self.one(('3', 'k'))})")
        for _ in range(1 + self.pick(2 if self.calm else 3)):
            out += self.call(functions)
            out += self.more()
        if self.trained and self.pick(4):
            out += self.training(functions)
        for _ in range(self.pick(3)):
            out += self.more()
        if self.pick(8 if self.calm else 4) == 0:
            line = self.fill(self.one(MISTAKES))
            when = f"k == {6 + self.pick(9)}" if self.pick(2) else f"k % 7 == {self.pick(7)}"
            out.append(f"if {when}:\n            {line}" if line.startswith("with ") else f"if {when}: {line}")
            out += self.more()
        ends = ("", "lt.sync()", "see(float(h.sum()))", "lt.sync()")
        last = ends[1 + self.pick(3) if self.calm else self.pick(4)]
        return [*out, last] if last else out

    def sometimes(self, line: str) -> str:
        """A statement in some turns."""
        compound = line.startswith("with ")
        if compound:
            return f"if {self.when()}:\n            {line}"
        return f"if {self.steady if self.pick(3) == 0 else self.when()}: {line}" if self.calm or self.pick(4) else line

    def call(self, functions: Sequence[str]) -> list[str]:
        """Run a function, mostly the same one each turn."""
        h = self.one(self.values)
        operand = self.one(("x", "x", "x", "w", "y", "x * 2", "x[1:]", "h"))
        f = self.one(functions).format(t=operand, s=self.one(SCALARS))
        if self.pick(4) == 0:
            other = self.one(functions).format(t=operand, s=self.one(SCALARS))
            f = f"{f} if {self.when()} else {other}"
        if self.pick(16) == 0:
            f = f"apart(lambda: {f})"
        line = f"{h} = {f}"
        if self.pick(3) == 0:
            return [f"with {self.fill(self.one(CONTEXTS))}:", f"    {line}"]
        return [line]

    def more(self) -> list[str]:
        """A read, something held or dropped, a write to a parameter; or nothing."""
        kind = self.pick(8)
        if kind < 3:
            return [self.sometimes(self.fill(self.one(READS)))]
        if kind < 5:
            return [self.sometimes(self.fill(self.one(HOLDS)))]
        if kind == 5:
            return [self.sometimes(self.fill(self.one(ON_PARAMETERS)))]
        return []

    def training(self, functions: Sequence[str]) -> list[str]:
        """A loss, its gradients, an update."""
        f = self.one([f for f in functions if "{t}" in f]).format(
            t=self.one(("x", "x @ w + v", "x * v")), s=self.one(SCALARS)
        )
        inner = self.fill(self.one(LOSSES), h="h")
        retained = self.pick(3) == 0
        lines = [f"h = {f}", *([self.sometimes("retain(h)")] if retained else [])]
        lines += [f"loss = {inner}" + self.one(("", " + (w * w).sum()", " * (v * v).mean()"))]
        some = self.when()
        lines += {
            0: ["loss.backward(retain_graph=True)", "loss.backward()"],
            1: ["loss.backward(retain_graph=True)", self.sometimes("loss.backward()")],
            2: ["lt.sync()", "loss.backward()"],
            3: ["see(loss.item())", "loss.backward()"],
            4: [f"if {some}: loss.backward()"],
            5: [f"(loss * 2 if {some} else loss).backward()"],
            6: [self.sometimes("lt.sync()"), "loss.backward()"],
        }.get(self.pick(8 if retained else 14), ["loss.backward()"])
        if retained:
            lines.append("see(h.grad, h)")
        lines += self.more()
        step, clear = (
            "opt.step()",
            f"opt.zero_grad({self.one(('', '', 'set_to_none=False', f'set_to_none=bool({self.when()})'))})",
        )
        every = self.when() if self.pick(3) == 0 else ""
        lines += [f"if {every}: {step}", f"if {every}: {clear}"] if every else [step, *self.more(), clear]
        if self.pick(5) == 0:
            lines.append(self.sometimes("opt.param_groups[0]['lr'] *= 0.5"))
        if "net({t})" in functions and self.pick(3) == 0:
            lines.append(f"net.train(bool({self.when()}))")
        if self.pick(4) == 0:
            return [f"if {self.when()}:", *(f"    {line}".replace("\n", "\n    ") for line in lines)]
        if self.pick(5) == 0:
            return [
                f"with {self.fill(self.one(CONTEXTS))}:",
                *(f"    {line}".replace("\n", "\n    ") for line in lines),
            ]
        return lines
