"""The outcome of a run that overwrites inputs: whether it has overwritten any, and where the results are."""

from __future__ import annotations

from typing import Any

from lazyt.ir import dtypes, kernel as k


class Receipt:
    """The outcome of a run that overwrites inputs: once `written` is true, only its results are valid."""

    __slots__ = ("buffers", "donated", "flag", "waits")

    def __init__(self, waits: bool = False) -> None:
        """waits: whether the sync waits for the outcome of checks, and leaves everything as it was if one fails."""
        self.waits = waits
        self.flag: Any = None  # an array, or what is indexed like one
        self.buffers: list[Any] = []
        self.donated = 0  # how many inputs were overwritten

    @property
    def written(self) -> bool:
        return self.flag is not None and bool(self.flag[0])


# The last launch of a run that overwrites inputs: all before it is done.
WRITTEN = k.Kernel(
    1, 0, "outer", (k.Access(dtypes.int64, "1", True),), (), 0, (k.Const(1, dtypes.int64),),
    (k.Stage(False, (), (k.Store(0, 0),)),), "done",
)  # fmt: skip
