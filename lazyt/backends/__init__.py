"""Backends: kinds of devices. `lt.backends.names()` lists them, plugins that are installed among them.

`docs/backends.md` is the guide to writing one.

>>> import lazyt as lt
>>> lt.backends.names()[:2], "cpu" in lt.backends.available()
(['cpu', 'cuda'], True)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.backends.interface import (
        INTERFACE_VERSION as INTERFACE_VERSION,
        Backend as Backend,
        Capabilities as Capabilities,
        Event as Event,
        Properties as Properties,
        Span as Span,
        Stream as Stream,
    )
    from lazyt.backends.plugins import plugins_installed as plugins_installed
    from lazyt.backends.registry import (
        available as available,
        load as load,
        names as names,
        register as register,
        unregister as unregister,
    )
    from lazyt.backends.small.arguments import KernelArguments as KernelArguments
    from lazyt.backends.small.backend import SmallBackend as SmallBackend
    from lazyt.backends.small.memory import Pending as Pending
    from lazyt.backends.small.streams import StreamedBackend as StreamedBackend, ThreadStream as ThreadStream

# Each name and its module, loaded when somebody asks: lazyt's own modules import this package first.
_PLACES = {
    "INTERFACE_VERSION": "interface",
    "Backend": "interface",
    "Capabilities": "interface",
    "Event": "interface",
    "KernelArguments": "small.arguments",
    "Pending": "small.memory",
    "Properties": "interface",
    "SmallBackend": "small.backend",
    "Span": "interface",
    "Stream": "interface",
    "StreamedBackend": "small.streams",
    "ThreadStream": "small.streams",
    "available": "registry",
    "load": "registry",
    "names": "registry",
    "plugins_installed": "plugins",
    "register": "registry",
    "unregister": "registry",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'lazyt.backends' has no attribute {name!r}", name=name)
    module = import_module(f"lazyt.backends.{_PLACES[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
