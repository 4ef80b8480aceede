"""Layers that multiply by a matrix."""

from tests.support.torch_golden import Case

CASES = [
    Case("linear", lambda t: t.nn.Linear(4, 3), ((5, 4),)),
    Case("linear without bias", lambda t: t.nn.Linear(4, 3, bias=False), ((2, 5, 4),)),
    Case("linear function", lambda t: t.nn.functional.linear, ((5, 4), (3, 4), (3,))),
]
