"""Errors that lazyt raises on purpose end at the user's line; all others keep their frames."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general as settings
from lazyt.errors import LazytInternalError
from lazyt.tracing import tracebacks


def files(error: BaseException) -> list[str]:
    return [f.filename for f in traceback.extract_tb(error.__traceback__)]


def raised(call) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011 - whatever it is
        call()
    return found.value


def frames(call) -> list[str]:
    """The functions in the traceback of a call that fails, from the call on."""
    return [f.name for f in traceback.extract_tb(raised(call).__traceback__)][1:]


X, Y = lt.ones((2, 3)), lt.ones((4, 5))


class OfTheUser(lt.nn.Module):
    def forward(self, x):
        return x + Y


CALLS = {
    "operator": lambda: X + Y,
    "reflected": lambda: [1.0, 2.0] - X,
    "comparison": lambda: X < Y,
    "in place": lambda: X.__iadd__(Y),
    "power": lambda: X**Y,
    "of two": lambda: lt.add(X, Y),
    "cached call": lambda: lt.sum(X, axis=5),
    "method": lambda: X.sum(axis=5),
    "method without a cached call": lambda: X.split(7, axis=9),
    "index": lambda: X[5],
    "write": lambda: X.__setitem__(7, 1),
    "sequence": lambda: lt.concatenate([X, Y]),
    "layer": lambda: lt.nn.Linear(3, 2)(Y),
    "constructor": lambda: lt.nn.Linear(-3, 2),
    "optimizer": lambda: lt.optim.SGD([], 1),
    "state": lambda: lt.nn.Linear(2, 2).load_state_dict({"weight": X}),
    "functional": lambda: lt.nn.functional.linear(X, Y),
    "linalg": lambda: lt.linalg.inv(X),
    "fft": lambda: lt.fft.fft(X, axis=4),
    "random": lambda: lt.random.normal(size=-1),
    "gradient": lambda: X.backward(),
    "property": lambda: setattr(X, "grad", X),
    "transform": lambda: lt.grad(lambda x: x)(X),
    "read": lambda: float(X),
    "hash": lambda: hash(X),
    "sync": lambda: lt.sync(3),
    "data of a sync": lambda: X[lt.asarray([7])].numpy(),
    "data for NumPy": lambda: lt.linalg.inv(lt.zeros((2, 2))).numpy(),
    "ufunc": lambda: np.add(X, Y),
    "NumPy's function": lambda: np.take(X, 7, axis=5),
    "spelling": lambda: X.median(),
    "module": lambda: lt.cat,
    "module of layers": lambda: lt.nn.Lineer,
    "module of optimizers": lambda: lt.optim.Adamm,
    "module of derivatives": lambda: lt.autograd.gradd,
    "module of operations": lambda: lt.library.opchek,
    "keyword": lambda: X.sum(dim=1),
    "too few": lambda: lt.exp(),
    "too few for a boundary": lambda: lt.nn.functional.linear(X),
    "host data": lambda: lt.asarray("a"),
    "device": lambda: X.to("cuda:99"),
    "device of a block": lambda: lt.device("nowhere"),
    "deliberate builtin": lambda: lt.set_float32_matmul_precision("lowest"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_traceback_ends_at_the_user_s_line(name):
    for _ in range(3):  # new, known, and as a cached call
        found = files(raised(CALLS[name]))
        assert not [f for f in found if "/lazyt/" in f or f.startswith("<lazyt")], found
        assert found[-1] == __file__ or "numpy" in found[-1]


def test_frames_of_the_user_stay():
    assert frames(lambda: lt.nn.Sequential(OfTheUser())(X)) == ["<lambda>", "forward"]
    assert frames(lambda: lt.apply_along_axis(lambda v: v + Y, 0, X))[-1] == "<lambda>"

    def loss(x):
        return (x + Y).sum()

    assert frames(lambda: lt.grad(loss)(X)) == ["<lambda>", "loss"]


def test_what_a_user_s_function_raises_keeps_all_frames():
    def forward(v):
        raise KeyError("mine")

    found = frames(lambda: lt.apply_along_axis(forward, 0, X))
    assert found[-1] == "forward" and len(found) > 3


@pytest.mark.parametrize("error", [LazytInternalError("broken"), AssertionError("broken")])
def test_a_bug_keeps_all_frames(monkeypatch, error):
    def broken(*args):
        raise error

    monkeypatch.setattr(lt.functions.reductions, "record", broken)
    assert frames(lambda: lt.ptp(X))[-1] == "broken"


def test_what_an_expression_raises_keeps_all_frames(monkeypatch):
    monkeypatch.setattr(lt.functions.reductions, "record", None)
    assert frames(lambda: lt.ptp(X)) == ["<lambda>", "call", "ptp"]


def test_all_frames_are_shown_when_asked_for(monkeypatch):
    monkeypatch.setitem(settings, "traceback", True)
    assert len(frames(lambda: X + Y)) > 5


def test_causes_and_contexts_stay():
    def call():
        try:
            raise KeyError("first")
        except KeyError:
            return X + Y

    first = raised(call).__context__
    assert isinstance(first, KeyError) and files(first) == [__file__]
    with pytest.raises(lt.DeviceError) as e:
        X.to("cuda:0")
    cause = e.value.__cause__
    assert cause is None or isinstance(cause, ImportError)


def test_an_error_is_pickled_and_raised_again():
    for call in (CALLS["operator"], CALLS["hash"], CALLS["keyword"]):
        error = raised(call)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)


def test_in_threads():
    found: list[list[str]] = []
    t = threading.Thread(target=lambda: found.append(frames(lambda: X + Y)))
    t.start()
    t.join()
    assert found == [["<lambda>"]]


def test_a_script_prints_no_frame_of_lazyt(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import lazyt as lt\n\ndef model(x):\n    return x @ x\n\nmodel(lt.ones((2, 3)))\n")
    text = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False).stderr
    lines = [line.strip() for line in text.splitlines()]
    assert [n for n in lines if n.startswith("File")] == [
        f'File "{script}", line 6, in <module>',
        f'File "{script}", line 4, in model',
    ]
    assert lines[-1].startswith("lazyt.errors.ShapeError: matmul")


def test_a_boundary_is_the_function_in_all_that_is_seen():
    f = lt.nn.functional.linear
    assert f.__name__ == "linear" and "As `torch.nn.functional.linear`" in f.__doc__
    assert list(f.__annotations__) == list(f.__wrapped__.__annotations__)
    assert pickle.loads(pickle.dumps(f)) is f
    assert lt.one_hot is lt.nn.functional.one_hot and pickle.loads(pickle.dumps(lt.one_hot)) is lt.one_hot
    with pytest.raises(TypeError, match=r"^linear\(\) missing 1 required positional argument: 'weight'$"):
        f(X)
    with pytest.raises(TypeError, match=r"^linear\(\) got an unexpected keyword argument 'q'$"):
        f(X, X, q=1)


@pytest.mark.parametrize(
    ("f", "args", "options", "want"),
    [
        (
            lambda a, /, b, *c, d, e=5, **f: (a, b, c, d, e, f),
            (1, 2, 3),
            {"d": 4, "g": 6},
            (1, 2, (3,), 4, 5, {"g": 6}),
        ),
        (lambda a=1, *, b=2: (a, b), (), {"b": 3}, (1, 3)),
        (lambda *a, **k: (a, k), (1,), {"k": 2}, ((1,), {"k": 2})),
        (lambda a, b=7: (a, b), (), {"b": 1, "a": 2}, (2, 1)),
        (lambda: 3, (), {}, 3),
    ],
)
def test_a_boundary_passes_every_kind_of_argument(f, args, options, want):
    assert tracebacks.api_boundary(f)(*args, **options) == want
