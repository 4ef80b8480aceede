"""Floats of 8 bits: every operation of the table computes them in float32 and rounds once, or refuses them by name."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import DTypeError
from lazyt.ir import dtypes
from lazyt.ops.definition import MOVES, OPS
from lazyt.testing.modes import FIRST_BY_NUMPY, FIRST_RUN, Mode, mode
from tests.support.operations import NAMES, run

STORED = [d for d in dtypes.ALL if dtypes.of(d).stored]
FLOAT32 = np.dtype(np.float32)


def of_dtype(x, dtype, source=None):
    """The float arrays of a sample (those of `source` alone) and its float dtypes as `dtype`, in containers too."""
    if isinstance(x, np.ndarray | np.generic):
        found = dtypes.host_kind(x.dtype) == "f" if source is None else x.dtype == source
        return np.asarray(x).astype(dtype) if found else x
    if isinstance(x, list | tuple):
        return type(x)(of_dtype(q, dtype, source) for q in x)
    if isinstance(x, type | np.dtype) and x is not None:
        d = np.dtype(x)
        return dtype if (dtypes.host_kind(d) == "f" if source is None else d == source) else x
    return x


def has(x, dtype):
    if isinstance(x, list | tuple):
        return any(has(q, dtype) for q in x)
    return (x if isinstance(x, np.dtype) else getattr(x, "dtype", None)) == dtype


def samples(name, dtype):
    """Calls of an operation with `dtype` in place of every float."""
    for args, kwargs in OPS[name].samples():
        made = [of_dtype(a, dtype) for a in args], {k: of_dtype(v, dtype) for k, v in kwargs.items()}
        if has([*made[0], *made[1].values()], dtype):
            yield made


def found(name, args, kwargs):
    """The results of a call, or what it raises."""
    try:
        return run(name, args, kwargs)
    except (ValueError, TypeError, IndexError) as e:
        return e


def check(name, dtype, args, kwargs):
    """Compare a call on `dtype` with one on float32, its results rounded where those on bfloat16 are of bfloat16."""
    other = lambda d: ([of_dtype(a, d, dtype) for a in args], {k: of_dtype(v, d, dtype) for k, v in kwargs.items()})
    if name == "rms_norm" and kwargs.get("eps") is None:
        kwargs = {**kwargs, "eps": float(lt.finfo(dtype).eps)}  # the default is the dtype's own
    got, want, half = found(name, args, kwargs), found(name, *other(FLOAT32)), found(name, *other(dtypes.bfloat16))
    if isinstance(got, Exception):
        refused = isinstance(got, DTypeError) and f"not supported: {name} of {dtype}, because" in str(got)
        assert refused or type(got) is type(want), (name, got)
        return
    assert not isinstance(want, Exception), (name, want)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        # float64 comes of integers beside float32, which give way to a stored dtype.
        own = isinstance(half, Exception) or half[k].dtype == dtypes.bfloat16 or w.dtype == np.float64
        if own and w.dtype in (FLOAT32, np.float64):
            w = w.astype(dtype)
        if dtypes.kind(g.dtype) == "f" and g.dtype == dtype:
            assert w.dtype == dtype, (name, w.dtype)
            g, w = g.astype(FLOAT32), w.astype(FLOAT32)
        np.testing.assert_array_equal(g, w, err_msg=name, strict=True)


INTERPRETED = Mode("interpreted", interpret=True)
REGIMES = {
    "kernels": lambda: mode(FIRST_RUN),
    "interpreted": lambda: mode(INTERPRETED),
    "eager": lt.eager,
    "by NumPy": lambda: mode(FIRST_BY_NUMPY),
    "lazy": contextlib.nullcontext,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_right_or_refused(name):
    number = NAMES.index(name)
    dtype = STORED[number % len(STORED)]
    with np.errstate(all="ignore"), list(REGIMES.values())[number % 5]():
        for args, kwargs in list(samples(name, dtype))[:1]:
            check(name, dtype, args, kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_is_right_or_refused_in_every_regime(name, regime):
    with np.errstate(all="ignore"), REGIMES[regime]():
        for dtype in STORED:
            for args, kwargs in samples(name, dtype):
                check(name, dtype, args, kwargs)


def codes(dtype):
    return np.arange(256, dtype=np.uint8).view(dtype)


def targets(dtype):
    """float32: every number of the dtype, each tie and its neighbours, the ends of the range, random bits."""
    every = codes(dtype).astype(FLOAT32)
    numbers = np.unique(every[np.isfinite(every)])
    ties = (numbers[1:] + numbers[:-1]) / 2
    beside = [np.nextafter(ties, np.float32(s)) for s in (np.inf, -np.inf)]
    past = numbers[-1] * np.linspace(1, 1.3, 97, dtype=FLOAT32)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, dtype=np.uint32).view(FLOAT32)
    ends = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e-45, -1e-45, 3e38], FLOAT32)
    return np.concatenate([every, ties, *beside, past, -past, drawn, ends])


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_casts_have_the_bits_of_ml_dtypes(dtype, regime):
    with np.errstate(all="ignore"), REGIMES[regime]():
        x = lt.asarray(codes(dtype))
        for d in (np.float16, np.float32, np.float64, np.int32, np.bool_, np.complex64):
            got = x.astype(d).numpy()
            if d is np.int32:  # NaN and what is too large are defined in lazyt
                finite = np.isfinite(codes(dtype))
                np.testing.assert_array_equal(got[finite], codes(dtype).astype(d)[finite])
            else:
                np.testing.assert_array_equal(got, codes(dtype).astype(d), strict=True)
        y = targets(dtype)
        for a in (y, y.astype(np.float16), np.arange(-500, 500), np.arange(-70000, 70000, 37), y > 0):
            got = lt.asarray(a).astype(dtype).numpy()
            np.testing.assert_array_equal(got.view(np.uint8), a.astype(dtype).view(np.uint8))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_casts_of_float64_round_once(dtype, regime):
    numbers = np.unique(codes(dtype).astype(np.float64)[np.isfinite(codes(dtype).astype(FLOAT32))])
    ties = (numbers[1:] + numbers[:-1]) / 2
    with REGIMES[regime]():
        for way, want in ((np.inf, numbers[1:]), (-np.inf, numbers[:-1])):
            got = lt.asarray(np.nextafter(ties, way)).astype(dtype).numpy()
            np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_what_moves_elements_keeps_their_bits(dtype):
    a = codes(dtype).reshape(16, 16)
    x = lt.asarray(a)
    moved = {
        "flip": lt.flip(x, axis=0), "permute": x.T, "slice": x[3:, ::2], "gather": x[lt.asarray([5, 5, 0])],
        "concat": lt.concat([x, x[:2]]), "roll": lt.roll(x, 3, axis=1), "clone": x.clone(), "mask": x[x == x],
    }  # fmt: skip
    wanted = {
        "flip": a[::-1], "permute": a.T, "slice": a[3:, ::2], "gather": a[[5, 5, 0]],
        "concat": np.concatenate([a, a[:2]]), "roll": np.roll(a, 3, axis=1), "clone": a, "mask": a[a == a],
    }  # fmt: skip
    for name, y in moved.items():
        np.testing.assert_array_equal(y.numpy().view(np.uint8), wanted[name].view(np.uint8), err_msg=name)
    y = lt.zeros((16, 16), dtype=dtype)
    y.T[2:5] = x[:3]
    want = np.zeros((16, 16), dtype)
    want.T[2:5] = a[:3]
    np.testing.assert_array_equal(y.numpy().view(np.uint8), want.view(np.uint8))


def test_operations_that_move_are_operations():
    assert OPS.keys() >= MOVES


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_promotion(dtype):
    for d in dtypes.ALL:
        if dtypes.of(d).stored and d != dtype:
            with pytest.raises(
                DTypeError, match=f"{dtype} and {d} have no common dtype: cast one of them to the other"
            ):
                lt.ones(2, dtype=dtype) + lt.ones(2, dtype=d)
        else:
            want = dtype if dtypes.kind(d) in "biu" else d
            assert (lt.ones(2, dtype=dtype) + lt.ones(2, dtype=d)).dtype == lt.result_type(d, dtype) == want
    x = lt.ones(2, dtype=dtype)
    assert [(x + v).dtype for v in (True, 2, 0.5)] == [dtype] * 3 and (x + 1j).dtype == lt.complex64
    assert lt.finfo(dtype).max == dtypes.of(dtype).largest and lt.isdtype(dtype, "real floating")
    assert f"dtype={dtype}" in repr(x) and lt.zeros(3, dtype=str(dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_what_is_not_computed_is_refused_by_name(dtype):
    p = lt.nn.Parameter(lt.ones(3, dtype=dtype))
    (p * p).sum().backward()
    assert p.grad.dtype == dtype and p.grad.tolist() == [2, 2, 2]
    with pytest.raises(DTypeError, match=f"not supported: optim.sgd of {dtype}, because .*; cast it to float32 first"):
        lt.optim.SGD([p], lr=0.1).step()
    with pytest.raises(DTypeError, match=f"not supported: random.uniform of {dtype}, because"):
        lt.random.uniform(size=(3,), dtype=dtype)
    with pytest.raises(DTypeError, match=f"not supported: nextafter of {dtype}, because"):
        lt.nextafter(lt.ones(2, dtype=dtype), 2.0)
    with pytest.raises(DTypeError, match=f"not supported: numpy.spacing of {dtype}, because"):
        lt.spacing(lt.ones(2, dtype=dtype))
    with pytest.raises(BufferError, match=f"__dlpack__: not supported: {dtype}, because"):
        np.from_dlpack(lt.ones(2, dtype=dtype))


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_gradients_are_those_of_float32_rounded(dtype):
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((300, 5)).astype(dtype), rng.standard_normal((40, 5)).astype(dtype)
    found = []
    for d in (dtype, FLOAT32):
        x, row = (lt.tensor(v.astype(d), requires_grad=True) for v in (a, a[:1]))
        y = lt.broadcast_to(row, (40, 5)) if d == dtype else row + lt.zeros((40, 1))
        lt.concat([lt.exp(x), y]).astype(np.float32).backward(
            lt.concat([lt.ones((300, 5)), lt.asarray(w.astype("f4"))])
        )
        found.append((x.grad.numpy(), row.grad.numpy()))
    for got, want in zip(*found, strict=True):
        assert got.dtype == dtype
        # The cotangent of exp is its rounded result times one.
        np.testing.assert_allclose(got.astype("f4"), want, rtol=float(lt.finfo(dtype).eps), atol=1e-2)


def test_safetensors_in_both_directions(tmp_path):
    pytest.importorskip("safetensors")
    every, path = bytes(range(256)), tmp_path / "a.safetensors"
    header = {  # as the format's description has it
        "a": {"dtype": "F8_E4M3", "shape": [16, 16], "data_offsets": [0, 256]},
        "b": {"dtype": "F8_E5M2", "shape": [256], "data_offsets": [256, 512]},
        "one": {"dtype": "F8_E4M3", "shape": [], "data_offsets": [512, 513]},
        "none": {"dtype": "F8_E5M2", "shape": [0, 3], "data_offsets": [513, 513]},
        "bytes": {"dtype": "U8", "shape": [3], "data_offsets": [513, 516]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + every + every + b"\x38" + b"abc")
    mine = lt.load(path)
    assert mine["a"].numpy().tobytes() == mine["b"].numpy().tobytes() == every and mine["one"].item() == 1
    lt.save(mine, path)
    back = path.read_bytes()
    size = int.from_bytes(back[:8], "little")
    entries = json.loads(back[8 : 8 + size])
    for name, h in header.items():
        e = entries[name]
        first, end = e["data_offsets"]
        assert (e["dtype"], e["shape"]) == (h["dtype"], h["shape"])
        assert back[8 + size + first : 8 + size + end] == mine[name].numpy().tobytes()
    lt.save(mine, tmp_path / "mine.npz")
    assert lt.load(tmp_path / "mine.npz")["a"].numpy().tobytes() == every
