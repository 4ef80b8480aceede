"""How many programs hypothesis draws: the same ones each time, or LAZYT_EXAMPLES new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("LAZYT_EXAMPLES", "0"))


def examples(number: int) -> settings:
    """So many examples of a test that may take long for each."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=EXAMPLES or number, derandomize=not EXAMPLES, deadline=None, suppress_health_check=slow
    )
