"""Random programs between and beyond operations: loops whose values go unread for 1 to 300 turns, then are read.

A program is a state (a few small arrays, lists that hold some values, views), and a loop whose body is drawn from one
or two families: row kernels, products, writes in place through views, arguments that change their kind from turn to
turn, extents that change, gradients, optimizers, modes of training (`mode_programs.py`), several losses
(`loss_programs.py`); with what may fall anywhere strewn in (`gc.collect()`, a sync of one value, `copy`, a pickle,
`repr`, an error). It is drawn from a seed and written as the source of a module that uses the names of `long.LongRun`.
What is drawn keeps the state's values bounded, so that 300 turns tell something.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyt.testing.array_programs import Pick
from tests.support.fuzz import loss_programs, mode_programs

LOOP = "for k in unread("
# At most so many row kernels between two reads, and so many steps. None: as many as are drawn.
# NOTE: kernels are not of bounded size yet, nor is planning linear; a longer run finds these two alone.
ROW_STAGES: int | None = None
STEPS: int = 300
MOST_STEPS: int = 2000

# What a turn makes of a matrix `t` of `n` rows and `d` columns, beside `u`, one like it, `w` (d, d) and `v` (d,).
# The first: what NumPy has too, and does smoothly.
ROWS_SMOOTH = (
    "xp.softmax({t}, axis=-1)", "xp.log_softmax({t}, axis=-1) * 0.1", "{t} - xp.mean({t}, axis=-1, keepdims=True)",
    "{t} / (1 + xp.std({t}, axis=-1, keepdims=True))", "{t} / (1 + xp.var({t}, axis=-1, keepdims=True))",
    "{t} - xp.logsumexp({t}, axis=-1, keepdims=True) * 0.5",
    "{t} / xp.sqrt(xp.sum({t} * {t}, axis=-1, keepdims=True) + 1)", "xp.cumulative_sum({t}, axis=-1) * 0.1",
    "{t} - xp.max({t}, axis=-1, keepdims=True)", "xp.softmax({t}, axis=0)",
    "{t} * xp.mean(xp.abs({t}), axis=0, keepdims=True)", "{t} - xp.sum({t}, axis=-1)[:, None] * 0.1",
)  # fmt: skip
ROWS = (
    *ROWS_SMOOTH, "lt.nn.functional.layer_norm({t}, ({d},))", "xp.sort({t}, axis=-1)", "xp.sort({t}, axis=0)",
    "xp.take_along_axis({t}, xp.argsort({u}, axis=-1), axis=-1)", "{t} + xp.argmax({t}, axis=-1)[:, None] * 0.1",
    "lt.nn.functional.layer_norm({t}, ({d},), v, v)", "xp.flip(xp.cumulative_sum({t}, axis=0), axis=0) * 0.1",
    "({t} - xp.min({t}, axis=-1, keepdims=True)) / (1 + xp.max({t}, axis=-1, keepdims=True))",
    "{t} * (xp.std({t}, axis=0) > 0.1)", "xp.median({t}, axis=-1, keepdims=True) - {t}",
    "{t} / (1 + xp.prod(xp.tanh({t}), axis=-1, keepdims=True) ** 2)", "xp.cumulative_prod(xp.tanh({t}), axis=-1)",
)  # fmt: skip
MAPS_SMOOTH = (
    "xp.tanh({t}) + {u} * 0.1", "xp.sin({t})", "{t} * 0.9 + {u} * 0.1", "xp.sqrt(xp.abs({t}) + 1) - 1",
    "xp.exp(-xp.abs({t}))", "{t} / (1 + {u} * {u})", "{t} * v * 0.3", "{t} - v", "-{t}", "xp.maximum({t}, {u} * 0.5)",
    "{t} + {t}[k % {n}] * 0.1", "{t}[::-1] * 0.5", "xp.clip({t}, -2, 2)", "{t} * (k % 3) * 0.3", "{t} - {u}[0]",
    "xp.concat([{t}[1:], {t}[:1]])", "xp.roll({t}, 1, axis=0)", "xp.where({u} > {u}, {u}, {t}) + 0.1",
    "xp.stack([{t}, {u}])[k % 2]", "xp.log1p(xp.abs({t})) * 0.5", "{t} * 0.5 ** (k % 4)", "xp.abs({t}) - {u} * 0.1",
)  # fmt: skip
MAPS = (
    *MAPS_SMOOTH, "xp.where({t} > 0, {u}, {t})", "xp.where(xp.asarray([k % 2 > 0]), {t}, {u})",
    "xp.take({t}, xp.asarray([(k + j) % {t}.shape[0] for j in range({t}.shape[0])]), axis=0)", "{t} + xp.arange({d}) * 0.1",
    "xp.round({t} * 4) / 4", "xp.reshape(xp.reshape({t}, (-1,)) * 0.5, {t}.shape)", "xp.pad({t}[1:], ((0, 1), (0, 0)))",
    "xp.tile({t}[:1], ({n}, 1)) * 0.5 + {u}", "{t}.T.T * 0.9", "xp.astype(xp.astype({t}, xp.float32), {t}.dtype)",
    "xp.astype(xp.astype({t}, xp.float16), {t}.dtype)", "xp.fmod({t}, 1.5)", "xp.sign({t}) * 0.5 + {u} * 0.5",
    "xp.nan_to_num(xp.log({t}))", "{t} + xp.cumulative_sum(xp.ones(({n}, 1)), axis=0) * 0.1", "{t} ** 2 % 2",
)  # fmt: skip
DRAWN = (
    "{t} + lt.random.rand(*{t}.shape) * 0.1", "{t} * lt.random.bernoulli(0.7, shape={t}.shape)",
    "lt.nn.functional.dropout({t}, 0.4) * 0.5", "{t} + lt.random.normal(0.0, 0.1, {t}.shape)",
    "xp.take({t}, lt.random.permutation({t}.shape[0]), axis=0)",
)  # fmt: skip
PRODUCTS = (
    "xp.tanh({t} @ w)", "xp.tanh({t} @ w + v)", "xp.tanh({t} @ w) + {t}[k % {n}] * 0.1", "{t} @ w * 0.2 + {u} * 0.5",
    "xp.tanh(({t} @ w) @ w.T)", "xp.tanh(xp.matmul({t} @ {t}.T, {u}) * 0.1)", "xp.softmax({t} @ w, axis=-1)",
    "xp.einsum('ij,kj->ik', {t}, w) * 0.2", "{t} * xp.tanh({t} @ v)[:, None]", "lt.nn.functional.linear({t}, w, v) * 0.2",
    "lt.nn.functional.gelu(lt.nn.functional.linear({t}, w, v)) * 0.3",
)  # fmt: skip
# How the state takes it.
TAKES = (
    "x = {e}", "x = x - 0.1 * ({e})", "x = xp.tanh({e}) + 0.1 * x", "x += 0.1 * ({e})", "x *= xp.tanh({e})",
    "x[...] = {e}", "y = {e}", "y = 0.5 * y + ({e}) * 0.5", "x, y = {e}, x", "x[1:] = ({e})[1:]", "x -= ({e}) * 0.1",
)  # fmt: skip
WRITES = (
    "x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])", "x[k % {n}] = y[0] * 0.5", "x[k % {n}] *= 0.5",
    "x[:, k % {d}] = v[k % {d}]", "x[1:] += x[:-1] * 0.1", "z = x[::2]; z *= 0.5", "z = x.T; z[0] += 0.1",
    "z = x[1:]; z += 0.1; x *= 0.9", "x[::-1] = x", "x[[0, 0]] = 0.5", "x *= v", "x[0], x[-1] = x[-1] * 1, x[0] * 1",
    "x[:, ::2] -= y[:, ::2] * 0.1", "x[0] = 0", "x[x > 1] = 0.25", "x[:] = y", "y[...] = x", "z = x[0]; z[...] = 0.5",
    "z = x[k % {n}:]; z -= 0.1; z = z[:1]; z *= 0.5", "x[xp.asarray([k % {n}, 0])] = 0.25", "x.T[...] *= 0.9",
    "z = xp.reshape(x, (-1,)); z[k % 2::3] = 0.1", "x[k % {n}] = x[(k + 1) % {n}]", "x -= x.mean()", "x += k * 0.01",
    "z = x[:1]; x = x * 0.5; z += 1", "x[k % {n}, k % {d}] = k % 5", "x[:k % {n}] = 0.5",
)  # fmt: skip
# Writes of a value `{a}` whose kind changes from turn to turn.
KIND_WRITES = (
    "x[k % {n}] = {a}", "x[1:] *= {a}", "x += {a}", "z = x[1:]; z[...] = {a}; z -= {a}", "x[0] = {a}", "x[:, k % {d}] += 0.1; x[-1] = {a}",
    "z = x[::2]; z *= {a}; x[0] = z[-1]", "x[:1] = {a}; x[-1:] -= {a}", "x[...] = x * {a}", "z = x.T; x *= {a}; z[0] = 0.5",
)  # fmt: skip
# Values of a number whose kind changes from turn to turn; `p` is a vector of one element per column, computed.
KINDS = (
    "0.5", "1", "np.float32(0.5)", "np.float64(0.25)", "np.array(0.5)", "np.full(({d},), 0.5)", "xp.asarray(0.5)", "p",
    "p * 2", "v", "True", "np.int64(1)", "xp.asarray(0.5) * 2", "v[0]", "p[0]", "np.full((1, {d}), 0.5, 'f4')", "p.sum()",
)  # fmt: skip
# Calls with an argument `{a}` of these; `{o}` may be None too.
CALLS = (
    "xp.clip(x, {o}, 4.0)", "xp.clip(x, -2.0, {o})", "xp.clip(x * 1, {o}, {o})", "x * {a}", "{a} - x", "x / (2 + {a})",
    "xp.maximum(x, {a})", "xp.where(x > {a}, x, {a})", "xp.where(x > 0, {a}, x)", "xp.average(x, axis=-1, weights={u})",
    "lt.nn.functional.linear(x, w, {w}) * 0.1", "lt.nn.functional.layer_norm(x, ({d},), {w}, {w})",
    "xp.full_like(x, {s}) + x", "xp.sum(x, axis={x})", "xp.mean(x, axis={x}, keepdims={b})", "xp.std(x, axis={x})",
    "xp.cumulative_sum(x, axis=({i}) % 2) * 0.1", "x[{i}]", "xp.roll(x, {i})", "xp.take(x, {t}, axis=0)", "x ** {s}",
    "xp.add(x, {a}, out={out})", "xp.softmax(x, axis={i} % 2)", "xp.sum(x, axis=0, where={m})", "xp.max(x, axis={x})",
    "xp.fmod(x, 1 + {a})", "xp.copysign(x, {a})", "x + {a} if k % 2 else {a} + x", "xp.power(2.0, x * 0.1) * {a}",
    "lt.nn.functional.mse_loss(x, y, reduction={r})", "xp.diff(x, axis=0, **{pre})", "xp.hypot({a}, x) * {s}",
    "xp.sort(x, axis=-1, descending={b})", "xp.nan_to_num(x, nan={s}) * {a}", "lt.softmax(x * {a}, axis=-1)",
)  # fmt: skip
HOLDS = (
    "kept.append(x)", "kept.append(x); del kept[:-3]", "kept.append(y[1:])", "kept = [x[0]]", "kept.append(x.T)",
    "kept = []", "old = x", "old = None", "del old; old = y", "kept.append(x.sum())", "kept = [*kept, x[:, 0]][-40:]",
    "kept.append(x * 2)", "old = x[1:]", "total = total + x.sum()", "total = total + x[0, 0]", "total += y.mean()",
    "kept[-1:] = [x + 0]", "old = (x, y)", "kept.append(xp.max(x, axis=-1))", "old = kept[:2]", "old = lambda a=x: a",
)  # fmt: skip
# What may fall anywhere and changes nothing.
ANYWHERE = (
    "gc.collect()", "lt.pending()", "repr(x)", "str(lt.pending())", "repr(kept)", "lt.explain(x)", "x = lt.copy(x)",
    "x = copy.copy(x)", "x = copy.deepcopy(x)", "x = pickle.loads(pickle.dumps(x))", "settle(x)", "settle()", "settle(y)",
    "x.shape, x.dtype, len(x)", "lt.last_sync()", "fails(lambda: x @ lt.ones((77, 9)))", "fails(lambda: x[10 ** 6])",
    "fails(lambda: lt.ones((k + 2, 3)) + lt.ones(k + 9))", "fails(lambda: lt.take(x * 2, lt.asarray([10 ** 6]), axis=0).numpy())",
    "bad = lt.take(x * 2, lt.asarray([10 ** 6]), axis=0)", "bad = lt.take(y, lt.asarray([k, 10 ** 6]), axis=0).sum()", "bad = None",
    "fails(lambda: lt.linalg.inv(x[:1, :1] * 0).numpy())", "fails(lambda: x.item() if x.shape != (1, 1) else x[9])",
    "gc.collect(0)", "y = x.detach()", "list(x)", "with lt.no_grad(): z = x * 2", "see(x.sum())", "see(float(y.sum()))",
    "hash(lt.pending() is None)", "x.is_pending", "weakref.ref(x * 2)", "at_end(lambda a=x: see(a))", "str(y)", "f'{x.sum():.3f}'",
    "apart(lambda: see(y))", "apart(lambda: lt.tanh(y).sum().item())", "x is y, x == y", "for z in x: pass",
)  # fmt: skip
READS = (
    "see(x)", "see(x.sum())", "see(float(x.sum()))", "see(y)", "see(total)", "see(x[0])", "settle()", "settle(x)", "see(kept)",
    "see(bool((x > 0).any()))", "see(x[0].tolist())", "look(x)", "see(old)",
)  # fmt: skip
LOSSES = (
    "xp.mean(({h} - x) ** 2)", "xp.sum({h} * {h}) * 0.1", "lt.nn.functional.mse_loss({h}, x)", "xp.sum(xp.tanh({h})) * 0.1",
    "lt.nn.functional.cross_entropy({h}, lt.asarray([j % {d} for j in range({h}.shape[0])]))",
    "-(xp.log_softmax({h}, axis=-1) * x).mean()", "(xp.softmax({h}, axis=-1) * x).sum()", "({h}[0] * {h}[0]).sum()",
    "{h}.std() + {h}.mean()", "xp.logsumexp({h}, axis=-1).mean()",
)  # fmt: skip
FORWARDS = (
    "x @ w + v", "xp.tanh(x @ w) * v", "xp.softmax(x @ w, axis=-1) * v", "lt.nn.functional.layer_norm(x @ w, ({d},), v, v)",
    "xp.softmax(w, axis=-1)[0] * x + v", "x * v + w[0]", "xp.tanh(w * v)[:1] * x", "x + w[k % {d}] * v",
    "xp.tanh(xp.tanh(x @ w + v) @ w + v)", "xp.cumulative_sum(x * v, axis=-1) + w[0]", "xp.where(x > 0, v, x) @ w",
    "(x * v)[::-1] + w.T[0]", "xp.sort(w, axis=-1)[0] * x * v",
)  # fmt: skip
# What an iteration of a recurrence makes of `h` (n, d), before its loss; states may be held, written and read.
RECURRENT = (
    "h = xp.tanh(h @ w + x * v)", "h = h * 0.5 + xp.tanh(h) @ w * 0.2", "h = xp.softmax(h @ w, axis=-1) + h * v",
    "h = xp.tanh(h * v + w[j % {d}])", "h = xp.tanh(h @ w); states.append(h)", "u = xp.tanh(h @ w); h = h * 0.7 + u * v",
    "h = xp.tanh(h @ w); h[0] = h[-1] * 0.5", "h = h - xp.mean(h * v, axis=-1, keepdims=True); states = [h[0], *states][:5]",
    "h = xp.where(h > 0, h, x * 0.5) @ w * 0.4", "z = h[1:] * v; h = xp.concat([z, xp.tanh(h[:1] @ w)])",
    "h = xp.tanh(h @ w + (xp.stack(states).sum() if j % 3 == 0 and states else 0.0)); states.append(v * j)",
)  # fmt: skip
# Losses of all states, and what may stand between the recurrence and its backward.
OF_STATES = (
    "{loss}",
    "{loss} + xp.sum(xp.concat([xp.reshape(s, (-1,)) for s in states]) ** 2) * 0.01 if states else {loss}",
)
# Losses beside that of a recurrence, recorded before either is differentiated; and in which order both are.
OTHER_LOSSES = (
    "xp.sum(xp.sin(v)) * 0.1", "xp.mean(h[:1] ** 2)", "xp.sum(xp.tanh(h.detach() @ w) * v) * 0.01", "xp.sum(w * w) * 0.1",
    "(states[len(states) // 2].sum() if states else h.sum()) * 0.1", "xp.sum(m * m) * 0.1",
)  # fmt: skip
OF_TWO = (
    "loss.backward(retain_graph=True)\nother.backward()",
    "other.backward(retain_graph=True)\nloss.backward()",
    "other.backward(retain_graph=True)\nloss.backward(retain_graph=True)\n(loss + other).backward()",
    "lt.autograd.backward([loss, other])",
    "g = lt.autograd.grad(other, [w, v], retain_graph=True, allow_unused=True)\nloss.backward()",
)
MODULES = ("Linear({d}, {d})", "Tanh()", "ReLU()", "LayerNorm({d})", "Dropout(0.3)", "BatchNorm1d({d})", "GELU()")
OPTIMIZERS = (
    "SGD({p}, lr=0.1)", "SGD({p}, lr=0.05, momentum=0.9)", "SGD({p}, lr=0.05, momentum=0.9, nesterov=True)",
    "Adam({p}, lr=0.05)", "AdamW({p}, lr=0.05)", "RMSprop({p}, lr=0.02)", "Adagrad({p}, lr=0.05)",
    "SGD({p}, lr=0.1, weight_decay=0.01)", "Adam({p}, lr=0.01, amsgrad=True)",
)  # fmt: skip
UPDATES = (
    "with lt.no_grad(): w -= 0.1 * w.grad; v -= 0.1 * v.grad", "with lt.no_grad(): w[...] = w - 0.1 * w.grad",
    "w = (w - 0.1 * w.grad).detach().requires_grad_()", "with lt.no_grad(): v[0] = 0.5; w.T[0] -= 0.1 * w.grad[:, 0]",
    "with lt.no_grad(): w *= 0.99; v -= 0.1 * v.grad",
)  # fmt: skip
ON_GRADIENTS = (
    "kept.append(w.grad)", "see(w.grad)", "total = total + loss.detach()", "kept.append(loss.detach())", "lt.nn.utils.clip_grad_norm_([w, v], 0.5)",
    "hook = w.register_hook(lambda g: g * 0.9)", "hook.remove() if hook is not None else None", "kept.append(loss)",
    "old = w.detach()", "h = h.detach()", "note(w.is_leaf, w.grad is None)", "w.grad = None", "opt.param_groups[0]['lr'] *= 0.9",
    "with lt.no_grad(): w *= 0.99", "opt.zero_grad()", "x = h.detach() * 0.5", "state = copy.deepcopy(opt.state_dict())",
    "opt.load_state_dict(opt.state_dict())", "total += float(loss)", "v.requires_grad_(k % 5 > 0)", "settle(w)", "settle(loss)",
    "fails(lambda: loss.backward())", "old = copy.deepcopy(w)", "kept.append(h)", "see(loss.item())",
    "(h.detach() * lt.ones_like(h).requires_grad_()).sum().backward()",  # nobody has the leaf any more
    # What is detached gets a graph of its own; gradients by views, and by values behind what was freed or written.
    "old = h.detach(); old[0] = old[0] * v; (old * old).sum().backward()", "u = w[1:]; see(lt.autograd.grad((u * u).sum(), u))",
    "h = h.detach(); h[-1:] *= v", "u = xp.tanh(w * 2); u.sum().backward(); see(lt.autograd.grad((u * u).sum(), u))",
)  # fmt: skip

FAMILIES = ("rows", "maps", "products", "writes", "arguments", "extents", "gradients", "optimizers", "modes", "losses")


class LongWriter:
    """Writes one program; `lines` are its source."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.lines: list[str] = []
        self.n = (2, 3, 4, 5, 7, 8)[pick(6)]
        self.d = 1 + (pick(12) if pick(3) else pick(40))
        self.dtype = ("float64", "float64", "float32", "float32", "float16")[pick(5)]
        self.family = FAMILIES[pick(len(FAMILIES))]
        self.trained = self.family in ("gradients", "optimizers", "modes", "losses")
        self.scaled = False
        if self.family == "modes" and self.pick(4):
            self.n, self.d = 8 + self.pick(9), 32 + self.pick(9)  # what is compressed has a kibibyte
        if self.family == "losses":
            # NOTE: large weights would show the order of sums.
            self.n, self.d, self.dtype = 1 + self.pick(4), 1 + self.pick(4), "float64"
        # NumPy runs it too: a few families, without what has another result there.
        self.plain = self.family in ("rows", "maps", "products", "writes") and self.dtype != "float16" and pick(3) == 0
        self.rows_drawn = 0
        self.net = False

    def one(self, of: Sequence[str]) -> str:
        """One of these."""
        return of[self.pick(len(of))]

    def when(self) -> str:
        """In which turns: periods, single turns, the first or the last ones."""
        p, n = 3 + self.pick(5), self.pick(12)
        return self.one((
            f"k == {n}", f"k > {n}", f"k in ({n}, {n + 3})", f"k % {p} == {n % p}", f"k % {p}", f"k < {n}", f"k // {p} % 2",
            f"k % {p} > {p // 2}",
        ))  # fmt: skip

    def fill(self, template: str, **names: str) -> str:
        """A template with all its names."""
        some = {"t": "x", "u": "y", "n": str(self.n), "d": str(self.d), **names}
        for name, value in some.items():
            template = template.replace("{" + name + "}", value)
        return template

    def program(self) -> None:
        """State, loop, and what is looked at in the end."""
        make = "param" if self.trained else "data"
        kind = "float32" if self.trained and self.dtype == "float16" else self.dtype
        other = self.one((kind, kind, kind, "float32")) if not self.trained and not self.plain else kind
        self.lines += [
            f"x = data(({self.n}, {self.d}), 1, '{kind}')", f"y = data(({self.n}, {self.d}), 2, '{other}')",
            f"w = {make}(({self.d}, {self.d}), 3, '{kind}', 0.3)", f"v = {make}(({self.d},), 4, '{kind}')",
            "p = v * 0.5", "z = h = old = hook = bad = loss = None", "kept = []", "total = 0.0",
        ]  # fmt: skip
        if self.family == "extents":
            steps = [f"    t = {self.fill(self.expression(), t='t')}" for _ in range(1 + self.pick(3))]
            self.lines += ["def f(x, y, k):", "    t = x", *steps, "    return t"]
        if self.family in ("optimizers", "modes"):
            parameters = "[w, v]"
            if self.pick(2):
                self.net = True
                layers = "".join(f", lt.nn.{self.fill(self.one(MODULES))}" for _ in range(self.pick(3)))
                self.lines.append(f"net = lt.nn.Sequential(lt.nn.Linear({self.d}, {self.d}){layers})")
                parameters = self.one(("net.parameters()", "[*net.parameters(), w, v]"))
            self.lines.append(f"opt = lt.optim.{self.one(OPTIMIZERS).replace('{p}', parameters)}")
        elif self.trained:
            self.lines.append("opt = lt.optim.SGD([w, v], lr=0.1)")
        if self.family == "modes":
            self.lines += mode_programs.STATE
            self.scaled = self.pick(2) > 0
            if self.scaled:
                self.lines.append(f"scaler = {self.one(mode_programs.SCALERS)}")
        if self.family == "losses":
            self.lines += [self.fill(line) for line in loss_programs.STATE]
        body = self.turn()
        turns = self.turns(body)
        self.lines += [
            f"{LOOP}{turns}):",
            "    try:",
            *(f"        {line}".replace("\n", "\n        ") for line in body),
        ]
        self.lines += ["    except Exception as e:", "        note(e)"]
        limit = self.limit(body, turns)
        if limit:
            self.lines.append(f"    if k % {limit} == {limit - 1}: {self.one(('settle()', 'see(x.sum())', 'see(x)'))}")
        self.lines.append("finish(x, y, w, v, w.grad, v.grad, loss, h, total, old, kept, bad)" if self.trained
                          else "finish(x, y, z, total, old, kept, bad)")  # fmt: skip
        self.lines = "\n".join(self.lines).split("\n")

    def turns(self, body: Sequence[str]) -> int:
        """How many: mostly few, at times 300, and no more steps than there may be."""
        if self.family == "losses":
            return 1 + self.pick(3)
        steps = 3 * sum(line.count("\n") + 1 for line in body) + (20 if self.trained else 0)
        most = MOST_STEPS if self.pick(25) == 0 else STEPS
        wanted = (2 + self.pick(8), 5 + self.pick(20), 10 + self.pick(50), 60 + self.pick(240))[self.pick(4)]
        return max(2, min(wanted, most // steps))

    def limit(self, body: Sequence[str], turns: int) -> int:
        """After how many turns all is read at the latest, 0 for never: no longer run of row kernels than there may be."""
        if ROW_STAGES is None or not self.rows_drawn:
            return 0
        a_turn = self.rows_drawn * (3 if self.trained else 1)
        most = max(ROW_STAGES // a_turn, 1)
        return most if turns > most else 0

    def turn(self) -> list[str]:
        """The statements of one turn."""
        if self.family == "losses":
            return loss_programs.turn(self)
        out: list[str] = []
        makers = {"arguments": self.call, "writes": self.write, "extents": self.extents, "gradients": self.training,
                  "optimizers": self.training, "modes": self.training}  # fmt: skip
        make = makers.get(self.family, self.update)
        for _ in range(1 if self.trained else 2 + self.pick(4) if self.family == "arguments" else 1 + self.pick(3)):
            out += make()
            out += self.more()
        if self.pick(3) == 0:
            out += self.update() if not self.trained else []
        if not self.trained and self.pick(4):
            # Bounded, so that 300 turns do not end in infinities.
            out.append(self.one(("x = xp.tanh(x)", "x = x / (1 + xp.abs(x))", "x = xp.clip(x, -3, 3)", "x *= 0.9")))
        out += self.more()
        return out

    def expression(self) -> str:
        """What a turn makes of the state."""
        smooth = self.plain
        some = {"rows": ROWS_SMOOTH if smooth else ROWS, "products": PRODUCTS[:9] if smooth else PRODUCTS}
        of: Sequence[str] = some.get(self.family, MAPS_SMOOTH if smooth else MAPS)
        case = self.pick(8)
        if case == 0:
            of = MAPS_SMOOTH if smooth else MAPS
        elif case == 1:
            of = some["rows"]
        elif case == 2 and not smooth:
            of = DRAWN
        if of is some["rows"]:
            self.rows_drawn += 1
        template = self.one(of)
        self.rows_drawn += "softmax" in template and of is not some["rows"]
        return template

    def update(self) -> list[str]:
        """The state's next value; at times other ones in some turns, or an inner loop."""
        e = self.fill(self.expression())
        case = self.pick(10)
        if case == 0:
            return [f"if {self.when()}:\n    x = {e}\nelse:\n    x = {self.fill(self.expression())}"]
        if case == 1:
            before, m = self.rows_drawn, 2 + self.pick(4)
            inner = f"for j in range({m}):\n    x = 0.5 * x + 0.5 * ({self.fill(self.expression())})"
            self.rows_drawn += (self.rows_drawn - before) * (m - 1)
            return [inner]
        if case == 2:
            return [self.sometimes(f"x = {e}")]
        if case == 3:
            e = self.fill(self.expression(), t=f"({e})")
        take = self.one(TAKES[:4] if self.plain else TAKES)
        return [take.replace("{e}", e)]

    def write(self) -> list[str]:
        """A write in place, through a view mostly."""
        if not self.plain and self.pick(3) == 0:
            line = self.one(KIND_WRITES)
            while "{a}" in line:
                line = line.replace("{a}", self.kind(1 + self.pick(2), KINDS), 1)
            return [self.fill(line)]
        some = [w for w in WRITES if not self.plain or ("reshape" not in w and "> 1" not in w)]
        line = self.fill(self.one(some))
        return [self.sometimes(line) if self.pick(3) == 0 else line]

    def kind(self, depth: int, of: Sequence[str]) -> str:
        """One kind of value in some turns and others in others."""
        a = self.fill(self.one(of))
        return f"({a} if {self.when()} else {self.kind(depth - 1, of)})" if depth else a

    def call(self) -> list[str]:
        """A call with arguments that change their kind."""
        depth = 1 + self.pick(2)
        template = self.one(CALLS)
        for name, of in (
            ("a", KINDS), ("o", ("None", *KINDS, "None")), ("w", ("None", "v", "p", "xp.abs(v) + 1", "v * 2")),
            ("u", ("None", "xp.abs(p) + 1", "v * v + 0.5")),  # NOTE: NumPy refuses a sum of 0
            ("s", ("0.5", "1", "2", "1.5", "np.float32(0.5)", "np.float64(2)")), ("x", ("None", "0", "-1", "1", "(0, 1)")),
            ("b", ("True", "False", "k % 2 > 0")), ("i", ("0", "-1", "1", "np.int64(1)", "k % 2", "k % 2 - 1")),
            ("t", ("xp.asarray([0, 1])", "np.array([1, 0])", "[0, 1, 0]", "xp.arange(2)", "xp.asarray([k % 2, 0])")),
            ("out", ("None", "x", "xp.zeros(x.shape, dtype=x.dtype)")), ("m", ("True", "x > 0", "np.ones(x.shape, bool)")),
            ("r", ("'mean'", "'sum'", "'none'")), ("pre", ("dict()", "dict(prepend=x[:1])", "dict(prepend=y[:1])", "dict(prepend=np.zeros((1, {d})))")),
        ):  # fmt: skip
            while "{" + name + "}" in template:
                template = template.replace("{" + name + "}", self.kind(depth, of), 1)
        e = self.fill(template)
        self.rows_drawn += any(word in e for word in ("softmax", "layer_norm", "std", "sort"))
        take = self.one(("h = {e}; x = x * 0.9 + xp.mean(h) * 0.1", "kept.append({e})", "h = {e}", "total = total + ({e}).sum()",
                         "if ({e}).shape == x.shape: x = x * 0.5 + ({e}) * 0.1", "old = {e}; x = x + 0.01"))  # fmt: skip
        return [f"p = v * {self.one(('0.5', '0.5', '(k % 3)'))}", take.replace("{e}", e)]

    def extents(self) -> list[str]:
        """Another batch each turn."""
        sizes = tuple((1, 2, 3, 8, 5, 0, 7, 4)[self.pick(8)] for _ in range(2 + self.pick(4)))
        self.rows_drawn += 1
        return [
            f"b = {sizes}[k % {len(sizes)}]",
            f"g = data((b, {self.d}), k % 4, '{self.dtype}')",
            self.one((
                "if b: h = f(g, g * 0.5, k % b)", "if b == 1: h = g\nelse: h = g * 2",
                "h = xp.concat([g, x]) * 0.5", "h = g - g.sum(axis=0)", "h = xp.softmax(g, axis=-1)", "h = g @ w",
                "h = xp.concat([h, g])[-9:] if h is not None else g",
            )),
            self.one(("total = total + h.sum()", "x = x * 0.5 + h.sum(axis=0) * 0.1", "kept.append(h)", "x = x + h[:1].sum()", "x[:b] += 0.1")),
        ]  # fmt: skip

    def training(self) -> list[str]:
        """A loss, its gradients, an update."""
        h = self.fill(self.one(FORWARDS))
        if self.net:
            h = self.one(("net(x)", "net(x) + v", f"net({h})"))
        self.rows_drawn += any(word in h for word in ("softmax", "layer_norm", "sort"))
        loss = self.fill(self.one(LOSSES), h="h")
        self.rows_drawn += any(word in loss for word in ("softmax", "std", "logsumexp", "cross_entropy"))
        if "net(" in h and self.pick(2):
            loss += " + (w * w).sum() * 0.1 + (v * v).mean()"
        elif self.pick(4) == 0:
            loss += " + (w * w).sum() * 0.01"
        out = []
        if self.pick(6) == 0:
            out.append(
                f"x = data(({self.one((str(self.n), '1 + k % 8', '(1, 8, 3)[k % 3]'))}, {self.d}), k % 5, 'float32')"
            )
        if self.family == "modes":
            out += self.in_modes(h, loss)
            return [*out, *self.on_gradients()]
        out += [f"h = {h}", *self.on_gradients()]
        other = ""
        if self.pick(3) == 0:
            # A recurrence: its backward may be divided.
            inner = self.fill(self.one(RECURRENT))
            turns = self.one(("12", "9 + k % 4", "30", "8"))
            other = self.one(OTHER_LOSSES) if self.pick(2) else ""
            beside = "\n        m = xp.tanh(m @ w * v + h.detach())" if "m *" in other else ""
            out += [
                "states, m = [], x",
                f"if h.shape == x.shape:\n    for j in range({turns}):\n        {inner}{beside}",
                *self.on_gradients(),
            ]
            loss = self.one(OF_STATES).replace("{loss}", loss)
        out.append(f"loss = {loss}")
        back = self.pick(10)
        if other:
            out += [f"other = {other}", self.one(OF_TWO)]
            back = -1
        out += {
            -1: [],
            0: ["loss.backward(retain_graph=True)", "loss.backward()"],
            1: ["settle()", "loss.backward()"],
            2: [self.sometimes("settle()"), "loss.backward()"],
            3: [f"(loss * 2 if {self.when()} else loss).backward()"],
            4: ["g = lt.grad(lambda w, v: (w * w).sum() + (v * v).sum())(w.detach(), v.detach())", "loss.backward()"],
        }.get(back, ["loss.backward()"])
        out += self.on_gradients()
        if self.family == "optimizers":
            step, clear = "opt.step()", f"opt.zero_grad({self.one(('', '', 'set_to_none=False'))})"
            when = self.when() if self.pick(3) == 0 else ""
            if when:
                out.append(f"if {when}:\n    {step}\n    {clear}")
            else:
                out += [step, *self.on_gradients(), clear]
        else:
            update = self.one(UPDATES)
            clear = "w.grad = v.grad = None"
            guarded = f"if w.grad is not None and v.grad is not None:\n    {update}"
            out += [guarded, *([clear] if self.pick(3) else [self.sometimes(clear)])]
        out += self.on_gradients()
        return out

    def in_modes(self, h: str, loss: str) -> list[str]:
        """A step whose forward pass is recorded in a mode, or in two, and whose gradients a scaler may scale."""
        some = [self.one(mode_programs.MODES).replace("{when}", self.when()) for _ in range(1 + self.pick(2))]
        if self.pick(4) == 0:
            h = self.one(mode_programs.CHECKPOINTS).replace("{h}", h)
        inside = self.pick(3)
        body = [f"h = {h}", f"loss = {loss}"] if inside else [f"h = {h}"]
        back, step = ("scaler.scale(loss)", "scaler.step(opt)") if self.scaled else ("loss", "opt.step()")
        body += [f"{back}.backward()"] if inside == 2 and self.pick(4) == 0 else []
        out = [f"with {', '.join(some)}:\n    " + "\n    ".join(body)]
        out += [] if inside else [f"loss = {loss}"]
        out += self.on_gradients()
        if "backward" not in body[-1]:
            out += [*([self.sometimes("settle()")] if self.pick(3) == 0 else []), f"{back}.backward()"]
        if self.scaled and self.pick(3) == 0:
            line = self.one(mode_programs.ON_SCALED)
            out.append(
                self.sometimes(f"if w.grad is not None and v.grad is not None: {line}" if ".grad" in line else line)
            )
        out += self.on_gradients()
        last = [step, "scaler.update()"] if self.scaled else [step]
        last += [self.one(("opt.zero_grad()", "opt.zero_grad(set_to_none=False)", "w.grad = v.grad = None"))]
        if self.pick(4) == 0:  # gradients of several turns
            return [*out, f"if {self.when()}:\n    " + "\n    ".join(last)]
        return [*out, *last]

    def on_gradients(self) -> list[str]:
        """What falls between the parts of a training step; mostly nothing."""
        if self.pick(3):
            return []
        line = self.one(ON_GRADIENTS)
        if "h." in line or "(h)" in line:
            line = f"if h is not None: {line}"
        if "loss" in line:
            line = f"if loss is not None: {line}"
        return [self.sometimes(line)]

    def more(self) -> list[str]:
        """A value held or dropped, a read, something that may fall anywhere; or nothing."""
        kind = self.pick(10)
        if self.plain:
            return [self.sometimes(self.one([h for h in HOLDS if ".T" not in h]))] if kind < 4 else []
        if kind < 3:
            line = self.one(HOLDS)
            return [line if self.pick(2) else self.sometimes(line)]
        if kind < 5:
            return [self.sometimes(self.one(READS))]
        if kind < 8:
            return [self.sometimes(self.one(ANYWHERE))]
        return []

    def sometimes(self, line: str) -> str:
        """A statement in some turns."""
        if line.startswith(("if ", "with ", "for ")) or "; " in line:
            return f"if {self.when()}:\n    {line}"
        return f"if {self.when()}: {line}"
