"""Arrays of nothing, operands of other shapes than an operation expects, and sizes beyond any memory."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
import lazyt.torch as torch
from lazyt.errors import LazytInternalError
from lazyt.ops.definition import OPS
from lazyt.testing.numpy_names import names, public

F = torch.nn.functional
# Whose reference reads memory that nothing wrote where an array is empty.
UNDEFINED = {"fft.irfft", "fft.irfftn"}


def given(x: Any) -> Any:
    return lt.asarray(x) if isinstance(x, np.ndarray) else x


def arrays(found: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (found if isinstance(found, list | tuple) else (found,))]


def outcome(f: Any, args: Any, kwargs: dict[str, Any]) -> list[np.ndarray] | None:
    """What a call gives, or None where it is refused; an internal error is none of lazyt's refusals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of shapes that a loss broadcasts
            return arrays(f(*map(given, args), **{k: given(v) for k, v in kwargs.items()}))
    except LazytInternalError:
        raise
    except (lt.LazytError, TypeError, ValueError, IndexError):
        return None


def strided(every: int, values: Iterable[Any], start: int = 0) -> list[Any]:
    """Parameters of which one in `every` is fast."""
    return [
        x if i % every == start else pytest.param(*(x if isinstance(x, tuple) else (x,)), marks=pytest.mark.slow)
        for i, x in enumerate(values)
    ]


# Of real dtypes by what they are asked for, or by their definition.
REAL = {"astype", "cumulative_prod", "cumulative_sum", "linalg.vector_norm", "real"}


@pytest.mark.parametrize("name", strided(8, (n for n in names() if n not in REAL)))
def test_no_imaginary_part_is_dropped(name: str) -> None:
    """A complex operand is refused, or the result is another than that of its real part; so in the reference."""
    f: Any = public(name)
    op: Any = OPS[name]
    for args, kwargs in itertools.islice(op.samples(), 6):
        for i, a in enumerate(args):
            if not isinstance(a, np.ndarray) or a.dtype not in (np.float32, np.float64) or not a.size:
                continue
            z = a + np.complex64(1j) * np.arange(1, a.size + 1, dtype=a.dtype).reshape(a.shape)
            some = [*args[:i], z, *args[i + 1 :]]
            found = outcome(f, some, kwargs)
            if found is not None:
                with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(TypeError, ValueError):
                    warnings.simplefilter("ignore")
                    warnings.simplefilter("error", np.exceptions.ComplexWarning)
                    op.numpy(*some, **kwargs)
            if found is None or any(x.dtype.kind != "f" for x in found):
                continue
            plain = outcome(f, args, kwargs)
            same = plain is not None and all(np.array_equal(x, y, equal_nan=True) for x, y in zip(found, plain))  # noqa: B905 - as many
            assert not same, f"operand {i} of {len(args)}"


@pytest.mark.parametrize("name", strided(8, (n for n in names() if n not in UNDEFINED)))
def test_an_empty_axis_gives_what_numpy_gives_or_is_refused(name: str) -> None:
    f: Any = public(name)
    op: Any = OPS[name]
    for args, kwargs in op.samples():
        first = next((a for a in args if isinstance(a, np.ndarray)), None)
        for axis in range(0 if first is None else first.ndim):
            cut = (*(slice(None),) * axis, slice(0, 0))
            some = [a[cut] if isinstance(a, np.ndarray) and a.shape == first.shape else a for a in args]
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    want = arrays(op.numpy(*some, **kwargs))
                except (ValueError, TypeError, IndexError, ZeroDivisionError, np.linalg.LinAlgError):
                    want = None
            got = outcome(f, some, kwargs) or []
            for g, w in zip(got, want or got, strict=bool(got)):
                assert g.shape == w.shape
                np.testing.assert_allclose(g.astype(complex), w.astype(complex), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", strided(40, names(), start=5))
def test_an_operand_of_a_larger_shape_is_no_internal_error(name: str) -> None:
    f: Any = public(name)
    for args, kwargs in OPS[name].samples():  # type: ignore[misc]
        places: list[Any] = [i for i, a in enumerate(args) if isinstance(a, np.ndarray | float)]
        places += [k for k, a in kwargs.items() if isinstance(a, np.ndarray | float)]
        for at in places:
            v = np.asarray(args[at] if isinstance(at, int) else kwargs[at])
            for wide in (np.broadcast_to(v, (2, *v.shape)), np.broadcast_to(v, (0, *v.shape))):
                some = [wide.copy() if i == at else a for i, a in enumerate(args)]
                more = {k: wide.copy() if k == at else a for k, a in kwargs.items()}
                outcome(f, some, more)


@pytest.mark.parametrize(("kind", "shape"), [("BatchNorm1d", (0, 2)), ("BatchNorm1d", (3, 2, 0)),
                                             ("BatchNorm2d", (0, 2, 3, 3)), ("InstanceNorm1d", (0, 2, 3))])  # fmt: skip
def test_statistics_of_an_empty_batch_move_nothing(kind: str, shape: tuple[int, ...]) -> None:
    m = getattr(torch.nn, kind)(2, track_running_stats=True)
    assert m(torch.zeros(*shape)).shape == shape
    assert (m.running_mean.tolist(), m.running_var.tolist()) == ([0.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular", "constant"])
def test_an_empty_batch_is_padded(mode: str) -> None:
    assert F.pad(torch.zeros(0, 2, 4), (1, 1), mode=mode).shape == (0, 2, 6)
    assert F.pad(torch.zeros(0, 2, 4, 4), (1, 1, 2, 0), mode=mode).shape == (0, 2, 6, 6)


def test_an_axis_beside_an_empty_one_is_padded_by_its_edges() -> None:
    for widths in (((0, 0), (1, 1)), ((0, 0), (9, 0))):
        want = np.pad(np.zeros((0, 4)), widths, "edge").shape
        assert lt.pad(lt.zeros((0, 4)), widths, "edge").shape == want
    with pytest.raises(lt.ShapeError, match="pad: mode 'edge' cannot extend"):
        lt.pad(lt.zeros((0, 4)), 1, "edge")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_without_an_embedding_are_zeros(mode: str) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert F.embedding_bag(none, torch.ones(3, 2), torch.tensor([0, 0]), mode=mode).tolist() == [[0.0, 0.0]] * 2
    assert F.embedding_bag(none.reshape(2, 0), torch.ones(3, 2), mode=mode).tolist() == [[0.0, 0.0]] * 2


@pytest.mark.parametrize("dim", [0, 1])
def test_a_vector_of_nothing_is_joined_with_any_shape(dim: int) -> None:
    rows = torch.ones(2, 3, requires_grad=True)
    for parts in ([torch.tensor([]), rows], [rows, torch.tensor([])]):
        got = torch.cat(parts, dim=dim)
        assert got.tolist() == rows.tolist()
    got.sum().backward()
    assert rows.grad.tolist() == [[1.0] * 3] * 2
    assert torch.cat([torch.tensor([]), torch.tensor([])]).shape == (0,)
    with pytest.raises(lt.ShapeError):
        torch.cat([torch.zeros(0, 2), rows])


PRODUCTS = {
    "addmm": ((1, 1), (1, 2), (2, 1)),
    "addmv": ((1,), (1, 2), (2,)),
    "baddbmm": ((1, 1, 1), (1, 1, 2), (1, 2, 1)),
    "addr": ((1, 1), (1,), (1,)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("zero", [0, 0.0])
def test_what_has_a_factor_of_zero_is_not_read(name: str, zero: float) -> None:
    x, a, b = (torch.ones(*s) for s in PRODUCTS[name])
    f = getattr(torch, name)
    want = f(x * 0, a, b).tolist()
    nothing = (x * math.nan).requires_grad_()
    got = f(nothing, a, b, beta=zero)
    assert got.tolist() == want
    got.sum().backward()
    assert nothing.grad.reshape(-1).tolist() == [0.0]
    # The products of these are read, as PyTorch's are.
    wanted = math.nan if name in ("baddbmm", "addr") else 1.0
    np.testing.assert_array_equal(f(x, a * math.nan, b, alpha=zero).numpy(), np.full(x.shape, wanted))


@pytest.mark.parametrize(("p", "want"), [(0, 2.0), (0.0, 2.0), (-math.inf, 0.5), (math.inf, 4.0), (1, 10.5)])
def test_a_norm_of_gradients_of_any_type(p: float, want: float) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    for q, g in zip(parameters, ([1.0, 1.0, 1.0], [3.0, 4.0, 0.5]), strict=True):
        q.grad = torch.tensor(g)
    assert torch.nn.utils.clip_grad_norm_(parameters, 100.0, norm_type=p).item() == want
    assert torch.nn.utils.clip_grad_norm_(parameters[:1], 1.0, norm_type=0).item() == 1.0


def test_a_length_of_zeros_has_no_slope() -> None:
    x, y = (torch.tensor(v, requires_grad=True) for v in ([0.0, 3.0], [0.0, 4.0]))
    torch.hypot(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), [0.0, 0.6], rtol=1e-6)
    np.testing.assert_allclose(y.grad.tolist(), [0.0, 0.8], rtol=1e-6)


X, IMAGE = lt.asarray([1.0, 2.0, 3.0, 4.0]), torch.ones(1, 1, 4)
HUGE: dict[str, Any] = {
    "zeros": lambda n: lt.zeros(n), "eye": lambda n: lt.eye(2, n), "arange": lambda n: lt.arange(n),
    "linspace": lambda n: lt.linspace(0, 1, n), "geomspace": lambda n: lt.geomspace(1, 2, n),
    "tri": lambda n: lt.tri(3, n), "tril_indices": lambda n: lt.tril_indices(n)[0], "hanning": lambda n: lt.hanning(n),
    "one_hot": lambda n: lt.one_hot(lt.asarray([0]), n), "repeat": lambda n: lt.repeat(X, n),
    "repeats": lambda n: lt.repeat(X, [n, 1, 1, 1]), "tile": lambda n: lt.tile(X, n),
    "resize": lambda n: lt.resize(X, n),
    "fft": lambda n: lt.fft.fft(X, n=n), "bincount": lambda n: lt.bincount([0], minlength=n),
    "mgrid": lambda n: lt.mgrid[0:n], "array_split": lambda n: lt.array_split(X, n)[0],
    "diag": lambda n: lt.diag(X, n), "histogram": lambda n: lt.histogram(X, n)[0],
    **{f"pad {m}": lambda n, m=m: lt.pad(X, n, m) for m in ("constant", "edge", "wrap", "reflect", "mean")},
    "adaptive mean": lambda n: F.adaptive_avg_pool1d(IMAGE, n),
    "adaptive max": lambda n: F.adaptive_max_pool1d(IMAGE, n),
    **{f"interpolate {m}": lambda n, m=m: F.interpolate(IMAGE, size=n, mode=m) for m in ("nearest", "linear", "area")},
    "interpolate by a factor": lambda n: F.interpolate(IMAGE, scale_factor=float(n)),
    "window": lambda n: F.max_pool1d(IMAGE, n), "dilation": lambda n: F.max_pool1d(IMAGE, 2, dilation=n),
    "torch pad": lambda n: F.pad(IMAGE, (n, n)), "expanded": lambda n: torch.ones(2).repeat(n),
}  # fmt: skip


SIZES = (2**50, 9132760301568586890)


@pytest.mark.parametrize(
    ("name", "size"), strided(2, ((n, SIZES[(i + k) % 2]) for i, n in enumerate(HUGE) for k in range(2)))
)
def test_a_size_beyond_any_memory_is_refused(name: str, size: int) -> None:
    with pytest.raises(lt.LazytError) as caught:
        HUGE[name](size).numpy()
    assert not isinstance(caught.value, LazytInternalError)


@pytest.mark.parametrize("extent", range(1, 20))
def test_the_widest_window_is_known_without_a_loop(extent: int) -> None:
    from lazyt.ops.adaptive_pooling import widest

    for count in range(1, 40):
        ends = [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
        assert widest(extent, count) == max(end - start for start, end in ends)
