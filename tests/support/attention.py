"""Attention and its gradients by lazyt and by NumPy in float64, of several sizes and masks."""

from __future__ import annotations

import numpy as np

import lazyt as lt
from lazyt.backends.common.attention import FEATURES
from lazyt.ir.passes.schedule import AttentionCall
from lazyt.nn import functional as F
from tests.support.arrays import normal

# Queries, keys, features of these, features of values.
SIZES = {
    "usual": (64, 64, 32, 32),
    "odd": (37, 53, 7, 5),
    "few queries": (9, 200, 16, 16),
    "across": (150, 90, 64, 40),
    "several units": (700, 300, 24, 72),
    "one key": (20, 1, 8, 8),
    "widest": (70, 140, FEATURES, FEATURES),
}


def operands(size, batch=(2, 3), dtype="float32"):
    t, s, d, e = SIZES[size]
    shapes = (*batch, t, d), (*batch, s, d), (*batch, s, e), (*batch, t, e)
    return [normal(*x, seed=i, dtype=dtype) for i, x in enumerate(shapes)]


def mask_of(kind, size, batch=(2, 3)):
    t, s, _, _ = SIZES[size]
    rng = np.random.default_rng(9)
    match kind:
        case "bool":
            seen = rng.random((t, s)) < 0.6
            seen[:, 0] = True
            return seen
        case "added":
            return rng.standard_normal((*batch, t, s)).astype("float32")
        case "a batch":
            return rng.standard_normal((batch[0], 1, t, s)).astype("float32")
        case "keys":
            seen = rng.random((batch[0], 1, 1, s)) < 0.7
            seen[..., 0] = True
            return seen
        case "queries":
            return rng.standard_normal((t, 1)).astype("float32")
    return None


def results(q, k, v, ct, mask=None, asks=True, **how):
    """Attention, and its gradients by all operands; and how many calls there were."""
    leaves = [lt.tensor(x, requires_grad=asks) for x in (q, k, v)]
    if mask is not None:
        leaves.append(lt.tensor(mask, requires_grad=asks and mask.dtype != bool))
        how["attn_mask"] = leaves[-1]
    y = F.scaled_dot_product_attention(*leaves[:3], **how)
    if asks:
        lt.sum(y * lt.asarray(ct)).backward()
    lt.sync()
    calls = sum(isinstance(c, AttentionCall) for c in lt.last_sync().plan.schedule.launches)
    found = [y, *(x.grad for x in leaves if x.grad is not None)]
    return [np.array(x.detach().numpy()) for x in found], calls


def close(got, want, dtype="float32", factor=100):
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        scale = float(np.nanmax(np.abs(y), initial=1.0))
        np.testing.assert_allclose(x, y, rtol=0, atol=factor * float(np.finfo(dtype).eps) * scale)


def exact(q, k, v, ct, mask=None, is_causal=False, scale=None):
    """The same by NumPy in float64."""
    q, k, v, ct = (x.astype("float64") for x in (q, k, v, ct))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = q @ np.swapaxes(k, -1, -2) * scale
    if is_causal:
        s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    top = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(top == -np.inf, 0, top))
    w /= np.where(top == -np.inf, 1, w.sum(-1, keepdims=True))  # a row without keys is 0
    p = ct @ np.swapaxes(v, -1, -2)
    ds = w * (p - (w * p).sum(-1, keepdims=True))
    out = [w @ v, ds @ k * scale, np.swapaxes(ds, -1, -2) @ q * scale, np.swapaxes(w, -1, -2) @ ct]
    if mask is not None and mask.dtype != bool:
        whole = (1,) * (ds.ndim - mask.ndim) + mask.shape
        axes = tuple(i for i, (a, b) in enumerate(zip(whole, ds.shape, strict=True)) if a != b)
        out.append(ds.sum(axes, keepdims=True).reshape(mask.shape))
    return out
