"""`python -m tests.support.fuzz fuzz|replay|soak`: as `python -m lazyt.testing`, with further kinds of programs."""

from __future__ import annotations

import sys

from lazyt.testing.__main__ import main
from tests.support.fuzz import (  # noqa: F401 - they register their kinds
    feature_pairs,
    hook_programs,
    long,
    loops,
    networks,
    operation_pairs,
    training,
)

if __name__ == "__main__":
    sys.exit(main())
