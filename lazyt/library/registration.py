"""Tables of what is registered, where, and until when; and the names that registrations give."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lazyt.backends import registry as backends
from lazyt.errors import LazytError
from lazyt.library.scope import Registered, in_scope, on_exit, outside_scopes
from lazyt.ops import catalog
from lazyt.ops.definition import OPS
from lazyt.tracing.call_site import user_site

if TYPE_CHECKING:
    from collections.abc import Iterator


class RegistrationError(LazytError, RuntimeError):
    """What is registered twice, or for something that is not there."""


# Kinds of devices for which operations without a kernel run by that for the CPU.
FALLBACKS: dict[str, Registered] = {}
# How often operations fell back to the CPU, by name and kind of device.
counts: Counter[tuple[str, str]] = Counter()


# The tables that have something, which live as long as the process.
_tables: dict[int, dict[Any, Any]] = {}
# What each plugin registers while it is loaded, by table and key: it goes with the backend, and comes with it again.
_owned: dict[str, dict[tuple[int, Any], tuple[dict[Any, Any], Any, Any]]] = {}


def put(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Put something into a table, for the plugin that is loaded meanwhile, if one is."""
    table[key] = value
    _tables[id(table)] = table
    if owner := backends.loading.name:
        _owned.setdefault(owner, {})[id(table), key] = table, key, value


def has_put(table: dict[Any, Any], key: Any) -> bool:
    """Whether the plugin that is loaded now put that there, perhaps before it was removed: it may put another."""
    return (id(table), key) in _owned.get(backends.loading.name, ())


def forget_backend(kind: str) -> None:
    """Forget what is registered for a backend, which is to be removed, and what its plugin registered."""
    for table in _tables.values():
        for key in [k for k in table if k == kind or (isinstance(k, tuple) and kind in k[1:])]:
            del table[key]
    for table, key, value in _owned.get(kind, {}).values():
        if table.get(key) is value:
            del table[key]


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """A plugin is loaded outside of scopes, and has what its modules registered: they are imported once."""
    for table, key, value in _owned.get(name, {}).values():
        table.setdefault(key, value)
    with outside_scopes():
        yield


backends.before_removing.append(forget_backend)
backends.around_loading.append(_loading)


def here() -> str:
    """The user's line."""
    return str(user_site())


def enter(table: dict[Any, Any], key: Any, value: Registered, what: str) -> None:
    """Put something into a table until the scope ends; RegistrationError if there is one, but in a scope.

    What the same line registers again takes the place of the old one: a module or a cell is run again.
    """
    old = table.get(key)
    if old is not None and old.site != value.site and not in_scope() and not has_put(table, key):
        raise RegistrationError(
            f"{what} is registered already, at {old.site}; it was registered again at {value.site}. To replace it for "
            "some time, register it in `with lazyt.library.scoped():`"
        )
    put(table, key, value)

    def undo() -> None:
        if old is None:
            table.pop(key, None)  # its backend may have been removed
        else:
            table[key] = old

    on_exit(undo)


def own_name(op: Any) -> str:
    """The name of an operation of lazyt's: of itself, `lt::name`, or its function; '' if it is none."""
    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    for prefix in ("lt::", "lazyt::"):
        name = name.removeprefix(prefix)
    assert catalog.__all__, "which fills OPS with all operations"
    return name if "::" not in name and name in OPS else ""


def backend_of(name: Any, what: str) -> str:
    """The kind of device that a backend's name means; ValueError for one that nobody has."""
    if isinstance(name, str) and name in backends.names():
        return name
    known = ", ".join(map(repr, backends.names()))
    raise RegistrationError(f"{what}: no backend {name!r}; there are {known}")


def check_language(backend: str | None, language: str) -> None:
    """RegistrationError unless a backend compiles sources of users' kernels in a language."""
    if backend is None:
        raise RegistrationError(f"impl: a kernel in {language} is for one backend; name it")
    taken = backends.get(backend).languages
    if language not in taken:
        known = ", ".join(taken) or "no source"
        raise RegistrationError(f"impl: backend {backend!r} compiles no {language}; it compiles {known}")
