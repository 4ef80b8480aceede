"""The derivative table: what every primitive and every library call does to cotangents.

Rules are written in builder primitives only, so that derivatives are differentiable again. A name is either
in one of the tables of rules or in NONDIFFERENTIABLE, with the reason; a test keeps it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.autograd.rules.attention import ATTENTION_VJP
from lazyt.autograd.rules.elementwise import ELEMENTWISE_NONDIFFERENTIABLE, ELEMENTWISE_VJP, LIBRARY_VJP
from lazyt.autograd.rules.fft import FFT_VJP
from lazyt.autograd.rules.linalg import LINALG_NONDIFFERENTIABLE, LINALG_VJP
from lazyt.autograd.rules.movement import MOVEMENT_VJP
from lazyt.autograd.rules.reduction import REDUCTION_VJP, SCAN_VJP

if TYPE_CHECKING:
    from lazyt.autograd.rules.formula import OpaqueRule, Rule

# primitive -> rule(b, node, cotangent). `opaque` and `item` are the engine's own: see OPAQUE_VJP.
VJP: dict[str, Rule] = {
    **ELEMENTWISE_VJP,
    **MOVEMENT_VJP,
    **REDUCTION_VJP,
    "track": lambda b, n, ct: (ct,),
    "known": lambda b, n, ct: (ct, None),
}

# opaque function -> rule(b, call, one cotangent an output or None)
OPAQUE_VJP: dict[str, OpaqueRule] = {**LIBRARY_VJP, **SCAN_VJP, **LINALG_VJP, **FFT_VJP, **ATTENTION_VJP}

_SOURCE = "a source: it has no operands"
_POSITION = "its result is a position or a truth, not a number that varies"

# primitive or opaque function -> why no cotangent passes through it
NONDIFFERENTIABLE: dict[str, str] = {
    **ELEMENTWISE_NONDIFFERENTIABLE,
    **LINALG_NONDIFFERENTIABLE,
    "call": "a function of NumPy's: recording it refuses operands that ask for a gradient",
    **dict.fromkeys(("leaf", "scalar", "constant", "extent", "iota"), _SOURCE),
    **dict.fromkeys(("any", "all", "argmax", "argmin", "argsort", "topk"), _POSITION),
    **dict.fromkeys(("isin", "searchsorted", "position"), _POSITION),
    **dict.fromkeys(("packbits", "unpackbits"), "bits are no numbers that vary"),
    "frexp": "recording it refuses operands that ask for a gradient",
    "stop": "what it is for: reverse mode takes it as a constant",
}
