"""The examples of NumPy's own pages, run on lazyt: its functions on tensors, and NumPy's through the protocols.

What an example makes (`np.array`, `np.zeros`) is a tensor of NumPy's dtype, and each value that it shows is compared
with NumPy's. DEPARTURES are the examples that are not about arrays of numbers, or in which lazyt is another library.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import warnings

import numpy as np
import pytest

import lazyt as lt

pytestmark = pytest.mark.skipif(not np.__version__.startswith("2.4."), reason="the examples of NumPy 2.4 were read")

MADE = frozenset((
    "arange", "array", "asarray", "empty", "empty_like", "eye", "full", "full_like", "geomspace", "identity", "indices",
    "linspace", "logspace", "ones", "ones_like", "tri", "zeros", "zeros_like",
))  # fmt: skip
# Which example (function, source): why NumPy's result is not expected. The first that fits counts.
DEPARTURES = {
    ("", r"plt\.|matplotlib|default_rng|np\.random|RandomState"): "drawn, or random",
    ("", r"'[SU]\d|dtype=\[|\"U\"|dtype=object|dtype=dtype|datetime64|timedelta64"): "dtypes that lazyt has not",
    ("", r"\(first_names|'a', 'b'|np\.(ma|matrix)\b"): "text, and arrays of other classes",
    ("save|load", ""): "lazyt's files are its own",
    ("", r"\.(flags|base|ctypes|strides|byteswap|resize|shape =|sort\(|partition\(|nonzero\(\))"):
        "about memory or written in place: the error says what to write instead",
    ("", r"\bview\(|np\.shares_memory"): "bytes read as another dtype",
    ("", r"poly1d"): "a class of NumPy's for polynomials",
    ("", r"np\.u?int\d+\(\d|np\.uint32\(\["): "lazyt's dtypes are no functions",

    ("", r"np\.\w+ is np\.\w+|\) is x\b|\bid\(|type\(x\.flat\)"): "whether two names mean one object, or class",
    ("empty|empty_like", ""): "what NumPy leaves undefined is zeros here",
    ("arange", r"0\.5, dtype=int|print\(x2\)"): "steps are rounded last; a tensor in a list shows that it is pending",
    ("allclose|isclose|logaddexp2?|nan_to_num|tanh?|result_type|can_cast", ""): "Python's floats are float32 here",
    ("einsum", r"^a$|\[:\] = 1"): "a diagonal that was asked for by einsum is a copy",
    ("ravel", r"order='[AK]'"): "values have one order here",
    ("put_along_axis", ""): "a copy is returned: nothing is written in place",
    ("pad", "pad_with"): "a function that writes NumPy's vectors",
    ("is(in|real|realobj)", r"test_set|'A string'|None|\(a\)"): "a set, text and None are no arrays",
    ("cross", r"np\.cross\(x, y"): "vectors of two elements are deprecated in NumPy",
    (r"linalg\.eig(vals)?", ""): "complex always: the dtype does not depend on values",
    ("unique_values", ""): "sorted, where NumPy leaves the order open",
    ("average", r"weights=\[1\./4, 3\./4\]\)"): "a ShapeError, where NumPy raises a TypeError",
    ("median|percentile|quantile", r"assert not"): "`overwrite_input` overwrites nothing",
    ("std|var", r"print\(f"): "how long something took",
    (r"(ndarray\.)?astype", "same_value"): "a rule that looks at values",
    ("lexsort", r"ind2, ind|assert_equal"): "`numpy.testing` asks arrays for their truth",
    ("ndarray.real|ndarray.imag", r"\.dtype"): "Python's complex numbers are complex64 here",
}  # fmt: skip


class Namespace:
    """What an example calls `np`: lazyt's functions, or NumPy's; what both make are tensors."""

    def __init__(self, of_lazyt):
        self.of_lazyt = of_lazyt

    def __getattr__(self, name):
        if name in MADE:
            return lambda *args, **options: _made(name, args, options)
        return getattr(lt if self.of_lazyt and hasattr(lt, name) else np, name)


def _made(name, args, options):
    if any(isinstance(x, lt.Tensor) for x in args):
        return getattr(lt, name)(*args, **options)
    found = getattr(np, name)(*args, **options)
    return lt.asarray(found) if isinstance(found, np.ndarray) and found.dtype.kind in "biufc" else found


def _run(source, space):
    """What a line of an example shows, prints, and raises."""
    shown, error = None, None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            try:
                code = compile(source, "<example>", "eval")
            except SyntaxError:
                exec(compile(source, "<example>", "exec"), space)
            else:
                shown = eval(code, space)
        except Exception as e:  # noqa: BLE001 - which one it is, is compared
            error = e
    return shown, printed.getvalue(), error


def _differ(got, want):
    if isinstance(want, list | tuple) or isinstance(got, list | tuple):
        return len(got) != len(want) or any(map(_differ, got, want))
    if want is None or isinstance(want, str):
        return got != want
    a, b = np.asarray(got), np.asarray(want)
    if b.dtype.kind not in "biufc":
        return repr(got) != repr(want)
    return a.shape != b.shape or a.dtype.kind != b.dtype.kind or not np.allclose(a, b, 1e-4, 1e-5, equal_nan=True)


def _names():
    for prefix, ours, theirs in (
        ("", lt, np), ("linalg.", lt.linalg, np.linalg), ("fft.", lt.fft, np.fft), ("ndarray.", lt.Tensor, np.ndarray),
    ):  # fmt: skip
        for name in dir(ours):
            page = getattr(getattr(theirs, name, None), "__doc__", None)
            if not name.startswith("_") and page and (callable(getattr(theirs, name)) or prefix == "ndarray."):
                yield prefix + name, page


def _why(name, source):
    """Why a line of a page is another one here; of no line, why the page is."""
    fits = (why for (f, s), why in DEPARTURES.items() if re.fullmatch(f or ".*", name) and re.search(s, source))
    return next(fits, None)


@pytest.mark.slow
@pytest.mark.parametrize("of_lazyt", [True, False], ids=["lazyt's functions", "NumPy's functions on tensors"])
def test_numpys_examples(of_lazyt, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    compared, wrong = 0, []
    for name, page in _names():
        if _why(name, ""):
            continue
        theirs, ours = {"np": np}, {"np": Namespace(of_lazyt)}
        departed = False
        for example in doctest.DocTestParser().get_examples(page):
            source = example.source.replace("import numpy as np", "pass")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want, text, error = _run(source, theirs)
                if departed or _why(name, source):
                    # What follows uses what was not made.
                    departed = True
                    continue
                got, ours_text, ours_error = _run(source, ours)
            if (error is None) != (ours_error is None):
                wrong.append(f"{name}: {source.strip()}: {ours_error!r}, NumPy {error!r}")
            elif error is None and (text != ours_text or _differ(got, want)):
                wrong.append(f"{name}: {source.strip()}: {got!r} {ours_text}, NumPy {want!r} {text}")
            compared += 1
    assert not wrong, "\n".join(wrong)
    assert compared > 2000
