"""What is written to a result is written to what it was made of where it is in PyTorch, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt

COPIES = [
    "x.flip(0)", "torch.flip(x, (0, 1))", "torch.fliplr(x)", "x.fliplr()", "torch.flipud(x)", "torch.rot90(x)",
    "torch.rot90(x, 2)", "torch.rot90(x, 4, (0, 1))", "x.rot90(-1)", "torch.nn.functional.pad(x, (0, 0))",
    "torch.nn.functional.pad(x, (-1, 0))", "torch.diff(x, n=0)", "x.diff(n=0)", "torch.diag(x)", "x.T.flatten()",
    "x.T.reshape(-1)", "torch.conj(x + 1j)", "(x * 1).real",
]  # fmt: skip
VIEWS = [
    "x.diagonal()", "torch.diagonal(x)", "x.diagonal(offset=1, dim1=1, dim2=0)", "torch.linalg.diagonal(x)",
    "x.flatten()", "torch.flatten(x)", "torch.flatten(x[None], 1)", "x.conj()", "torch.conj(x)", "torch.real(x)",
    "x.real", "x.H", "x.mH", "x.adjoint()", "x.expand(1, 4, 4)", "x.expand(-1, 4)", "x.expand_as(x)",
    "torch.broadcast_to(x, (4, 4))", "torch.broadcast_tensors(x, x)[1]", "x.T.diagonal()[1:]",
]  # fmt: skip


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("text", [*COPIES, *VIEWS])
def test_a_write_reaches_the_base_where_it_does_in_pytorch(text: str, synced: bool, torch: Any) -> None:
    x = torch.arange(16.0).view(4, 4)
    if synced:
        lt.sync()
    eval(text, {"torch": torch, "x": x}).fill_(-7)
    assert bool((x == -7).any()) is (text in VIEWS)


@pytest.mark.parametrize(
    ("shape", "offset", "axes"),
    [((3, 3), 0, (0, 1)), ((3, 5), 1, (0, 1)), ((5, 3), -2, (1, 0)), ((3, 5), -7, (0, 1)), ((2, 3, 4), 1, (2, 0))],
)
def test_a_diagonal_is_written_through(shape: Any, offset: int, axes: Any) -> None:
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = lt.asarray(a.copy())
    want, found = a.diagonal(offset, *axes), lt.diagonal(x, offset, *axes)
    want.flags.writeable = True
    for d in (want, found):
        d[...] += 5
        d[..., 1:] *= 2
    a *= 3
    x *= 3
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(found.numpy(), want)


def test_a_diagonal_of_a_computed_value_is_read_as_it_is() -> None:
    x = lt.asarray(np.arange(24.0).reshape(2, 3, 4))
    found = [lt.diagonal(x, 1, 0, 2), x.mT.diagonal(0, 2, 1)[..., ::-1], lt.diagonal(x[:, 1:], axis1=1, axis2=2)[1]]
    a = x.numpy()
    want = [a.diagonal(1, 0, 2), a.mT.diagonal(0, 2, 1)[..., ::-1], a[:, 1:].diagonal(0, 1, 2)[1]]
    with lt.no_sync():
        for d, w in zip(found, want, strict=True):
            np.testing.assert_array_equal(d.numpy(), w)


def test_gradients_pass_through_a_written_diagonal(torch: Any) -> None:
    k = torch.ones(2, 2, requires_grad=True)
    c = k * 2
    c.diagonal().mul_(3)
    (c * c).sum().backward()
    assert k.grad.tolist() == [[72, 8], [8, 72]]


def test_an_expansion_needs_a_shape_that_fits(torch: Any) -> None:
    for shape in ((4,), (-1, 2, 2)):
        with pytest.raises(lt.ShapeError, match=r"expand: shape \(2, 2\) does not broadcast to"):
            torch.ones(2, 2).expand(*shape)


def test_a_view_is_one_or_an_error(torch: Any) -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    y = x.permute(1, 0, 2)
    assert not y.is_contiguous() and y.contiguous().is_contiguous() and y.contiguous().view(3, 8).shape == (3, 8)
    assert x.contiguous() is x and x[1:].is_contiguous() and x[:0].permute(1, 0, 2).is_contiguous()
    for part in (x[..., ::2], x.mT, torch.complex(x, x).real, torch.ones(3, 3).diagonal(), x[0, 0].expand(2, 4)):
        assert not part.is_contiguous() and part.contiguous().tolist() == part.tolist()
    for call in (lambda: y.view(3, 8), lambda: x.mT.view_as(x)):
        with pytest.raises(RuntimeError, match=r"view: a view of shape .* needs a copy here"):
            call()
    x.view(6, 4)[0] = -1
    assert x[0, 0].tolist() == [-1] * 4
    for z in (x.kthvalue(2, dim=1).values, torch.nn.MultiheadAttention(4, 2)(x, x, x)[0]):
        assert z.is_contiguous()
