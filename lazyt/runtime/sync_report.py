"""What a sync did: `lazyt.last_sync()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt import on_demand
from lazyt.tracing.printer import aligned, html_text, plural, site_text, time_text

if TYPE_CHECKING:
    from lazyt.inspect import kernels
    from lazyt.inspect.kernels import KernelView
    from lazyt.runtime.cache_miss import Why
    from lazyt.runtime.first_run import Stepwise
    from lazyt.runtime.plan import Plan
    from lazyt.tracing.call_site import Site
else:
    kernels = on_demand.module("lazyt.inspect.kernels")

# Kernels that the text of a report lists.
LISTED = 12


class SyncReport:
    """What the last sync of a thread did. Times are in seconds.

    `record_time` is from the trace's first operation to the sync, the user's own code between them included.

    >>> import lazyt as lt
    >>> lt.sync()
    >>> _ = float(lt.ones(3).sum())
    >>> report = lt.last_sync()
    >>> report.cause, report.steps, report.outputs
    ('float()', 2, 1)
    """

    # NOTE: defaults are the class's: one is made at every sync, and most of them stay as they are.
    plan_hit: bool = False
    why: str | Why = ""  # the plan was not a hit
    plans: int = 0  # that were new to the process
    stored: int = 0  # ... of which so many were read from disk
    compiles: int = 0
    kernels: int = 0
    launches: int = 0
    interpreted: int = 0  # steps that NumPy computed instead, with the same bits: the first runs of a small program
    plan_time: float = 0.0
    compile_time: float = 0.0
    run_time: float = 0.0
    in_place: int = 0  # results that were written where a value was that nobody holds any more
    superset: bool = False  # the plan computed more than was wanted
    plan: Plan | Stepwise | None = None  # the last that ran; a trace over several devices, or a long one, has several
    extents: tuple[int, ...] = ()  # those that it ran for
    parts: int = 0  # programs that a long trace was divided into; most share a plan

    def __init__(
        self, cause: str = "", site: Site | None = None, steps: int = 0, outputs: int = 0, record_time: float = 0.0
    ) -> None:
        self.cause = cause
        self.site = site
        self.steps = steps
        self.outputs = outputs
        self.record_time = record_time
        self.ran: dict[tuple[int, tuple[int, ...]], Plan | Stepwise] = {}  # by their id and the extents

    def add(self, plan: Plan | Stepwise, extents: tuple[int, ...]) -> None:
        """A plan that runs for these extents."""
        self.plan, self.extents = plan, extents
        self.ran[id(plan), extents] = plan

    def forget(self) -> None:
        """Nothing of what was added ran."""
        self.plan = None
        self.parts = 0
        self.ran.clear()

    @property
    def reason(self) -> str:
        """Why the plan was not a hit; '' if it was."""
        return self.why if isinstance(self.why, str) else self.why()

    @property
    def plan_kernels(self) -> list[KernelView]:
        """The kernels and library calls that ran, in order: `.title`, `.ir`, `.source()`, `.assembly()`.

        Those of a plan that several parts of a long trace share are listed once.
        """
        found: list[KernelView] = []
        for (_, extents), ran in self.ran.items():
            plan = ran.whole()
            bound = plan.executable.bound.get(extents)
            by_numpy: set[int] = getattr(ran, "interpreted", set())
            views = [] if bound is None else kernels.kernel_views(plan, bound)
            found += [v for v in views if not v.steps or not v.steps <= by_numpy]
        return found

    @property
    def fallbacks(self) -> list[str]:
        """What a GPU's plan did on the host, and waited for: each operation, its line, why it has no GPU form."""
        return [v.fallback for v in self.plan_kernels if v.fallback]

    def __str__(self) -> str:
        where = f"{self.cause} at {site_text(self.site)}"
        if self.plan is None:
            return f"last sync: {where}: {plural(self.steps, 'step')} recorded, and nobody held a result"
        recorded, planned = time_text(self.record_time), time_text(self.plan_time)
        compiled, ran = time_text(self.compile_time), time_text(self.run_time)
        new = f"{'read from disk' if self.stored and self.stored == self.plans else 'made'} in {planned}: {self.reason}"
        rows = [
            ("recorded", f"{plural(self.steps, 'step')} in {recorded}, your code between them included"),
            ("plan", f"known, found in {planned}" if self.plan_hit else new),
            ("compiled", f"{plural(self.compiles, 'kernel')} in {compiled}" if self.compiles else "nothing"),
            ("ran", f"{self._what_ran}, {ran}"),
        ]
        if self.parts:
            rows.insert(1, ("parts", f"{self.parts:,}, by {plural(len(self.ran), 'plan')}: a long trace is divided"))
        if self.superset:
            rows.append(("more", "the plan computed values that nobody holds any more (at most 5 % of the bytes)"))
        views = self.plan_kernels
        rows += [("on host", v.fallback) for v in views if v.fallback]
        lines = [v.line() for v in views[:LISTED]] + [f"... {len(views) - LISTED} more"] * (len(views) > LISTED)
        head = f"last sync: {where}, {plural(self.outputs, 'value')} computed"
        return "\n".join([head, *aligned(rows, "  "), *("  " + line for line in lines)])

    @property
    def _what_ran(self) -> str:
        kernels = f"{plural(self.kernels, 'kernel')} in {plural(self.launches, 'launch')}"
        if not self.interpreted:
            return kernels
        steps = f"{plural(self.interpreted, 'step')} interpreted by NumPy"
        return f"{steps}, {kernels}" if self.kernels else steps

    def __repr__(self) -> str:
        by_numpy = f"{plural(self.interpreted, 'step')} interpreted, " if self.interpreted else ""
        what = "nothing ran" if self.plan is None else "plan known" if self.plan_hit else f"plan made ({self.reason})"
        return (
            f"<SyncReport {self.cause} at {site_text(self.site)}: {plural(self.steps, 'step')}, {what}, "
            f"{by_numpy}{plural(self.kernels, 'kernel')}, {plural(self.compiles, 'compile')}>"
        )

    def _repr_html_(self) -> str:
        return html_text(str(self))
