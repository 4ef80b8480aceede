"""`lazyt.multiprocessing`: Python's `multiprocessing`, between whose processes tensors go as shared memory.

All names are Python's (Queue, SimpleQueue, Pipe, Process, Pool, Lock, get_context, ...). A tensor that is put into a
queue, sent through a pipe, or given to a process moves to shared memory (`Tensor.share_memory_`), and its descriptor is
sent: the other process has the same memory, and each sees what the other writes. What is pending is computed first.
The memory has no name: it is freed when the last process that holds it lets go or dies, by whatever signal. A sender
must live until what it sent is received.

A process may be forked after lazyt was used: the child starts threads of its own when it first computes. What was not
shared before a fork is a copy in the child. As `torch.multiprocessing`.

>>> import lazyt as lt, lazyt.multiprocessing as mp
>>> here, there = mp.Pipe()
>>> x = lt.zeros(3)
>>> here.send(x)
>>> y = there.recv()
>>> y += 1
>>> x.tolist()
[1.0, 1.0, 1.0]
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403  the same names in another place
from multiprocessing import reduction as _reduction
from multiprocessing.reduction import ForkingPickler as _ForkingPickler
from typing import Any as _Any

from lazyt.config import HOST as _HOST
from lazyt.errors import (
    AutogradError as _AutogradError,
    DeviceError as _DeviceError,
    NotSupportedError as _NotSupported,
)
from lazyt.ops import catalog as _catalog  # noqa: F401 - an operation of any family may come from another process
from lazyt.ops.definition import OPS as _OPS
from lazyt.runtime import shared_memory as _shared_memory
from lazyt.runtime.tensor import Tensor as _Tensor
from lazyt.tracing.record import record_view as _record_view

__all__ = list(_multiprocessing.__all__)

_NAMED = {op: name for name, op in _OPS.items()}


def _reduce(x: _Tensor) -> tuple[_Any, ...]:
    """How a tensor is sent: what makes it in the other process."""
    leaf = x.requires_grad and x.is_leaf
    if x.requires_grad and not leaf:
        raise _AutogradError(
            "multiprocessing: a tensor that requires grad and is no leaf cannot be sent to another process, because "
            "its graph stays here; send x.detach()"
        )
    if x.device != _HOST:
        return _moved, (x.detach().cpu(), str(x.device), leaf)
    shared = _shared_memory.share_memory(x)
    chain, v = [], x._view
    while v is not None:
        op: _Any = v.op
        if op in _NAMED:
            chain.append((_NAMED[op], v.statics, v.ints, v.offsets))
        elif op.differentiable:  # a view through `detach` is the same memory
            raise _NotSupported(
                f"multiprocessing: not supported: sending a view made by {op.name}, because it has no name that "
                "another process knows; send a copy: x.clone()"
            )
        v = v.parent
    data = shared.data
    descriptor = _reduction.DupFd(shared.segment.fd)
    return _received, (descriptor, data.nbytes, data.dtype, data.shape, tuple(reversed(chain)), leaf)


def _received(
    descriptor: _Any, nbytes: int, dtype: _Any, shape: tuple[int, ...], chain: tuple[_Any, ...], leaf: bool
) -> _Any:  # fmt: skip
    try:
        fd = descriptor.detach()
    except (OSError, EOFError) as e:
        raise _DeviceError(
            "multiprocessing: the process that sent this tensor has ended before it was received, and its memory is "
            "gone with it; a sender lives until its tensors are received"
        ) from e
    x = _shared_memory.attach(_shared_memory.Segment(nbytes, fd), dtype, shape)
    for name, statics, ints, offsets in chain:
        x = _record_view(_OPS[name], x, statics, ints, offsets)
    return x.requires_grad_() if leaf else x


def _moved(x: _Tensor, device: str, leaf: bool) -> _Tensor:
    out = x.to(device=device)
    return out.requires_grad_() if leaf else out


_ForkingPickler.register(_Tensor, _reduce)


def __dir__() -> list[str]:
    return sorted(__all__)
