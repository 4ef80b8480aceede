"""Every ordered pair of features over small models: gradients are those of dual numbers in NumPy, in each regime.

A program is one line, such as `model = chain(hooked(dense), checkpointed(attention))` or
`model = hooked(chain(checkpointed(dense), attention))`. `Features` runs it in lazyt, `Meaning` says what it means. A
feature is a method of both, which makes a block (a function of a tensor of shape (3, 4)) another one: a feature that
is added to both joins all pairs.

Regimes: recorded whole; run as a user runs it the first times; in eager mode. Each has three turns: as it is; behind
an update, where the loss is read before `backward()`; at the first values again.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import AutogradError, NotSupportedError, SyncError, ThreadError
from lazyt.testing.kinds import register
from lazyt.testing.modes import Mode, mode
from lazyt.testing.statements import Failure, Stopped
from lazyt.utils.checkpoint import checkpoint
from tests.support import dual_numbers as dual
from tests.support.fuzz.checked_lines import CheckedLines, place

Array = np.ndarray[Any, Any]
Block = Callable[[Any], Any]

SHAPE = (3, 4)
START = "model = "
FAR = 1e-7
RATE = 0.05
# The parameters of all models, by name.
SHAPES = {
    "x": SHAPE, "w": (4, 4), "left": (1, 2), "right": (1, 2), "v": (4, 4), "row": (1, 4), "column": (3, 1),
    "one": (1, 1),
}  # fmt: skip
DIRECTION = np.linspace(-1.0, 1.5, 12).reshape(SHAPE)


class Space:
    """The models, of functions that `Features` and `Meaning` have: `tanh`, `exp`, `total`, `part`, `joined`, ..."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.of = parameters
        self.depth = 0

    tanh: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    total: Callable[..., Any]
    part: Callable[..., Any]
    joined: Callable[..., Any]
    transposed: Callable[[Any], Any]
    reshaped: Callable[..., Any]

    # Blocks.

    def dense(self, u: Any) -> Any:
        """A layer whose bias is joined of two parts."""
        p = self.of
        return self.tanh(u @ p["w"] + self.joined([p["left"], p["right"]], -1)) * p["row"]

    def attention(self, u: Any) -> Any:
        """Rows that look at each other."""
        scores = self.exp(u @ self.of["v"] @ self.transposed(u) * 0.2)
        return (scores / self.total(scores, -1)) @ u + self.of["column"]

    def normal(self, u: Any) -> Any:
        """Rows without their means, by a column; the halves change places."""
        centred = u - self.total(u, -1) * 0.25
        turned = self.joined(
            [self.part(centred, slice(None), slice(2, None)), self.part(centred, slice(None), slice(2))], -1
        )
        return turned / (self.total(turned * turned, -1) + 1.0) * self.of["column"] + self.of["one"]

    def moved(self, u: Any) -> Any:
        """Other shapes on the way, and a row that is repeated."""
        flat = self.reshaped(self.transposed(u), (2, 6))
        rows = self.reshaped(flat * flat * 0.5, (3, 4))
        return self.joined([self.part(rows, slice(1, None)), self.part(rows, slice(0, 1))], -2) + self.of[
            "row"
        ] * self.total(u, -2)

    # Programs.

    @staticmethod
    def chain(first: Block, second: Block) -> Block:
        return lambda u: second(first(u))

    def loss(self, block: Block) -> Any:
        """One number of a program's result."""
        y = block(self.of["x"] * 1.0)
        return self.total(y * y + y * 0.3)


FEATURES = (
    "plain", "hooked", "retained", "function", "checkpointed", "written", "viewed", "read", "synced", "eagerly",
    "without_grad", "autocast", "budgeted", "compressed", "jitted", "batched", "forward", "differentiated", "noisy",
    "copied", "pickled", "threaded", "interrupted",
)  # fmt: skip
MODELS = (("dense", "attention"), ("normal", "moved"), ("moved", "dense"))
FORMS = ("chain({f}({a}), {g}({b}))", "{f}(chain({g}({a}), {b}))")


class Meaning(Space):
    """A program in NumPy, by dual numbers."""

    tanh = staticmethod(dual.tanh)
    exp = staticmethod(dual.exp)
    total = staticmethod(dual.total)
    part = staticmethod(dual.part)
    joined = staticmethod(dual.joined)
    transposed = staticmethod(dual.transposed)
    reshaped = staticmethod(dual.reshaped)

    def __init__(self, parameters: dict[str, Any], probes: Sequence[Any] = ()) -> None:
        super().__init__(parameters)
        self.probes = iter(probes)
        self.probed = 0

    def plain(self, f: Block) -> Block:
        return f

    read = synced = eagerly = autocast = budgeted = compressed = jitted = checkpointed = interrupted = plain

    def hooked(self, f: Block) -> Block:
        return lambda u: dual.scaled(f(u), 2.0) * 1.0

    def retained(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            if self.depth == 0:
                self.probed += 1
                y = y + next(self.probes, 0.0)
            return y

        return block

    def function(self, f: Block) -> Block:
        return lambda u: dual.custom(f(u), lambda x: x * x, lambda x: x * 3.0)

    def written(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u) * 2.0
            rows = self.part(y, slice(1, 2)) * 0.5
            return self.joined([rows, self.part(y, slice(1, None))], -2)

        return block

    def viewed(self, f: Block) -> Block:
        weights = np.array([[1.0], [3.0], [3.0]])
        return lambda u: f(u) * weights

    def without_grad(self, f: Block) -> Block:
        return lambda u: u + dual.stopped(f(u))

    def batched(self, f: Block) -> Block:
        return self._inside(lambda u: f(u) + f(u * 0.5))

    def forward(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y, t = dual.pushforward(f, u, DIRECTION, self.depth)
            return y + t

        return self._inside(block)

    def differentiated(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            g = dual.gradient(lambda z: self._square(f(z)), u, self.depth)
            return u + g * 0.1

        return self._inside(block)

    def _square(self, y: Any) -> Any:
        return self.total(y * y * 0.5)

    def _inside(self, block: Block) -> Block:
        def inside(u: Any) -> Any:
            self.depth += 1
            try:
                return block(u)
            finally:
                self.depth -= 1

        return inside

    def noisy(self, f: Block) -> Block:
        return lambda u: f(u) * noise()

    def copied(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            return y + dual.stopped(y) * 0.5

        return block

    pickled = threaded = copied


@lru_cache(maxsize=1)
def noise() -> Array:
    """The random numbers of `noisy`."""
    return np.array(lt.random.normal(size=SHAPE, dtype=lt.float64, generator=lt.random.Generator(5)).numpy())


class Features(Space):
    """A program in lazyt."""

    tanh = staticmethod(lt.tanh)
    exp = staticmethod(lt.exp)
    total = staticmethod(lambda x, axis=(-2, -1): lt.sum(x, axis=axis, keepdims=True))
    part = staticmethod(lambda x, *key: x[key])
    joined = staticmethod(lambda xs, axis: lt.concat(xs, axis=axis))
    transposed = staticmethod(lambda x: lt.swapaxes(x, -1, -2))
    reshaped = staticmethod(lt.reshape)

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        self.kept: list[Any] = []

    def plain(self, f: Block) -> Block:
        return f

    def hooked(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            y.register_hook(lambda g: g * 2.0)
            return y * 1.0

        return block

    def retained(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u) * 1.0
            if self.depth == 0:
                y.retain_grad()
                self.kept.append(y)
            return y * 1.0

        return block

    def function(self, f: Block) -> Block:
        return lambda u: Square.apply(f(u))

    def checkpointed(self, f: Block) -> Block:
        return lambda u: checkpoint(f, u)

    def written(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u) * 1.0
            y *= 2.0
            y[0] = y[1] * 0.5
            return y

        return block

    def viewed(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u) * 1.0
            v = y.reshape(-1)[4:]
            v *= 3.0
            return y

        return block

    def read(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            y.tolist()
            return y

        return block

    def synced(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            lt.sync()
            return y

        return block

    def _within(self, f: Block, context: Callable[[], Any]) -> Block:
        def block(u: Any) -> Any:
            with context():
                return f(u)

        return block

    def eagerly(self, f: Block) -> Block:
        return self._within(f, lt.eager)

    def without_grad(self, f: Block) -> Block:
        inner = self._within(f, lt.no_grad)
        return lambda u: u + inner(u).detach()

    def autocast(self, f: Block) -> Block:
        return self._within(f, partial(lt.amp.autocast, "cpu", dtype=lt.bfloat16))

    def budgeted(self, f: Block) -> Block:
        return self._within(f, partial(lt.memory.budget, 400_000))

    def compressed(self, f: Block) -> Block:
        return self._within(f, partial(lt.memory.compress, bits=8))

    def jitted(self, f: Block) -> Block:
        return lt.jit(f)

    def _inside(self, block: Block) -> Block:
        def inside(u: Any) -> Any:
            self.depth += 1
            try:
                return block(u)
            finally:
                self.depth -= 1

        return inside

    def batched(self, f: Block) -> Block:
        return self._inside(lambda u: lt.sum(lt.vmap(f, randomness="same")(lt.stack([u, u * 0.5])), axis=0))

    def forward(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y, t = lt.jvp(f, (u,), (lt.asarray(DIRECTION),))
            return y + t

        return self._inside(block)

    def differentiated(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            g = lt.grad(lambda z: lt.sum(f(z) ** 2 * 0.5))(u)
            return u + g * 0.1

        return self._inside(block)

    def noisy(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            return y * lt.random.normal(size=SHAPE, dtype=lt.float64, generator=lt.random.Generator(5))

        return block

    def copied(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            return y + copy.deepcopy(y.detach()) * 0.5

        return block

    def pickled(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            return y + pickle.loads(pickle.dumps(y.detach())) * 0.5

        return block

    def threaded(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            with ThreadPoolExecutor(1) as pool:
                return y + pool.submit(lambda: lt.asarray(y.detach().numpy() * 0.5)).result()

        return block

    def interrupted(self, f: Block) -> Block:
        def block(u: Any) -> Any:
            y = f(u)
            if threading.current_thread() is threading.main_thread():
                _interrupt(lt.sync)
            return y

        return block


class Square(lt.autograd.Function):
    """x * x, whose derivative is said to be 3 x."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * 3.0


def _interrupt(f: Callable[[], Any]) -> None:
    """Call `f`, and interrupt it somewhere."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0004)
            f()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)


def start() -> dict[str, Array]:
    """The parameters at first."""
    rng = np.random.default_rng(3)
    return {name: rng.uniform(-1.0, 1.0, shape) for name, shape in SHAPES.items()}


def meaning(line: str, values: dict[str, Array]) -> tuple[float, dict[str, Array], list[Array]]:
    """The loss of a program, the gradients of the parameters, and those of the values that keep theirs."""

    def run(xs: list[Any], probes: Sequence[Any] = ()) -> tuple[Any, int]:
        m = Meaning(dict(zip(SHAPES, xs, strict=True)), probes)
        found = m.loss(block_of(line, m))
        return found, m.probed

    given = [values[n] for n in SHAPES]
    _, probed = run(given)
    zeros = [np.zeros(SHAPE)] * probed
    n = len(given)
    loss, grads = dual.gradients(lambda xs: run(xs[:n], xs[n:])[0], [*given, *zeros])
    return loss, dict(zip(SHAPES, grads[:n], strict=True)), grads[n:]


def block_of(line: str, space: Space) -> Block:
    """The block that a program's line makes."""
    names = {n: getattr(space, n) for n in dir(space) if not n.startswith("_")}
    exec(line, names)
    block: Block = names["model"]
    return block


PLANNED = Mode("planned whole", short=True)
FIRST_RUN = Mode("a first run", tiers=True, short=True)
EAGERLY = Mode("in eager mode", tiers=True, short=True)
REGIMES = (PLANNED, FIRST_RUN, EAGERLY)
# What says that a pair does not go together.
REFUSALS = (AutogradError, NotSupportedError, SyncError, ThreadError)


def _turn(line: str, parameters: dict[str, Any], m: Mode, read: bool) -> tuple[float, dict[str, Array], list[Any]]:
    for x in parameters.values():
        x.grad = None
    with lt.eager() if m is EAGERLY else contextlib.nullcontext():
        space = Features(parameters)
        loss = space.loss(block_of(line, space))
    if read:
        float(loss)
    loss.sum().backward()
    grads = {n: np.zeros(SHAPES[n]) if x.grad is None else np.array(x.grad.numpy()) for n, x in parameters.items()}
    return float(loss), grads, [None if y.grad is None else np.array(y.grad.numpy()) for y in space.kept]


def _wrong(
    line: str, values: dict[str, Array], got: tuple[float, dict[str, Array], list[Any]]
) -> tuple[str, str] | None:
    loss, grads, kept = got
    value, want, probes = meaning(line, values)
    if not abs(loss - value) <= FAR * max(1.0, abs(value)):
        return "value", f"the loss is {loss!r}, expected {value!r}"
    largest = max(1.0, *(float(np.max(np.abs(g))) for g in want.values()))
    if not math.isfinite(largest):
        raise Stopped("not finite")
    for name, g in want.items():
        if not np.allclose(grads[name], g, rtol=FAR, atol=FAR * largest):
            return "gradient", f"{name}.grad is {grads[name].tolist()}, expected {g.tolist()}"
    if len(kept) == len(probes):
        for k, (a, b) in enumerate(zip(kept, probes, strict=True)):
            if a is None or not np.allclose(a, b, rtol=FAR, atol=FAR * largest):
                return "kept gradient", f"value {k} keeps {None if a is None else a.tolist()}, expected {b.tolist()}"
    return None


def check_features(lines: Sequence[str] | str, regimes: Sequence[Mode] = REGIMES) -> Failure | None:
    """Run a program in each regime: what differs, or None. Stopped where one refuses it; SyntaxError for no program."""
    lines = lines.splitlines() if isinstance(lines, str) else lines
    if len(lines) != 1 or not lines[0].startswith(START):
        raise SyntaxError("one line is a program")
    line, at, refused = lines[0], 0, ""
    for m in regimes:
        values = start()
        try:
            with mode(m), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parameters = {n: lt.tensor(v, dtype=lt.float64).requires_grad_() for n, v in values.items()}
                for at in range(3):
                    wrong = _wrong(line, values, _turn(line, parameters, m, read=at == 1))
                    if wrong is not None:
                        return Failure(f"features, {m}: {wrong[0]}", "loss", f"{m}, turn {at + 1}: {wrong[1]}")
                    with lt.no_grad():
                        for n, x in parameters.items():
                            if at == 0:
                                x -= RATE * x.grad if x.grad is not None else 0.0
                            else:
                                x[...] = lt.asarray(start()[n])
                    values = {n: np.array(x.detach().numpy()) for n, x in parameters.items()}
        except REFUSALS as e:
            # NOTE: what is refused where it is recorded whole may be followed in eager mode, and the other way round.
            refused = refused or f"{m}, turn {at + 1}: {type(e).__name__}: {e}"
        except Exception as e:  # noqa: BLE001 - whatever a program raises is what is looked for
            name = type(e).__name__
            return Failure(f"features, {m}: raises {name}", "", f"{m}, turn {at + 1}: {name}: {e}")
    if refused:
        raise Stopped(refused)
    return None


def programs() -> list[str]:
    """A program for each ordered pair, in each form, over each model."""
    return [
        START + form.format(f=f, g=g, a=a, b=b) for a, b in MODELS for form in FORMS for f in FEATURES for g in FEATURES
    ]


class Program:
    """The program of a seed."""

    def __init__(self, seed: int) -> None:
        every = programs()
        self.lines = [every[place(seed, len(every))]]
        # Eager mode, and one of the others: of the programs of a pair, half run in each.
        self.regimes = (REGIMES[seed % 2], EAGERLY)


class FeaturePairs(CheckedLines):
    """Pairs of features."""

    name = "features"
    agrees = "dual numbers in NumPy, in each regime"
    start, fault = START, "two features whose gradients are wrong together"
    checked, written = staticmethod(check_features), Program

    @staticmethod
    def total() -> int:
        """How many seeds in a row visit each pair in each form."""
        return len(programs())

    def run(self, seed: int, writer: Any, covered: Any) -> Failure | None:
        """Run it in its regimes."""
        try:
            failure = check_features(writer.lines, writer.regimes)
        except Stopped as e:
            covered.families[f"{writer.lines[0].removeprefix(START)}: {e}"[:240]] += 1
            raise
        covered.modes[self.name] += 1
        return failure


register(FeaturePairs())
