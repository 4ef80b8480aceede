"""What recording costs beside a registered backend and operation: nothing. `python -m benchmarks.dispatch`.

The chain of `record_overhead`, with nothing registered and with a backend, a whole fallback and an operation of a
user's, in turn; CPU seconds, as other processes disturb those less. The last row is in a scope that replaces an
operation which the chain does not have.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from time import process_time

import lazyt as lt
from benchmarks.workloads.recording import OPS, _build, _inputs
from lazyt.library.operation import OPERATIONS

ROUNDS, WARM, TIMED = 25, 12, 12


class Peer:
    """What `record_overhead` asks of lazyt."""

    array = staticmethod(lt.asarray)

    @staticmethod
    def wait(x: lt.Tensor) -> lt.Tensor:
        """Have its value."""
        lt.sync()
        return x


class Beside(lt.backends.SmallBackend):
    """A backend that nothing is asked of."""

    name = "beside"

    def allocate(self, nbytes: int, device: str) -> bytearray:
        return bytearray(nbytes)

    def write(self, block: bytearray, content: object, device: str) -> None:
        raise AssertionError("nothing is asked of it")

    def read(self, block: bytearray, into: object, device: str) -> None:
        raise AssertionError("nothing is asked of it")


@contextmanager
def registered() -> Iterator[None]:
    """With a backend, an operation of a user's and a fallback."""
    lt.backends.register(Beside())
    op = lt.library.define("benchmarks::beside(Tensor x) -> Tensor")
    op.impl("cpu", lambda x: x)
    op.register_fake(lambda x: x)
    lt.library.fallback("beside")
    try:
        op(lt.ones(2)).numpy()
        yield
    finally:
        lt.backends.unregister("beside")
        del OPERATIONS[op.name]


@contextmanager
def scope() -> Iterator[None]:
    """In a scope with another kernel for `sinh`."""
    with lt.library.scoped():
        lt.library.impl("sinh", "cpu", lambda x: x)
        yield


STATES: dict[str, Callable[[], object]] = {
    "nothing registered": nullcontext,
    "a backend, an operation, a fallback": registered,
    "a scope with another operation's kernel": scope,
}


def measure(rounds: int) -> dict[str, list[float]]:
    """Microseconds an operation of each state, by rounds."""
    run = _build(Peer, _inputs(True))
    found: dict[str, list[float]] = {name: [] for name in STATES}
    for _ in range(rounds):
        for name, state in STATES.items():
            with state():  # type: ignore[attr-defined]
                for _ in range(WARM):
                    run()
                start = process_time()
                for _ in range(TIMED):
                    run()
                found[name].append((process_time() - start) / TIMED / OPS * 1e6)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    found = measure(parser.parse_args().rounds)
    base = found["nothing registered"]
    for name, each in found.items():
        ratios = sorted(a / b for a, b in zip(each, base, strict=True))
        print(f"{name:42} median {median(each):.3f} us/op, least {min(each):.3f}, median ratio {median(ratios):.3f}")


if __name__ == "__main__":
    main()
