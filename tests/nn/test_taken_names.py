"""A name of a module is a parameter's, a buffer's, a child's or another attribute's: of one of them."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt

KINDS: dict[str, tuple[str, Any]] = {
    "parameter": ("register_parameter", lambda: lt.nn.Parameter(lt.ones(1))),
    "buffer": ("register_buffer", lambda: lt.ones(1)),
    "child": ("add_module", lambda: lt.nn.Linear(1, 1)),
    "module": ("register_module", lambda: lt.nn.Linear(1, 1)),
}
ALIKE = {frozenset(["child", "module"])}


def register(m: Any, kind: str, value: Any) -> None:
    getattr(m, KINDS[kind][0])("x", value)


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_a_name_is_taken_once(first: str, second: str, none: bool) -> None:
    m, value = lt.nn.Module(), None if none else KINDS[first][1]()
    register(m, first, value)
    new = KINDS[second][1]()
    if first == second or frozenset([first, second]) in ALIKE:
        register(m, second, new)
        assert m.x is new
        return
    for given in (new, None):
        with pytest.raises(KeyError, match=r"^Module: attribute 'x' is there already$"):
            register(m, second, given)
    assert m.x is value and sum("x" in table for table in (m._parameters, m._buffers, m._modules)) == 1
    del m.x
    register(m, second, new)
    assert m.x is new


@pytest.mark.parametrize("kind", KINDS)
def test_another_attribute_is_in_the_way(kind: str) -> None:
    m = lt.nn.Module()
    m.x = 3
    with pytest.raises(KeyError, match="attribute 'x' is there already"):
        register(m, kind, None)
    del m.x
    register(m, kind, KINDS[kind][1]())
