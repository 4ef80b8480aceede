"""Interrupts at every place of lazyt where CPython looks at signals, and what a program is like afterwards.

`interrupt_places.py` says what a place is.

    python -m tests.support.interrupts --minutes 10             every place of every scenario, as far as the time goes
    python -m tests.support.interrupts --signals 10000          that many interrupts by a real timer
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends.cpu import memory
from lazyt.config import general
from lazyt.tracing.trace import local
from tests.support.interrupt_acts import ACTS, recorded, refused
from tests.support.interrupt_places import Places, count
from tests.support.plans import forget

# --- scenarios -------------------------------------------------------------------------------------------------------

Seen = dict[str, Any]


class Scenario:
    """A state, a step that changes it, and how it is read. Each step is a whole: after any interrupt it was or was not.

    `restart` also gives a step a program that the thread has not seen.
    """

    name = ""
    warmest = 3  # so many steps may have been taken before, which know its plans

    def start(self) -> Any:
        """A new state, at its first edge."""
        raise NotImplementedError

    def step(self, s: Any) -> None:
        """From one edge to the next."""
        raise NotImplementedError

    def read(self, s: Any) -> Seen:
        """All there is to see of a state."""
        raise NotImplementedError


def modes() -> Seen:
    """The modes of this thread."""
    tr = local.trace
    return {
        "grad": lt.is_grad_enabled(), "device": tr.mode.device, "inference": tr.mode.inference, "eager": tr.eager,
        "watched": tr.watched, "no_sync": len(tr.syncs_forbidden), "expect": len(tr.expectations),
    }  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Whether two things that were read are equal, arrays in every bit."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(type(a) is type(b) and a == b)


def _differing(a: Any, b: Any, path: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [x for k in {**a, **b} for x in _differing(a.get(k), b.get(k), f"{path}.{k}")]
    return [] if same(a, b) else [path]


OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "SGD": lambda ps: lt.optim.SGD(ps, lr=0.1),
    "SGD momentum": lambda ps: lt.optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.1),
    "Adam": lambda ps: lt.optim.Adam(ps, lr=0.1),
    "Adam amsgrad": lambda ps: lt.optim.Adam(ps, lr=0.1, amsgrad=True),
    "AdamW": lambda ps: lt.optim.AdamW([{"params": ps[:1], "lr": 0.2}, {"params": ps[1:]}], lr=0.1),
    "RMSprop": lambda ps: lt.optim.RMSprop(ps, lr=0.05, momentum=0.5, centered=True),
    "Adagrad": lambda ps: lt.optim.Adagrad(ps, lr=0.1, lr_decay=0.01),
    "NAdam": lambda ps: lt.optim.NAdam(ps, lr=0.1),
    "Adafactor": lambda ps: lt.optim.Adafactor(ps, lr=0.1),
    "Muon": lambda ps: lt.optim.Muon(ps[:2], lr=0.1),
}


class Training(Scenario):
    """A step of an optimizer over three parameters, one of which has views."""

    def __init__(self, optimizer: str, synced: bool) -> None:
        self.name = f"training by {optimizer}" + (", synced" if synced else ", unread")
        self.make, self.synced = OPTIMIZERS[optimizer], synced

    def start(self) -> Any:
        rng = np.random.default_rng(0)
        ps = [lt.tensor(rng.normal(size=n).astype(np.float32), requires_grad=True) for n in ((3, 3), (3, 3), (3,))]
        s = {"x": lt.tensor(rng.normal(size=(4, 3)).astype(np.float32)), "ps": ps, "view": ps[2][1:].detach()}
        s["opt"] = self.make(ps)
        return s

    def step(self, s: Any) -> None:
        a, b, c = s["ps"]
        s["opt"].zero_grad()
        loss = ((lt.tanh(s["x"] @ a) @ b + c) ** 2).mean()
        loss.backward()
        s["opt"].step()
        if self.synced:
            lt.sync()

    def read(self, s: Any) -> Seen:
        state = {
            i: {k: v if isinstance(v, int | float) else v.numpy().copy() for k, v in sorted(own.items())}
            for i, own in enumerate(s["opt"].state.values())
            if own["step"]
        }
        params = {i: p.detach().numpy().copy() for i, p in enumerate(s["ps"])}
        return {"params": params, "state": state, "view": s["view"].numpy().copy(), **modes()}


class Searching(Scenario):
    """An iteration of L-BFGS, which evaluates a closure and reads what it finds."""

    def __init__(self, search: str | None) -> None:
        self.name, self.search = "an iteration of LBFGS" + (", which searches" if search else ""), search

    def start(self) -> Any:
        rng = np.random.default_rng(0)
        ps = [lt.tensor(rng.normal(size=n), requires_grad=True) for n in ((2, 2), (2,))]
        opt = lt.optim.LBFGS(ps, lr=0.5, max_iter=1, history_size=3, line_search_fn=self.search)
        return {"x": lt.tensor(rng.normal(size=(4, 2))), "ps": ps, "opt": opt}

    def step(self, s: Any) -> None:
        def closure() -> Any:
            s["opt"].zero_grad()
            loss = ((lt.tanh(s["x"] @ s["ps"][0]) + s["ps"][1] - 0.5) ** 2).mean()
            loss.backward()
            return loss

        s["opt"].step(closure)

    def read(self, s: Any) -> Seen:
        # NOTE: products add in another order where other programs are planned, so the last bits may differ. How often
        # the closure was called is counted where nothing has moved, too.
        own = {k: v for k, v in s["opt"].state_dict()["state"].get(0, {}).items() if k != "func_evals"}
        state = {
            k: {i: np.round(np.asarray(x), 9) for i, x in enumerate(v)}
            if isinstance(v, list)
            else np.round(np.asarray(v), 9)
            for k, v in sorted(own.items())
        }
        params = {i: np.round(p.detach().numpy(), 9) for i, p in enumerate(s["ps"])}
        return {"params": params, "state": state if own.get("n_iter") else {}, **modes()}


class Write(Scenario):
    """Something that changes arrays, and a user's dictionary last of all."""

    def __init__(self, name: str, change: Callable[[Any, Any], None], synced: bool) -> None:
        self.name, self.change, self.synced = name + (", synced" if synced else ""), change, synced

    def start(self) -> Any:
        a = lt.asarray(np.arange(6.0)) * 1.0
        return {"a": a, "v": a[1:4], "b": a * 2, "u": a[::2], "i": lt.asarray([0, 2])}

    def step(self, s: Any) -> None:
        self.change(lt, s)
        if self.synced:
            lt.sync()

    def read(self, s: Any) -> Seen:
        return {**{k: x.numpy().copy() for k, x in s.items()}, **modes()}


class Saving(Scenario):
    """A file that is read and written again."""

    name = "a saved file"

    def start(self) -> Any:
        path = os.path.join(tempfile.mkdtemp(), "state.npz")
        lt.save({"w": lt.asarray([1.0, 2.0]), "n": 0}, path)
        return path

    def step(self, s: Any) -> None:
        old = lt.load(s)
        lt.save({"w": old["w"] * 0.5 + 1, "n": old["n"] + 1}, s)

    def read(self, s: Any) -> Seen:
        got = lt.load(s)
        return {"w": got["w"].numpy().copy(), "n": got["n"], **modes()}


class Restoring(Training):
    """An optimizer that gets the state of another time."""

    def __init__(self) -> None:
        super().__init__("Adam", True)
        self.name = "an optimizer's state that is loaded"

    def start(self) -> Any:
        s = super().start()
        super().step(s)
        return s

    def step(self, s: Any) -> None:
        state = s["opt"].state_dict()
        for own in state["state"].values():
            own["step"] += 3
            own.update({k: x * 0.5 for k, x in own.items() if k != "step"})
        for group in state["param_groups"]:
            group["lr"] *= 0.5
        s["opt"].load_state_dict(state)

    def read(self, s: Any) -> Seen:
        return {**super().read(s), "lr": [g["lr"] for g in s["opt"].param_groups]}


class Stored(Training):
    """A training step that is new to the process; its plans are on disk, or are written there."""

    warmest = 0

    def __init__(self, found: bool, whole: bool) -> None:
        super().__init__("Adam", True)
        self.name = "plans " + ("that are read from disk" if found else "that are written to disk")
        self.name += "" if whole else ", of single operations"
        self.found, self.whole = found, whole

    def start(self) -> Any:
        # NOTE: what is set here stays so: a step that set it could be interrupted on the way back.
        if os.environ.get("LAZYT_CACHE_DIR") != _FOLDER.name:
            os.environ["LAZYT_CACHE_DIR"] = _FOLDER.name
        general.update(stored=True, tiers=not self.whole)
        if not self.found:
            for path in Path(_FOLDER.name).iterdir():
                path.unlink()
        lt.sync()
        forget()
        return super().start()


_FOLDER = tempfile.TemporaryDirectory()


class NoMemory:
    """The k-th allocation of the CPU's pool fails; `seen` counts them."""

    def __init__(self, k: int) -> None:
        self.k, self.seen = k, 0

    def _pass(self, nbytes: int, buffer: memory.Buffer, charged: int) -> None:
        self.seen += 1
        if self.seen == self.k:
            raise lt.OutOfMemory(f"injected: {nbytes} bytes")

    def run(self, f: Callable[[], object]) -> None:
        """Run f; the pool is as it was afterwards."""
        pool = memory._pool
        usual, ceiling = pool._pass_ceiling, pool._ceiling
        pool._pass_ceiling, pool._ceiling = self._pass, -1  # type: ignore[method-assign]
        try:
            f()
        finally:
            del pool._pass_ceiling
            pool._ceiling = ceiling
            assert pool._pass_ceiling == usual


def _graded(xp: Any, s: Any) -> None:
    with lt.no_grad():
        s["a"] *= 0.5
        with lt.enable_grad():
            s["b"] + 1
    assert lt.is_grad_enabled()


@lt.no_grad()
def _decorated(xp: Any, s: Any) -> None:
    s["v"] += s["b"][:3]


def _expressions(xp: Any, s: Any) -> None:
    """The operators, and functions, each by the path of a step that is known."""
    b = abs(s["b"] - s["a"]) / 2 + xp.exp(-s["a"] * 0.1)
    a = xp.where(s["a"] > 2, -s["a"], s["a"] * 1.5 + 1)
    s.update({"a": a, "b": b})


def _other_contexts(xp: Any, s: Any) -> None:
    with lt.no_sync(), lt.device("cpu"):
        s["a"] += 1
    with lt.eager(), lt.expect():
        s["b"] * 2
    with lt.inference_mode():
        s["b"] * 3


def _failing(xp: Any, s: Any) -> None:
    lost = lt.take(s["a"] * 2, lt.asarray([10**6]), axis=0)
    s["b"] += 1
    # NOTE: no `with`, which is entered by calls: a handler that syncs there gets the error, as it should.
    try:  # noqa: SIM105
        lt.sync()
    except IndexError:
        pass
    with contextlib.suppress(IndexError):
        lost.numpy()


def _batch_norm(xp: Any, s: Any) -> None:
    lt.nn.functional.batch_norm(lt.reshape(s["b"], (2, 3)), s["a"][:3], s["v"], training=True)


def _gradients(xp: Any, s: Any) -> None:
    """A backward that sets one gradient and adds to two."""
    a, b = (s[k].detach().requires_grad_() for k in "ab")
    c = (s["i"] * 0.5).requires_grad_()
    a.grad, b.grad = s["a"], s["b"]
    ((a * b).sum() * (c * c).sum()).backward()


def _loaded(xp: Any, s: Any) -> None:
    """Three values that are written together."""
    m = lt.nn.Module()
    for k in "avb":
        m.register_buffer(k, s[k])
    m.load_state_dict({k: x * 0.5 for k, x in m.state_dict().items()})


@lt.jit
def _written_at_once(a: Any, b: Any) -> Any:
    b = b[1:] + np.ones(5)
    a[1:] += b * 0.5
    return a + 1


def _jitted(xp: Any, s: Any) -> None:
    """A function that writes into an argument, whose steps are taken at once."""
    _written_at_once(s["a"], s["b"])


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "in place on a view": lambda xp, s: s["v"].__iadd__(1),
    "in place on a base": lambda xp, s: s["a"].__imul__(0.75),
    "a write": lambda xp, s: s["a"].__setitem__(0, s["a"][1] + 1),
    "a write through a view": lambda xp, s: s["v"].__setitem__(slice(1, None), s["a"][:2] + 1),
    "a write at indices": lambda xp, s: s["a"].__setitem__(s["i"], s["b"][:2] + s["a"][:2]),
    "a write under a mask": lambda xp, s: s["a"].__setitem__(s["a"] > 2, s["a"][0] - 1),
    "an update of two": lambda xp, s: lt.nn.utils.clip_grad_value_([], 1.0) or s["u"].__iadd__(1),
    "grad modes": _graded,
    "a decorated function": _decorated,
    "an update of views": _batch_norm,
    "gradients that are added": _gradients,
    "a gradient of a function": lambda xp, s: s["a"].__isub__(lt.grad(lambda x: (x * x * s["b"]).sum() / 99)(s["a"])),
    "a state that is loaded": _loaded,
    "expressions": _expressions,
    "other contexts": _other_contexts,
    "a sync that fails": _failing,
    "a jitted function": _jitted,
}


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for synced in (False, True):
        yield from (Training(name, synced) for name in OPTIMIZERS)
        yield from (Write(name, f, synced) for name, f in WRITES.items())
    yield from (Saving(), Restoring(), Searching(None), Searching("strong_wolfe"))
    yield from (Stored(found, whole) for found in (False, True) for whole in (False, True))


class Run:
    """One scenario with something done at one place of one step; what is wrong afterwards is an AssertionError."""

    MORE = 3

    def __init__(self, scenario: Scenario, warm: int) -> None:
        self.scenario, self.warm = scenario, warm
        lt.sync()
        s = scenario.start()
        self.edges = [scenario.read(s)]
        for _ in range(warm + 1 + self.MORE):
            scenario.step(s)
            self.edges.append(scenario.read(s))
        # A step in which many were not read has the same bits.
        self.begin()

    def begin(self) -> Any:
        """A state after `warm` steps, in a program that was seen as often."""
        gc.collect(1)  # the traceback of the last run; all of it would take longer than the run
        local.trace.reset_trie() if local.trace.empty else lt.sync()
        s = self.scenario.start()
        for _ in range(self.warm):
            self.scenario.step(s)
        return s

    def places(self) -> int:
        """How many places the step has."""
        s = self.begin()
        return count(lambda: self.scenario.step(s))

    def at(self, k: int, act: Callable[[], None], error: type[BaseException] | None) -> bool:
        """Do `act` at the k-th place; whether the run had so many. With `error` that is what it raises."""
        s = self.begin()
        places = Places(k, act)
        raised = False
        try:
            places.run(lambda: self.scenario.step(s))
        except BaseException as e:
            if error is None or not isinstance(e, error):
                raise AssertionError(f"{self.scenario.name}, place {k} ({places.at}): {e!r}") from e
            raised = True
        where = f"{self.scenario.name}, after {self.warm} steps, place {k} ({places.at})"
        try:
            self.check(s, where, raised)
        except AssertionError:
            raise
        except BaseException as e:
            raise AssertionError(f"{where}: afterwards {e!r}") from e
        return places.seen >= k

    def without_memory(self, k: int) -> bool:
        """Let the k-th allocation of the step fail; whether the run had so many."""
        s = self.begin()
        failing = NoMemory(k)
        raised = False
        try:
            failing.run(lambda: self.scenario.step(s))
        except lt.OutOfMemory:
            raised = True
        self.check(s, f"{self.scenario.name}, after {self.warm} steps, allocation {k}", raised)
        return failing.seen >= k

    def check(self, s: Any, where: str, raised: bool) -> None:
        """The state is at one of two edges, the steps that follow go on from there, and the thread is alive."""
        got = self.scenario.read(s)
        while recorded:
            assert recorded.pop().tolist() == [3.0, 3.0, 3.0], f"{where}: what the handler kept"
        i = self.warm + 1
        if raised and same(got, self.edges[self.warm]):
            i = self.warm
        assert same(got, self.edges[i]), (
            f"{where}: neither before nor after; differs in {_differing(got, self.edges[i])}, "
            f"and from before in {_differing(got, self.edges[self.warm])}"
        )
        for _ in range(self.MORE):
            self.scenario.step(s)
            i += 1
            got = self.scenario.read(s)
            assert same(got, self.edges[i]), f"{where}: {i - self.warm} steps later {_differing(got, self.edges[i])}"
        assert float((lt.ones(3) * 2).sum()) == 6.0, where


# --- by a real timer -------------------------------------------------------------------------------------------------


class Late(BaseException):
    """What the timer raises."""


def by_timer(scenario: Scenario, interrupts: int, until: float, rng: random.Random) -> tuple[int, int]:
    """Interrupt steps of a scenario by a timer, so many times: how many there were, and how many between two edges.

    The state is compared with that of an uninterrupted run after each, which starts anew every 20 steps.
    """
    run = Run(scenario, 0)
    length = 20
    s = scenario.start()
    edges = [scenario.read(s)]
    for _ in range(length):
        scenario.step(s)
        edges.append(scenario.read(s))
    begun = time.perf_counter()
    scenario.step(s)
    scenario.read(s)
    span = max(time.perf_counter() - begun, 2e-4)
    hit = wrong = 0

    def late(signum: int, frame: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    try:
        while hit < interrupts and time.monotonic() < until:
            s, i = run.begin(), 0
            while i < length and hit < interrupts and time.monotonic() < until:
                gc.disable()  # what is raised in a collector's callback is lost
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, span))
                        scenario.step(s)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Late:
                    hit += 1
                gc.enable()
                got = scenario.read(s)
                if same(got, edges[i + 1]):
                    i += 1
                elif not same(got, edges[i]):
                    wrong += 1
                    print(
                        f"{scenario.name}: neither at {i} nor at {i + 1}: {_differing(got, edges[i + 1])}", flush=True
                    )
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    return hit, wrong


def main(arguments: list[str] | None = None) -> int:
    """Run a search; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.interrupts", description="Interrupts everywhere.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on (default: 5)")
    parser.add_argument("--signals", type=int, help="so many interrupts by a timer instead, over all scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="", help="scenarios whose name has this in it")
    parser.add_argument("--act", choices=[*ACTS], help="what is done at a place (default: any)")
    a = parser.parse_args(arguments)
    rng, until = random.Random(a.seed), time.monotonic() + a.minutes * 60
    chosen = [x for x in scenarios() if a.name in x.name]
    bad = total = 0
    settings = dict(general)
    if a.signals:
        for n, scenario in enumerate(chosen):
            general.update(settings)
            end = time.monotonic() + (until - time.monotonic()) / (len(chosen) - n)
            hit, wrong = by_timer(scenario, -(-a.signals // len(chosen)), end, rng)
            print(f"{scenario.name}: {hit} interrupts, {wrong} between two edges", flush=True)
            total, bad = total + hit, bad + wrong
    else:
        while time.monotonic() < until:
            scenario, name = rng.choice(chosen), a.act or rng.choice([*ACTS])
            if refused(scenario.name, name):
                continue
            general.update(settings)
            run = Run(scenario, rng.randrange(scenario.warmest + 1))
            act, error = ACTS[name]
            n = run.places()
            for k in rng.sample(range(1, n + 1), min(n, 50)):
                total += 1
                try:
                    run.at(k, act, error)
                except AssertionError as e:
                    bad += 1
                    print(e, flush=True)
    print(f"{total} places, {bad} wrong", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
