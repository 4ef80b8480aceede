"""`opcheck`: whether an operation of a user's keeps what lazyt relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import lazyt as lt
from lazyt.errors import LazytError, NotSupportedError
from lazyt.ir import dtypes
from lazyt.library.operation import Operation, find
from lazyt.testing.modes import Mode, mode
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Ways to run a program, which have to give the same values.
MODES = (
    Mode("one kernel for each operation", fuse=False),
    Mode("interpreted", interpret=True),
    Mode("a sync behind each operation", sync="always"),
    Mode("a plan that is known", repeat=2, short=True),
)
TOLERANCES = {dtypes.float64: 1e-10, dtypes.float32: 1e-5, dtypes.complex64: 1e-5}


class OpcheckError(LazytError, AssertionError):
    """What `opcheck` found."""


class _Sample:
    """Arguments of one call, from which fresh tensors are made."""

    def __init__(self, given: Any) -> None:
        is_pair = (
            isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict)
        )
        args, kwargs = given if is_pair else (given, {})
        args = args if isinstance(args, tuple | list) else (args,)
        self.leaves: list[np.ndarray[Any, Any]] = []
        self.grads: list[bool] = []
        self.args = [self._taken(a) for a in args]
        self.kwargs = {k: self._taken(v) for k, v in kwargs.items()}

    def _taken(self, a: Any) -> Any:
        if isinstance(a, Handle | np.ndarray):
            t: Any = a
            self.leaves.append(np.array(t.detach().numpy() if isinstance(a, Handle) else t))
            self.grads.append(bool(getattr(t, "requires_grad", False)))
            return _At(len(self.leaves) - 1)
        return [self._taken(x) for x in a] if isinstance(a, list) else a

    @property
    def floating(self) -> list[int]:
        """The numbers of the tensors that may have a gradient."""
        return [i for i, x in enumerate(self.leaves) if dtypes.kind(x.dtype) in "fc"]

    def call(self, op: Any, leaves: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """What the operation gives for these tensors, fresh ones unless they are given."""
        tensors = [lt.asarray(x) for x in self.leaves] if leaves is None else leaves
        out = op(*(_put(a, tensors) for a in self.args), **{k: _put(v, tensors) for k, v in self.kwargs.items()})
        return out if isinstance(out, tuple) else (out,)


class _At:
    def __init__(self, n: int) -> None:
        self.n = n


def _put(a: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(a, _At):
        return tensors[a.n]
    return [_put(x, tensors) for x in a] if isinstance(a, list) else a


def _values(outs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.array(y.numpy()) for y in outs]


def _close(found: Sequence[Any], want: Sequence[Any], what: str) -> None:
    for k, (a, b) in enumerate(zip(found, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise OpcheckError(f"{what}: result {k} is {a.dtype} {a.shape}, and {b.dtype} {b.shape} otherwise")
        if dtypes.kind(b.dtype) not in "fc":
            same = np.array_equal(a, b)
        else:
            tolerance = TOLERANCES.get(b.dtype, 1e-2)
            wide = np.complex128 if dtypes.kind(b.dtype) == "c" else np.float64
            same = np.allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True)
        if not same:
            raise OpcheckError(f"{what}: result {k} has other values:\n{a}\n{b}")


def _shapes(op: Operation, sample: _Sample) -> None:
    """Results have the shapes and dtypes that were recorded, and the call can be made twice."""
    outs = sample.call(op)
    if len(outs) != op.schema.results:
        raise OpcheckError(f"{len(outs)} results, {op.schema.results} are declared")
    recorded = [(y.shape, y.dtype) for y in outs]
    values = _values(outs)
    if [(v.shape, v.dtype) for v in values] != recorded:
        raise OpcheckError(f"results are {[(v.shape, v.dtype) for v in values]}, recorded were {recorded}")
    _close(_values(sample.call(op)), values, "called again")


def _lazy(op: Operation, sample: _Sample) -> None:
    """A call records and computes nothing."""
    leaves = [lt.asarray(x) for x in sample.leaves]
    with lt.no_sync():
        outs = sample.call(op, leaves)
    done = [k for k, y in enumerate(outs) if not y.is_pending and y.size and leaves]
    if done:
        raise OpcheckError(f"result {done[0]} is computed already; a call records, and computes nothing")
    _values(outs)


def _modes(op: Operation, sample: _Sample) -> None:
    """Every way to run a program gives the same values, of the call alone and between other operations."""

    def program(with_neighbours: bool) -> list[np.ndarray[Any, Any]]:
        leaves = [lt.asarray(x) for x in sample.leaves]
        if with_neighbours:
            leaves = [x * 1 if dtypes.kind(x.dtype) != "b" else x for x in leaves]
        outs = sample.call(op, leaves)
        return _values([y * 2 if dtypes.kind(y.dtype) != "b" else y for y in outs] if with_neighbours else outs)

    for neighbours in (False, True):
        want = program(neighbours)
        for m in MODES:
            for _ in range(m.repeat):
                with mode(m):
                    found = program(neighbours)
            _close(found, want, f"{m.name}{', between other operations' * neighbours}")


def _gradients(op: Operation, sample: _Sample) -> None:
    """Derivatives agree with finite differences, in float64; what has none refuses to record one."""
    asked = [i for i, grad in enumerate(sample.grads) if grad]
    if not asked:
        return
    wide = [x.astype(np.complex128 if dtypes.kind(x.dtype) == "c" else np.float64) for x in sample.leaves]
    leaves: list[Any] = [
        lt.tensor(wide[i] if i in sample.floating else x, requires_grad=i in asked) for i, x in enumerate(sample.leaves)
    ]

    def f(*xs: Any) -> Any:
        given = list(leaves)
        for i, x in zip(asked, xs, strict=True):
            given[i] = x
        floating = tuple(y for y in sample.call(op, given) if dtypes.kind(y.dtype) in "fc")
        return floating if len(floating) > 1 else floating[0]

    lt.autograd.gradcheck(f, tuple(leaves[i] for i in asked))


def _batching(op: Operation, sample: _Sample) -> None:
    """vmap gives what calls one by one give."""
    if not sample.leaves:
        return
    lanes = [np.stack([x, x[...] if dtypes.kind(x.dtype) == "b" else (x * 2).astype(x.dtype)]) for x in sample.leaves]
    want = [_values(sample.call(op, [lt.asarray(x[i]) for x in lanes])) for i in range(2)]

    def f(*xs: Any) -> tuple[Any, ...]:
        return sample.call(op, xs)

    try:
        outs = lt.vmap(f)(*(lt.asarray(x) for x in lanes))
    except NotSupportedError:
        if op.rule("batching") is None:
            return
        raise
    _close(_values(outs), [np.stack([w[k] for w in want]) for k in range(len(outs))], "vmap, beside one call a lane")
    shared = lt.vmap(f, in_axes=(0, *(None for _ in lanes[1:])))(
        lt.asarray(lanes[0]), *(lt.asarray(x[0]) for x in lanes[1:])
    )
    one = [
        _values(sample.call(op, [lt.asarray(lanes[0][i]), *(lt.asarray(x[0]) for x in lanes[1:])])) for i in range(2)
    ]
    _close(_values(shared), [np.stack([w[k] for w in one]) for k in range(len(shared))], "vmap over the first tensor")


def _aliasing(op: Operation, sample: _Sample) -> None:
    """Inputs are as before, and results are values of their own: a write to an input changes none."""
    leaves: list[Any] = [lt.asarray(x) for x in sample.leaves]
    outs = sample.call(op, leaves)
    before = _values(outs)
    for k, (x, old) in enumerate(zip(leaves, sample.leaves, strict=True)):
        if not np.array_equal(np.array(x.numpy()), old, equal_nan=dtypes.kind(old.dtype) in "fc"):
            raise OpcheckError(f"tensor {k} of the arguments was written")
    with lt.no_grad():
        for x in leaves:
            x[...] = 0
    _close(_values(outs), before, "behind a write to the arguments")


def _bounds(op: Operation, sample: _Sample) -> None:
    """Kernels write their results alone: in checking mode nothing is found."""
    with lt.library.checked():
        _values(sample.call(op))


TESTS: dict[str, Callable[[Operation, _Sample], None]] = {
    "shapes": _shapes,
    "laziness": _lazy,
    "modes": _modes,
    "gradients": _gradients,
    "batching": _batching,
    "aliasing": _aliasing,
    "bounds": _bounds,
}


def opcheck(
    op: Any, samples: Sequence[Any], *, tests: Sequence[str] | None = None, raise_exception: bool = True
) -> dict[str, str]:
    """Test an operation on samples: each a tuple of arguments, or a pair (arguments, keyword arguments).

    'shapes': results have the declared shapes and dtypes, twice. 'laziness': a call records and does not sync.
    'modes': fused, unfused, interpreted, synced and replayed programs agree. 'gradients': derivatives by the tensors of
    a sample that require grad, in float64, against finite differences. 'batching': vmap, where there is a rule, against
    calls one by one. 'aliasing': arguments are not written, and results are values of their own. 'bounds':
    kernels write nothing but their results (see `checked`). `tests` chooses.
    Gives the outcome of each, 'passed' or the error's text; raises OpcheckError at the first unless not
    `raise_exception`. As `torch.library.opcheck`.

    >>> import lazyt as lt
    >>> swish = lt.library.elementwise("docs::swish", "x / (1 + exp(-x))")
    >>> lt.library.opcheck(swish, [(lt.tensor([0.5, -1.0], requires_grad=True),)], tests=("laziness", "gradients"))
    {'laziness': 'passed', 'gradients': 'passed'}
    """
    found = find(op) if isinstance(op, str) else op
    if not isinstance(found, Operation):
        raise TypeError(f"opcheck: an operation or its name is required, got {op!r}")
    chosen = tuple(TESTS) if tests is None else tuple(tests)
    unknown = [t for t in chosen if t not in TESTS]
    if unknown:
        raise ValueError(f"opcheck: no test {unknown[0]!r}; there are {', '.join(TESTS)}")
    if not samples:
        raise ValueError("opcheck: there are no samples")
    outcome: dict[str, str] = {}
    for name in chosen:
        outcome[name] = "passed"
        for n, given in enumerate(samples):
            try:
                TESTS[name](found, _Sample(given))
            except Exception as e:
                if raise_exception:
                    raise OpcheckError(f"opcheck: {found.name}, {name}, sample {n}: {type(e).__name__}: {e}") from e
                outcome[name] = f"{type(e).__name__}: {e}"
                break
    return outcome
