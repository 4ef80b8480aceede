"""Schemas: what parses, what does not and where, and what calls bind."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt.library.schema import from_function, parse


@pytest.mark.parametrize(
    "text",
    [
        "ns::f(Tensor x) -> Tensor",
        "ns::f(Tensor x, Tensor? y=None, *, float alpha=1.5, int[] dims=[0, 1]) -> (Tensor, Tensor)",
        "ns::f(Tensor[] xs, int[2] k, bool b=False, str mode='a', Scalar s=2, dtype d=float32) -> (Tensor)",
        "ns::f() -> Tensor",
        "ns::f(float a=-1e-05, float? b=None) -> Tensor",
    ],
)
def test_a_schema_is_written_as_it_is_read(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        ("f(Tensor x) -> Tensor", "'::' is required here, not '\\('", "(Tensor"),
        ("ns::f(Flaot x) -> Tensor", "no type 'Flaot'; there are Tensor, int", "Flaot"),
        ("ns::f(Tensor x, Tensor x) -> Tensor", "a second argument 'x'", "Tensor x) ->"),
        ("ns::f(Tensor x) -> Tensr", "'Tensor' is required here, not 'Tensr'", "Tensr"),
        ("ns::f(Tensor x) Tensor", "'->' is required here, not 'Tensor'", "Tensor"),
        ("ns::f(Tensor x", "',' is required here, where the schema ends", None),
        ("ns::f(float a=1.0, float b) -> Tensor", "argument 'b' has no default", "float b"),
        ("ns::f(int a=x) -> Tensor", "a default is required here, not 'x'", "x)"),
        ("ns::f(int a=1.5) -> Tensor", "1.5 is no int", "1.5"),
        ("ns::f(int a=None) -> Tensor", "None is no int", "None"),
        ("ns::f(Tensor x=1) -> Tensor", "the default of a tensor is None", "1)"),
        ("ns::f(Tensor x) -> ()", "an operation gives one tensor at least", ")"),
        ("ns::f(Tensor x) -> Tensor[]", "not supported: results that are lists", "[]"),
        ("ns::f(Tensor(a!) x) -> Tensor", "not supported: operations that write their arguments", "(a!"),
        ("ns::f.out(Tensor x) -> Tensor", "not supported: overloads", ".out"),
        ("ns::f(Tensor x, *, *) -> Tensor", "a second '\\*'", "*)"),
        ("ns::f(Tensor x) -> Tensor x", "stands behind the end", "x"),
        ("ns::f(Tensor 3) -> Tensor", "the name of an argument is required here, not '3'", "3"),
    ],
)
def test_what_does_not_parse_shows_the_place(text, why, at):
    with pytest.raises(lt.library.SchemaError, match=why) as e:
        lt.library.define(text)
    _, shown, caret = str(e.value).split("\n")
    place = len(text) if at is None else text.rindex(at)
    assert (shown, caret) == ("  " + text, "  " + " " * place + "^")


SCHEMA = parse("ns::f(Tensor x, int n, float a=2.0, *, int[2] k=[1, 1], dtype? d=None, Tensor[]? xs=None) -> Tensor")


def test_values_have_the_declared_form():
    x = np.ones(2)
    assert SCHEMA.bind((x, np.int64(3)), {}) == [x, 3, 2.0, (1, 1), None, None]
    values = SCHEMA.bind((x,), {"n": 3, "a": 1, "k": 4, "d": "float32", "xs": (x, x)})
    assert values[1:5] == [3, 1.0, (4, 4), np.dtype("float32")]
    assert type(values[2]) is float
    assert type(values[5]) is list


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "ns::f: argument 'x' is missing; its schema"),
        ((1.0, 2), {}, r"argument 'x' is Tensor, got 1.0 of type float"),
        ((np.ones(1), 1.5), {}, r"argument 'n' is int, got 1.5 of type float"),
        ((np.ones(1), True), {}, r"argument 'n' is int, got True of type bool"),
        ((np.ones(1), 1, "a"), {}, r"argument 'a' is float, got 'a' of type str"),
        ((np.ones(1), 1, 1.0, (1, 1)), {}, "4 positional arguments, at most 3 fit its schema"),
        ((np.ones(1), 1), {"k": (1, 2, 3)}, r"argument 'k' is int\[2\], got 3 values"),
        ((np.ones(1), 1), {"z": 1}, "no argument 'z' in its schema"),
        ((np.ones(1), 1), {"n": 1}, "argument 'n' is given twice"),
        ((np.ones(1), 1), {"d": "float3"}, "float3"),
    ],
)
def test_a_call_that_does_not_fit(args, kwargs, why):
    with pytest.raises(TypeError, match=why):
        SCHEMA.bind(args, kwargs)


def test_schemas_of_annotations():
    def f(x: lt.Tensor, y: lt.Tensor | None, xs: list[lt.Tensor], dims: tuple[int, ...] = (0,), *, s: complex = 2):
        pass

    f.__annotations__["return"] = tuple[lt.Tensor, lt.Tensor]
    text = "ns::f(Tensor x, Tensor? y, Tensor[] xs, int[] dims=[0], *, Scalar s=2) -> (Tensor, Tensor)"
    assert str(from_function("ns::f", f)) == text


def _bad(*args: lt.Tensor) -> lt.Tensor: ...
def _unsaid(x) -> lt.Tensor: ...
def _no_result(x: lt.Tensor): ...
def _odd(x: set[int]) -> lt.Tensor: ...
def _odd_result(x: lt.Tensor) -> int: ...


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (_bad, r"not supported: argument \*args"),
        (_unsaid, "argument 'x' has no annotation"),
        (_no_result, "its result has no annotation"),
        (_odd, "not supported: type"),
        (_odd_result, "not supported: a result of type"),
    ],
)
def test_annotations_that_are_no_schema(f, why):
    with pytest.raises((TypeError, NotImplementedError), match=why):
        lt.library.custom_op("ns::f")(f)
