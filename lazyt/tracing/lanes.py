"""What must not happen while the function of a `vmap` is recorded: no value of one lane can be read.

And what the function of a `jit` did that its steps do not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.errors import AutogradError, SyncError
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


def in_lanes() -> bool:
    """Whether the function of a `vmap` is being recorded: what it computes must not be kept."""
    return any(isinstance(level, InLanes) for level in local.trace.syncs_forbidden)


def note_impure(what: str) -> None:
    """Told to the `jit` whose function is being called: what would not be done when its steps are taken again."""
    found = local.trace.impure
    if found is not None:
        found.append(f"{what} at {user_site()}")


def check_random() -> None:
    """AutogradError for a draw inside a vmap that was not told what lanes draw; told to the `jit` that it is in."""
    note_impure("it draws random numbers")
    for level in local.trace.syncs_forbidden:
        if isinstance(level, InLanes) and level.randomness == "error":
            raise AutogradError(
                f"vmap: the function draws random numbers inside vmap called at {level.site}; pass "
                "randomness='different' for numbers of each lane's own, or randomness='same' for one draw for all lanes"
            )
