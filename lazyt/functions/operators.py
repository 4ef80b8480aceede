"""The operators of Tensor, generated from the operation table, and the functions that are methods too.

One method an operator with the known case written out, because recording an operation must cost no more than NumPy's
dispatch: the step that followed last time is compared by identity, and taken.
"""

from __future__ import annotations

import functools
import types
from sys import _getframe
from typing import Any

from lazyt.functions.arithmetic import divmod as quotient_and_rest, pow as power, power_of
from lazyt.functions.dlpack import cuda_array_interface
from lazyt.functions.elementwise import imag_part, real_part, set_imag_part, set_real_part
from lazyt.functions.flat import Flat, set_flat
from lazyt.functions.host import ARRAYS, is_foreign, refuse_foreign
from lazyt.functions.manipulation import transpose
from lazyt.functions.methods import METHODS
from lazyt.ops.definition import OPS
from lazyt.runtime.tensor import Tensor
from lazyt.tracing import inplace, record as recording
from lazyt.tracing.call_cache import in_short
from lazyt.tracing.fast_paths import TAKE, bound, fill, guarded, record_comparison
from lazyt.tracing.inputs import bind_input
from lazyt.tracing.name_hints import attach_hints
from lazyt.tracing.program import INPUT
from lazyt.tracing.steps import hooks
from lazyt.tracing.trace import by_class, local
from lazyt.tracing.tracebacks import api_boundary, filter_traceback, filters_itself
from lazyt.tracing.write_cache import held_value, note_write, rewritten, target_slot

_BINARY = fill(
    """
def method(self, other):
    # NOTE: a call, behind which CPython looks at signals: not between the comparison with a step and taking it.
    t = type(other)
    tr = local.trace
    s = tr.pos.next
    if s.op is input_op and tr.nbytes < most and not tr.watched and t in plain:
        if self._slot is None:
            {bind_self}
        if t is Tensor and other._slot is None:
            {bind_other}
        s = tr.pos.next
    if s.op is op and s.{mine} is self._slot and s.ext is tr.ext:
        if t is Tensor:
            if s.{theirs} is other._slot:
                {take}
        elif s.{theirs} is t and s.low <= other <= s.high:
            tr.scalars[s.scalar_start] = other
            {take}
    if t is not Tensor and not operand(other):
        return NotImplemented
    if by_class and t is Tensor:
        self, other = by_class[0](self, other, _getframe(1))
    return record(op, {order})
""",
    bind_self=bound("self", 2), bind_other=bound("other", 2), take=TAKE,
)  # fmt: skip
_COMPARISON = _BINARY.replace("return record(op, {order})", "return compare(op, *{order})")
_UNARY = fill(
    """
def method(self):
    tr = local.trace
    s = tr.pos.next
    if s.op is input_op and tr.nbytes < most and not tr.watched and self._slot is None:
        {bind_self}
        s = tr.pos.next
    if s.op is op and s.a is self._slot and s.ext is tr.ext:
        {take}
    return record(op, (self,))
""",
    bind_self=bound("self", 2), take=TAKE,
)  # fmt: skip
_INPLACE = """
def method(self, other):
    tr = local.trace
    start = tr.pos
    s = start.next
    c = s.call
    if c.f is op and rewritten(tr, c, s, self, other, True):
        return self
    if not written(other):
        return NotImplemented
    ext, before = tr.ext, (target_slot(tr, self), self._view, other, held_value(other))
    record_inplace(op, self, (other,))
    note_write(op, tr, start, ext, self, *before)
    return self
"""


_OPERANDS = (Tensor, float, int, complex, list, tuple, *ARRAYS)


def _is_operand(x: Any) -> bool:
    # NOTE: a subclass of NumPy's is asked next, for its own reflected operator.
    return isinstance(x, _OPERANDS) and not is_foreign(x)


def _is_written(x: Any) -> bool:
    """Whether this is an operand of an in-place operator; NotSupportedError for a subclass of NumPy's arrays."""
    refuse_foreign(x)
    return isinstance(x, _OPERANDS)


@functools.cache
def _code(template: str, parts: tuple[tuple[str, str], ...]) -> types.CodeType:
    return compile(guarded(template.format(**dict(parts))), "<lazyt operator>", "exec")


def _attach(method: str, op_name: str, template: str, **parts: str) -> None:
    # NOTE: host data would be met before the tensor where it stands before it.
    plain = frozenset((Tensor, *recording.SCALARS))
    space: dict[str, Any] = {
        "plain": plain,
        "__name__": __name__, "local": local, "op": OPS[op_name], "Tensor": Tensor, "made": hooks.made,
        "input_op": INPUT, "bind_input": bind_input, "slot_of": recording.slot_of, "most": recording.MAX_BYTES,
        "record": recording.record, "compare": record_comparison, "operand": _is_operand, "written": _is_written,
        "by_class": by_class, "_getframe": _getframe,
        "record_inplace": inplace.record_inplace, "rewritten": rewritten, "target_slot": target_slot,
        "held_value": held_value, "note_write": note_write, "filter_traceback": filter_traceback,
    }  # fmt: skip
    exec(_code(template, tuple(parts.items())), space)
    f = space["method"]
    f.__code__ = f.__code__.replace(co_name=method, co_qualname=method, co_filename=f"<lazyt {method}>")
    f.__name__ = f.__qualname__ = method
    f.__module__, f.__doc__ = __name__, f"Record `{op_name}`."
    setattr(Tensor, method, filters_itself(f))


OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}


def attach_operators() -> None:
    """Give Tensor its operators, from the operation table."""
    for name, op in OPERATORS.items():
        _attach(f"__{name}__", op, _BINARY, mine="a", theirs="b", order="(self, other)")
        _attach(f"__r{name}__", op, _BINARY, mine="b", theirs="a", order="(other, self)")
        _attach(f"__i{name}__", op, _INPLACE)
    for name, op in COMPARISONS.items():
        _attach(f"__{name}__", op, _COMPARISON, mine="a", theirs="b", order="(self, other)")
    for name, op in UNARY.items():
        _attach(f"__{name}__", op, _UNARY)
    _attach_pow()


def _attach_pow() -> None:
    """Powers by -1, 0.5, 1, 2 and 3 are other operations (see arithmetic.pow), so `**` goes through it; and divmod."""

    def forward(self: Tensor, other: Any) -> Any:
        if by_class and isinstance(other, Tensor):
            self, other = by_class[0](self, other, _getframe(1))
        return power(self, other) if _is_operand(other) else NotImplemented

    def reflected(self: Tensor, other: Any) -> Any:
        return power(other, self) if _is_operand(other) else NotImplemented

    def pair(self: Tensor, other: Any) -> Any:
        return quotient_and_rest(self, other) if _is_operand(other) else NotImplemented

    def reflected_pair(self: Tensor, other: Any) -> Any:
        return quotient_and_rest(other, self) if _is_operand(other) else NotImplemented

    def update(self: Tensor, other: Any) -> Any:
        if not _is_written(other):
            return NotImplemented
        op, operands = power_of(self, other)
        return inplace.record_inplace(op, self, operands[1:])

    methods = {"pow": forward, "ipow": update, "rpow": reflected, "divmod": pair, "rdivmod": reflected_pair}
    for name, f in ((f"__{n}__", f) for n, f in methods.items()):
        setattr(Tensor, name, api_boundary(f))


def attach_methods() -> None:
    """Give Tensor the functions that are methods too."""
    for name, f in METHODS.items():
        if not hasattr(Tensor, name):
            setattr(Tensor, name, in_short(name, f, f))
    Tensor.T = property(in_short("transpose", transpose, transpose), doc="The transpose: all axes reversed.")  # type: ignore[attr-defined]
    Tensor.real = property(real_part, set_real_part, doc="The real part, as a view.")  # type: ignore[attr-defined]
    Tensor.imag = property(imag_part, set_imag_part, doc="The imaginary part, as a view.")  # type: ignore[attr-defined]
    Tensor.flat = property(Flat, set_flat, doc="The elements one after another: `lazyt.functions.flat.Flat`.")  # type: ignore[attr-defined]
    Tensor.mT = property(lambda self: self.swapaxes(-1, -2), doc="The last two axes swapped.")  # type: ignore[attr-defined]
    Tensor.__cuda_array_interface__ = property(cuda_array_interface)  # type: ignore[attr-defined]
    attach_hints(Tensor)
