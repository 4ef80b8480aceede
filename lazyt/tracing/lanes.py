"""What must not happen while the function of a `vmap` or a `jit` is recorded: no value can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import AutogradError, NotSupportedError, SyncError
from lazyt.tracing.call_site import user_site
from lazyt.tracing.trace import local

if TYPE_CHECKING:
    from lazyt.tracing.call_site import Site

RANDOMNESS = ("error", "different", "same")


class InLanes:
    """Stands among a trace's `syncs_forbidden` while the function of a `vmap` is recorded."""

    def __init__(self, randomness: str, site: Site) -> None:
        self.randomness = randomness
        self.site = site

    def refusal(self, cause: str, site: object) -> SyncError:
        """The error of a sync."""
        return SyncError(
            f"vmap: the function reads a value (cause: {cause}, at {site}) inside vmap called at {self.site}, where it "
            "has one value a lane; choose by lt.where instead of `if`, or return it and read it outside"
        )


class InJit:
    """Stands among a trace's `syncs_forbidden` while the function of a `jit` is called."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def refusal(self, cause: str, site: object) -> SyncError:
        """The error of a sync, and of a value that is read."""
        return SyncError(
            f"jit: the function reads a value (cause: {cause}, at {site}) inside jit called at {self.site}, and what "
            "it does with it would be repeated for other values; choose by lt.where instead of `if`, or return it and "
            "read it outside"
        )


def check_read(cause: str) -> None:
    """SyncError for a computed value that the function of a `jit` reads."""
    for level in local.trace.syncs_forbidden:
        if isinstance(level, InJit):
            raise level.refusal(cause, user_site())


def check_random() -> None:
    """AutogradError for a draw inside a vmap that was not told what lanes draw, NotSupportedError inside a jit."""
    for level in local.trace.syncs_forbidden:
        if isinstance(level, InJit):
            raise NotSupportedError(
                f"not supported: random numbers drawn inside jit called at {level.site}, because each call would draw "
                "the same; draw them outside and pass them"
            )
        if isinstance(level, InLanes) and level.randomness == "error":
            raise AutogradError(
                f"vmap: the function draws random numbers inside vmap called at {level.site}; pass "
                "randomness='different' for numbers of each lane's own, or randomness='same' for one draw for all lanes"
            )
