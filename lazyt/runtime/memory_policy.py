"""Policies of `lazyt.memory.budget`: a user's function says what becomes of each value that the backward reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import LazytError, NotSupportedError, SettingError
from lazyt.ir import graph as g
from lazyt.ir.symbolic import hint
from lazyt.tracing.printer import site_text

if TYPE_CHECKING:
    from lazyt.ir.passes.saved_values import SavedValue

PLAIN = (str, bytes, int, float, frozenset)
KEEP, RECOMPUTE, COMPRESS, OFFLOAD = "keep", "recompute", "compress", "offload"


class Saved(NamedTuple):
    """What a policy is told of a value that crosses from the forward pass to the backward pass."""

    operation: str  # the public operation that made it
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    line: str  # the user's line, as 'file:line'
    readers: tuple[str, ...]  # the operations whose gradients read it


class Policy:
    """A function of a `Saved`. Functions of one text and equal contents are the same: a lambda in a loop is made anew
    each turn, and is no other plan.
    """

    __slots__ = ("_key", "function")

    def __init__(self, function: Callable[[Saved], str | None]) -> None:
        self.function = function
        self._key = _key_of(function)

    def __call__(self, what: Saved) -> str | None:
        return self.function(what)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _key_of(function: Any) -> Any:
    """What is equal for functions that do the same, as far as it can be told."""
    try:
        if isinstance(function, FunctionType):
            contents = tuple(_content(c.cell_contents) for c in function.__closure__ or ())
            given = _content(function.__defaults__), _content(tuple((function.__kwdefaults__ or {}).items()))
            return function.__code__, id(function.__globals__), contents, given
        if isinstance(function, partial):
            given = _content(function.args), _content(tuple(sorted(function.keywords.items())))
            return _key_of(function.func), given
        hash(function)
    except (TypeError, ValueError):
        # NOTE: it holds something that may change, or a variable that has no value yet.
        return id(function)
    return function


def _content(x: Any) -> Any:
    """What a function holds: plain values are equal with their types, objects are themselves. TypeError for a list."""
    if isinstance(x, tuple):
        return tuple(map(_content, x))
    hash(x)
    return (type(x), x) if isinstance(x, PLAIN) else id(x)


def described(s: SavedValue) -> Saved:
    """A saved value for people."""
    origin = s.node.site
    named = isinstance(origin, g.Origin)
    readers = dict.fromkeys(r.site.name for r in s.readers if isinstance(r.site, g.Origin))
    return Saved(
        origin.name if named else s.node.op, tuple(hint(d) for d in s.node.shape), str(s.node.dtype),
        hint(s.nbytes), site_text(origin.site) if named else "", tuple(readers),
    )  # fmt: skip


def verdict_of(policies: Mapping[int, Policy], host: str) -> Callable[[SavedValue], str | None]:
    """The policies of steps, asked about what these save. host: the device, if its values do not move to the host."""

    def verdict(s: SavedValue) -> str | None:
        policy = policies.get(s.node.site.step) if isinstance(s.node.site, g.Origin) else None
        if policy is None:
            return None
        what = described(s)
        try:
            found = policy(what)
        except LazytError:
            raise
        except Exception as e:
            raise SettingError(f"memory.budget: the policy failed for {what}: {type(e).__name__}: {e}") from e
        if found == OFFLOAD and host:
            raise NotSupportedError(
                f"not supported: memory.budget's policy returned 'offload' for {what}, because values on {host!r} do "
                "not move to the host's memory; 'recompute' and 'compress' make room"
            )
        if found not in (None, KEEP, RECOMPUTE, COMPRESS, OFFLOAD):
            raise SettingError(
                f"memory.budget: the policy returned {found!r} for {what}; 'keep', 'recompute', 'compress', 'offload' "
                "or None"
            )
        if found == COMPRESS and (not isinstance(s.node.site, g.Origin) or s.node.site.draw is None):
            raise SettingError(
                f"memory.budget: the policy returned 'compress' for {what}, recorded outside of memory.compress"
            )
        return found

    return verdict
