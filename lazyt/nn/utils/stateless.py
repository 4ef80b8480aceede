"""A module called with other parameters than its own. As `torch.nn.utils.stateless`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytError
from lazyt.nn.state import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyt.nn.module import Module

__all__ = ["functional_call"]


def __dir__() -> list[str]:
    return sorted(__all__)


def _tensors(module: Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(path, table, name) of every parameter and buffer, shared ones under each of their paths."""
    for path, m in module.named_modules(remove_duplicate=False):
        for table in (m._parameters, m._buffers):
            for name, x in table.items():
                if x is not None:
                    yield joined(path, name), table, name


def functional_call(
    module: Module,
    parameters_and_buffers_dict: Mapping[str, Any] | tuple[Mapping[str, Any], ...],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with tensors from a dict, by path, in the place of its own; those stay as they are.

    The dict's tensors may be results of anything: gradients go to them. With `tie_weights`, a tensor that stands under
    several paths is replaced under all. `strict` wants every path. Raises LazytError for paths that are not there. As
    `torch.func.functional_call`.

    >>> import lazyt as lt
    >>> layer = lt.nn.Linear(2, 1, bias=False)
    >>> lt.nn.utils.stateless.functional_call(layer, {"weight": lt.ones((1, 2))}, (lt.ones((1, 2)),)).tolist()
    [[2.0]]
    """
    given: dict[str, Any] = {}
    many = parameters_and_buffers_dict
    for one in many if isinstance(many, tuple | list) else (many,):
        twice = given.keys() & one.keys()
        if twice:
            raise LazytError(f"functional_call: {sorted(twice)} are in several dicts")
        given.update(one)
    places: dict[str, list[tuple[dict[str, Any], str]]] = {}
    by_tensor: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for path, table, name in _tensors(module):
        group = by_tensor.setdefault(id(table[name]), []) if tie_weights else []
        group.append((table, name))
        places[path] = group
    unknown = [k for k in given if k not in places]
    absent = [k for k, group in places.items() if not any(places.get(g) is group for g in given)]
    problems = [f"unexpected keys {unknown}"] * bool(unknown) + [f"missing keys {absent}"] * bool(strict and absent)
    if problems:
        raise LazytError(f"functional_call of {type(module).__name__}: {'; '.join(problems)}")
    own = [(table, name, table[name]) for key in given for table, name in places[key]]
    try:
        for key, x in given.items():
            for table, name in places[key]:
                table[name] = x
        operands = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*operands, **(kwargs or {}))
    finally:
        for table, name, x in reversed(own):
            table[name] = x
