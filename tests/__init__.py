"""The tests, in folders as lazyt's own; helpers of several files stand in `tests/support`, fixtures in conftest.py."""
