"""Training from the first line on: the sync that makes the parameters also trains them, and is divided there.

A program is calls of a `Training`: layers are added, loaded, tied and frozen, an optimizer is chosen, and a few steps
follow, whose batches are prepared, gradients clipped, losses kept or read in between. All values have the same bits
where no program is divided, and where each sync is planned as if it were the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt import nn, optim
from lazyt.errors import is_ours
from lazyt.testing.closeness import same_bits
from lazyt.testing.kinds import register
from lazyt.testing.modes import Mode, mode
from lazyt.testing.statements import Failure
from tests.support.fuzz.checked_lines import CheckedLines

Array = np.ndarray[Any, Any]
# NOTE: BLAS has its own order of sums, and which products are its depends on strides, thus on what is fused.
AS_USED = Mode("as used", short=True, off=("blas",))
WHOLE = Mode("undivided", short=True, off=("blas", "partition"))
ANEW = Mode("planned anew at each sync", off=("blas",))
START, END = "t = Training(", "t.end()"
OPTIMIZERS = (
    "optim.SGD(p, lr=0.05)", "optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)", "optim.Adam(p, lr=0.01)",
    "optim.AdamW(p, lr=0.01, amsgrad=True)", "optim.RMSprop(p, lr=0.01)", "optim.Adagrad(p, lr=0.01)",
    "optim.SGD([{'params': p[::2]}, {'params': p[1::2] or [lt.nn.Parameter(lt.zeros(1))], 'lr': 0.02}], lr=0.01)",
)  # fmt: skip


class Rows(nn.Module):
    """A module for sequences, on rows as one sequence."""

    def __init__(self, module: nn.Module, *more: str) -> None:
        super().__init__()
        self.module = module
        self.turns = len(more)

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        """The first of its results."""
        x = x[None]
        found: lt.Tensor = self.module(x, *[x] * self.turns)[0][0]
        return found


class Added(nn.Module):
    """x and what a module makes of it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        """Their sum."""
        found: lt.Tensor = x + self.module(x)
        return found


class Training:
    """A model in the making, then trained; `found` has what a program has to show in the end."""

    def __init__(self, rows: int, width: int, seed: int) -> None:
        lt.random.seed(seed)
        self.seed, self.rows, self.width = seed, rows, width
        self.layers: list[nn.Module] = []
        self.found: list[Array] = []
        self.kept: list[lt.Tensor] = []
        self._model: nn.Module | None = None
        self.optimizer: Any = None
        self.average: Any = None

    @property
    def model(self) -> nn.Module:
        """It, complete from the first call on."""
        if self._model is None:
            self._model = nn.Sequential(*self.layers, nn.Linear(self.width, 3))
        return self._model

    def params(self) -> list[Any]:
        """What is trained."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def add(self, layer: nn.Module) -> None:
        """One more layer."""
        self.layers.append(layer)

    def load(self, scale: float) -> None:
        """Load the model's own values, scaled."""
        state = self.model.state_dict()
        self.model.load_state_dict({k: v.detach() * scale if v.dtype == np.float32 else v for k, v in state.items()})

    def write(self) -> None:
        """Write a part of the last layer's weight."""
        with lt.no_grad():
            self.model[-1].weight[0] *= 0.5  # type: ignore[index, operator, union-attr]

    def freeze(self, count: int) -> None:
        """Train fewer parameters."""
        for p in list(self.model.parameters())[:count]:
            p.requires_grad_(False)

    def hook(self) -> None:
        """Scale the gradient of the last parameter."""
        self.params()[-1].register_hook(lambda g: g * 0.5)

    def optimize(self, make: Callable[[list[Any]], Any], average: bool = False) -> None:
        """Choose the optimizer, and whether there is a running average of the model."""
        self.optimizer = make(self.params())
        if average:
            ema = optim.swa_utils.get_ema_multi_avg_fn(0.9)
            self.average = optim.swa_utils.AveragedModel(self.model, multi_avg_fn=ema)

    def _data(self, *shape: int, seed: int) -> lt.Tensor:
        return lt.asarray(np.random.default_rng(self.seed + seed).standard_normal(shape).astype(np.float32))

    def _loss(self, x: lt.Tensor, kind: str) -> lt.Tensor:
        y = self.model(x)
        if kind == "classes":
            return nn.functional.cross_entropy(y, lt.asarray(np.arange(self.rows) % 3))
        return ((y - self._data(self.rows, 3, seed=1)) ** 2).mean() if kind == "squares" else y.sum()

    def step(
        self, loss: str, prepare: bool = False, again: bool = False, between: str = "", clip: bool = False,
        keep: bool = False, unset: bool = True,
    ) -> None:  # fmt: skip
        """A step. between: what is asked for before the update, 'value', 'sync' or 'gradient'."""
        x = self._data(self.rows, self.width, seed=0)
        if prepare:
            x = (x - x.mean(0)) / (x.std(0) + 1)
        self.optimizer.zero_grad(set_to_none=unset)
        value = self._loss(x, loss)
        value.backward()
        if again:
            (self._loss(x, "sum") * 0.1).backward()
        last = self.params()[-1]
        if keep:
            self.kept += [value, last.grad]
        if between == "value":
            self.found.append(np.asarray(value.item()))
        elif between == "sync":
            lt.sync()
        elif between == "gradient":
            self.found.append(last.grad.detach().numpy().copy())
        if clip:
            nn.utils.clip_grad_norm_(self.params(), 0.5)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        lt.sync()

    def end(self) -> None:
        """Read everything."""
        modules = [self.model] if self.average is None else [self.model, self.average]
        values = [*self.kept, *(v for m in modules for v in m.state_dict().values())]
        self.found += [v.detach().numpy().copy() for v in values]


class Program:
    """Writes a program."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        width = rng.choice([4, 8, 12])
        self.lines = [f"{START}{rng.choice([3, 8])}, {width}, {seed})"]
        layers = [
            *[f"nn.Linear({width}, {width})"] * 3, f"nn.Linear({width}, {width}, bias=False)", "nn.Tanh()", "nn.GELU()",
            f"nn.LayerNorm({width})", f"nn.BatchNorm1d({width})", "nn.Dropout(0.3)", f"Rows(nn.LSTM({width}, {width}))",
            f"Rows(nn.MultiheadAttention({width}, 2), 'k', 'v')", f"Added(nn.Linear({width}, {width}))",
        ]  # fmt: skip
        self.lines += [f"t.add({rng.choice(layers)})" for _ in range(rng.randint(5, 16))]
        for line, share in (("t.load(0.5)", 0.3), ("t.write()", 0.2), ("t.freeze(3)", 0.2), ("t.hook()", 0.2)):
            if rng.random() < share:
                self.lines.append(line)
        average = ", True" if rng.random() < 0.2 else ""
        self.lines.append(f"t.optimize(lambda p: {rng.choice(OPTIMIZERS)}{average})")
        step = [repr(rng.choice(["squares", "classes", "sum"]))]
        step += [f"{name}=True" for name in ("prepare", "again", "clip", "keep") if rng.random() < 0.3]
        if rng.random() < 0.4:
            step.append(f"between={rng.choice(['value', 'sync', 'gradient'])!r}")
        for _ in range(rng.randint(2, 4)):
            # NOTE: mostly each step is as the last one.
            more = ["unset=False"] if rng.random() < 0.15 else []
            self.lines.append(f"t.step({', '.join([*step, *more])})")
        self.lines.append(END)


def results(code: Any, way: Mode) -> list[Array] | Exception:
    """What a program shows; or the error that ended it."""
    space: dict[str, Any] = {
        "lt": lt, "nn": nn, "optim": optim, "Rows": Rows, "Added": Added, "Training": Training,
    }  # fmt: skip
    with np.errstate(all="ignore"), mode(way):
        try:
            exec(code, space)
            found: list[Array] = space["t"].found
        except Exception as e:  # noqa: BLE001 - compared with what the others do
            return e
        finally:
            space.clear()
    return found


def check_training(lines: Sequence[str] | str) -> Failure | None:
    """Run a program in each way: what differs, or None. SyntaxError for what is no program."""
    code = compile(lines if isinstance(lines, str) else "\n".join(lines), "<program>", "exec")
    own = results(code, AS_USED)
    for way in (WHOLE, ANEW):
        got = results(code, way)
        if isinstance(got, Exception) or isinstance(own, Exception):
            if any(is_ours(e) and type(e).__name__ == "LazytInternalError" for e in (own, got)):  # type: ignore[arg-type]
                return Failure(f"training, {way}: an error of lazyt's own", "", f"{own!r}; {got!r}")
            if type(got) is not type(own):
                return Failure(f"training, {way}: raises", "", f"{way}: {got!r}; {AS_USED}: {own!r}")
            continue
        for i, (a, b) in enumerate(zip(own, got, strict=True)):
            if not same_bits(a, b):
                return Failure(f"training, {way}: values", "", f"value {i} of shape {a.shape} differs")
    return None


class Trainings(CheckedLines):
    """Training, from what makes the parameters on."""

    name = "training"
    agrees = "itself undivided, and planned anew"
    start, fault = START, "training whose values depend on how its program is divided"
    checked, written = staticmethod(check_training), Program


register(Trainings(), 187)
