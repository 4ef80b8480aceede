"""Calls whose results' dtypes under autocast are compared with PyTorch's: (name, PyTorch's text, lazyt's or None).

`a(...)` is an activation of a shape, float32 or in the lower precision, `f(...)` float32, `n(...)` integers of 0 and 1,
`spd(n)` a positive definite matrix. `t` is the library, `F` its `nn.functional`, `nn` its layers.
"""

from __future__ import annotations

_PLAIN = """
t.matmul(a(3, 4), f(4, 2))
t.matmul(a(3, 4), f(4))
t.matmul(a(2, 3, 4), f(2, 4, 2))
a(3, 4) @ f(4, 2)
t.einsum("ij,jk->ik", a(3, 4), f(4, 2))
t.outer(a(3), f(3))
t.kron(a(2, 2), f(2, 2))
F.linear(a(3, 4), f(2, 4), f(2))
F.conv1d(a(1, 2, 5), f(3, 2, 3), f(3))
F.conv2d(a(1, 2, 5, 5), f(3, 2, 3, 3), f(3))
F.conv2d(a(1, 2, 5, 5), f(3, 2, 3, 3), None, 1, "same")
F.conv3d(a(1, 2, 3, 3, 3), f(3, 2, 2, 2, 2))
F.conv_tbc(a(5, 1, 2), f(3, 2, 3), f(3), 1)
F.conv_transpose1d(a(1, 2, 5), f(2, 3, 3))
F.conv_transpose2d(a(1, 2, 5, 5), f(2, 3, 3, 3), f(3))
F.conv_transpose3d(a(1, 2, 3, 3, 3), f(2, 3, 2, 2, 2))
F.prelu(a(2, 3), f(3))
F.scaled_dot_product_attention(a(1, 3, 4), a(1, 3, 4), a(1, 3, 4))
F.scaled_dot_product_attention(a(1, 3, 4), a(1, 3, 4), f(1, 3, 4), f(3, 3))
F.relu(a(3))
F.gelu(a(3))
F.silu(a(3))
F.softplus(a(3))
F.softmax(a(3, 4), dim=-1)
F.softmax(a(3, 4), dim=-1, dtype=t.float32)
F.log_softmax(a(3, 4), dim=-1)
F.batch_norm(a(2, 3, 4), f(3), f(3), f(3), f(3))
F.batch_norm(a(2, 3, 4), None, None, f(3), f(3), True)
F.layer_norm(a(2, 4), (4,), f(4), f(4))
F.group_norm(a(2, 4, 3), 2, f(4), f(4))
F.instance_norm(a(2, 4, 3))
F.rms_norm(a(2, 4), (4,), f(4))
F.mse_loss(a(3), f(3))
F.l1_loss(a(3), f(3))
F.smooth_l1_loss(a(3), f(3))
F.huber_loss(a(3), f(3))
F.kl_div(a(3), f(3))
F.cross_entropy(a(3, 4), n(3))
F.cross_entropy(a(3, 4), n(3), label_smoothing=0.1, reduction="none")
F.nll_loss(a(3, 4), n(3))
F.nll_loss(a(3, 4, 2), n(3, 2))
F.binary_cross_entropy(a(3), f(3))
F.binary_cross_entropy_with_logits(a(3), f(3))
F.poisson_nll_loss(a(3), f(3))
F.gaussian_nll_loss(a(3), f(3), f(3))
F.hinge_embedding_loss(a(3), f(3))
F.soft_margin_loss(a(3), f(3))
F.margin_ranking_loss(a(3), a(3), f(3))
F.cosine_embedding_loss(a(3, 4), a(3, 4), f(3))
F.multilabel_margin_loss(a(3, 4), n(3, 4))
F.multi_margin_loss(a(3, 4), n(3))
F.multilabel_soft_margin_loss(a(3, 4), f(3, 4))
F.triplet_margin_loss(a(3, 4), a(3, 4), a(3, 4))
F.ctc_loss(a(5, 1, 4), 1 + n(1, 2), 5 + 0 * n(1), 2 + 0 * n(1))
F.cosine_similarity(a(3, 4), a(3, 4))
F.pairwise_distance(a(3, 4), a(3, 4))
F.pdist(f(3, 4))
t.cdist(a(3, 4), a(2, 4))
F.normalize(a(3, 4))
F.pad(a(1, 2, 5), (1, 1), "reflect")
F.pad(a(1, 2, 5, 5), (1, 1, 1, 1), "replicate")
F.pad(a(1, 2, 5), (1, 1), "circular")
F.pad(a(1, 2, 5), (1, 1))
F.avg_pool2d(a(1, 2, 4, 4), 2)
F.avg_pool3d(a(1, 2, 4, 4, 4), 2)
F.max_pool2d(a(1, 2, 4, 4), 2)
F.max_pool3d(a(1, 2, 4, 4, 4), 2)
F.adaptive_avg_pool2d(a(1, 2, 4, 4), 2)
F.adaptive_avg_pool3d(a(1, 2, 4, 4, 4), 2)
F.adaptive_max_pool2d(a(1, 2, 4, 4), 2)
F.adaptive_max_pool3d(a(1, 2, 4, 4, 4), 2)
F.fractional_max_pool2d(a(1, 2, 6, 6), 2, 3)
F.max_unpool1d(a(1, 2, 2), 2 * n(1, 2, 2), 2)
F.max_unpool2d(a(1, 1, 1, 1), n(1, 1, 1, 1), 2)
F.grid_sample(f(1, 1, 3, 3), f(1, 2, 2, 2))
F.interpolate(a(1, 1, 4), 8)
F.interpolate(a(1, 1, 4, 4), (8, 8), mode="bilinear")
F.bilinear(a(2, 3), a(2, 4), f(5, 3, 4))
F.embedding(n(3), f(4, 2))
t.exp(a(3))
t.log(a(3))
t.pow(a(3), 2)
a(3) ** 0.5
t.rsqrt(a(3))
t.sum(a(3, 4))
t.prod(a(3))
t.mean(a(3, 4))
t.logsumexp(a(3, 4), -1)
t.cumsum(a(3), 0)
t.cumprod(a(3), 0)
t.trace(a(3, 3))
t.quantile(a(5), 0.5)
t.nanquantile(a(5), 0.5)
t.stack([a(3), f(3)])
t.concatenate([a(3), f(3)])
t.atan2(a(3), f(3))
a(3) + f(3)
a(3) * 2.0
t.where(n(3) > 0, a(3), a(3))
t.fft.fft(a(4))
t.fft.rfft2(a(4, 4))
t.fft.irfft(a(4))
t.linalg.inv(spd(3))
t.linalg.cholesky(spd(3))
t.linalg.solve(spd(3), f(3))
t.linalg.eigvalsh(spd(3))
t.linalg.svdvals(a(3, 4))
t.linalg.qr(a(3, 3))[0]
t.linalg.pinv(a(3, 3))
t.linalg.matrix_rank(a(3, 3))
t.linalg.cond(spd(3))
t.linalg.multi_dot([a(2, 3), f(3, 4), f(4, 2)])
t.linalg.vector_norm(a(3))
t.linalg.matrix_norm(a(3, 3))
nn.Linear(3, 2)(a(4, 3))
nn.LayerNorm(3)(a(4, 3))
nn.BatchNorm1d(3)(a(4, 3))
nn.LSTM(3, 2)(a(4, 1, 3))[0]
nn.LSTM(3, 2)(a(4, 1, 3))[1][1]
nn.GRU(3, 2)(a(4, 1, 3))[0]
nn.RNN(3, 2)(a(4, 1, 3))[1]
nn.LSTMCell(3, 2)(a(4, 3))[0]
nn.LSTMCell(3, 2)(a(4, 3))[1]
nn.GRUCell(3, 2)(a(4, 3))
nn.RNNCell(3, 2)(a(4, 3))
nn.MultiheadAttention(4, 2)(a(3, 1, 4), a(3, 1, 4), a(3, 1, 4))[0]
nn.MultiheadAttention(4, 2)(a(3, 1, 4), a(3, 1, 4), a(3, 1, 4))[1]
nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)(a(3, 1, 4))
"""
# PyTorch's text and lazyt's, where they differ.
_PAIRS = (
    ("t.linalg.vecdot(a(3), f(3))", "t.vecdot(a(3), f(3))"),
    ("t.tensordot(a(3, 4), f(4, 2), 1)", "t.tensordot(a(3, 4), f(4, 2), axes=1)"),
    ("t.inner(a(3, 4), f(2, 4))", "t.inner(a(3, 4), f(2, 4))"),
    ("t.dot(f(3), f(3))", "t.dot(f(3), f(3))"),
    ("t.linalg.lstsq(f(3, 2), f(3, 1))[0]", "t.linalg.lstsq(f(3, 2), f(3, 1))[0]"),
)

CASES = [(text, text) for text in _PLAIN.strip().splitlines()] + list(_PAIRS)
