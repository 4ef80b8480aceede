"""Siblings: groups that read the same values as another value does, over the same axes.

A group of a long program has thousands of others beside it. So it is listed under each value that it is computed from
and each form that it has, and the newest sibling of a value is found without a search.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from lazyt.ir.graph import Node
    from lazyt.ir.passes.fusion_result import Group
    from lazyt.ir.passes.index_maps import AxisVar
    from lazyt.ir.symbolic import Dim, Scope

    # ('map', piece, extents) of a value that a group may store, (lanes, piece, outer axes, extents) of one that it may
    # reduce.
    Form = tuple[str | int | Dim, ...]

# The operations of a group, and the values that it stores.
MAX_GROUP = 1024
MAX_ROOTS = 24
FREE = frozenset({"constant", "scalar", "extent", "iota"})
# Nodes with more operands than this are not searched.
WIDE = 64

_number = attrgetter("number")


def is_one(a: AxisVar) -> bool:
    """Whether an axis has one element always."""
    return isinstance(a.extent, int) and a.extent == 1


def has_capacity(group: Group) -> bool:
    """Whether a group may store one value more. NOTE: a full group stays full."""
    return group.size < MAX_GROUP and len(group.roots) < MAX_ROOTS


def made_from(n: Node, spread: bool = True) -> set[Node]:
    """The values that n is computed from, three steps back; sources that cost nothing do not count.

    Nor do the parts of a value with many parts: all its readers would be examined for each of them. `spread`: whether
    such sources count where they are spread over an array.
    """
    out: set[Node] = set()
    layer = {n}
    for _ in range(3):
        layer = {x for y in layer if len(y.operands) <= WIDE for x in y.operands if not _is_free(x, spread)}
        out |= layer
    return out


def _is_free(n: Node, spread: bool) -> bool:
    while not spread and n.op in ("expand", "reshape"):
        n = n.operands[0]
    return n.op in FREE


class Siblings:
    """Groups by the values that they are made from and by their forms.

    What is `packed` of a step has siblings of that step, and none by numbers that are spread over both (`made_from`): a
    kernel that packs arrays of several steps waits for the last of them, and keeps them all until then.
    """

    def __init__(self, scope: Scope | None, packed: Container[Node] = ()) -> None:
        self.scope, self.packed = scope, packed
        self._packed_by: dict[int, Node] = {}  # the first that was met of what is packed of each step
        self.groups: dict[tuple[Node, Form], list[Group]] = {}  # ascending in their numbers
        self._near: dict[Node, set[Node]] = {}
        self.forms: dict[Group, tuple[Form, ...]] = {}  # the current forms: entries under other forms are stale

    def join(self, group: Group, n: Node) -> None:
        """n is stored or reduced by a group."""
        near = self._made_from(n)
        self._list(group, near - group.near, self.forms.get(group) or self._forms(group))
        group.near |= near

    def reform(self, group: Group) -> None:
        """A group may have other axes than before."""
        forms = self._forms(group)
        if forms != self.forms.get(group):
            self._list(group, group.near, forms)

    def newest(
        self, n: Node, form: Form, least: int, but: Container[Group], takes: Callable[[Group], bool]
    ) -> Group | None:  # fmt: skip
        """The newest group of a form that is made from what n is made from, has capacity, and at least such a number.

        None of those in `but`, and one that takes it.
        """
        form = self._normal(form)
        found: Group | None = None
        for x in self._made_from(n):
            listed = self.groups.get((x, form), ())
            i = len(listed) - 1
            while i >= 0 and (group := listed[i]).number >= least:
                if not (has_capacity(group) and form in self.forms[group]):
                    del listed[i]  # type: ignore[union-attr]
                elif group not in but and takes(group):
                    least, found = group.number + 1, group
                i -= 1
        return found

    def _made_from(self, n: Node) -> set[Node]:
        found = self._near.get(n)
        if found is None:
            found = self._near[n] = made_from(n, n not in self.packed)
            if n in self.packed:
                found.add(self._packed_by.setdefault(n.site.step, n))
        return found

    def _list(self, group: Group, near: Iterable[Node], forms: tuple[Form, ...]) -> None:
        self.forms[group] = forms
        for n in near:
            for form in forms:
                listed = self.groups.setdefault((n, form), [])
                if not listed or listed[-1].number < group.number:
                    listed.append(group)
                elif listed[-1] is not group:
                    insort(listed, group, key=_number)

    def _forms(self, group: Group) -> tuple[Form, ...]:
        """The forms with which a group may store n, or reduce it, at each of its points."""
        outer = self._normal(tuple(a.extent for a in group.outer))
        rows = self._normal(tuple(a.extent for a in group.rows))
        piece = group.piece
        forms: dict[Form, None] = {("map", piece, *outer, *rows): None, ("map", piece, *outer): None}
        if all(is_one(a) for a in group.outer):
            forms["map", piece] = None
        if rows:
            forms[group.vector, piece, len(outer), *outer, *rows] = None
        return tuple(forms)

    def _normal(self, form: Form) -> Form:
        """Extents, each replaced by its normal form."""
        scope = self.scope
        return form if scope is None else tuple(x if isinstance(x, str | int) else scope.normal(x) for x in form)
