"""What autocast does to each function, on the host and on a GPU: PyTorch 2.13's lists, and lazyt's names for theirs.

LOWER       operands are cast to the dtype of the region
FLOAT32     operands are cast to float32
SET_DTYPE   to float32, unless the caller gave a dtype
PROMOTE     to the widest dtype among them
BANNED      an error

A function that is in no list computes in the dtypes of its operands, which promote as they do everywhere.
"""

from __future__ import annotations

LOWER, FLOAT32, SET_DTYPE, PROMOTE, BANNED = "lower", "float32", "set_dtype", "promote", "banned"

_FFT = tuple(
    f"fft_{name}"
    for name in (
        "fft", "fft2", "fftn", "hfft", "ifft", "ifft2", "ifftn", "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
        "rfftn",
    )
)  # fmt: skip

GPU: dict[str, tuple[str, ...]] = {
    LOWER: (
        "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "convolution", "cudnn_convolution", "cudnn_convolution_transpose", "prelu", "addmm",
        "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm",
        "chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell",
        "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
    ),
    FLOAT32: (
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
        "sinh", "tan", "pow", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm",
        "frobenius_norm", "nuclear_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss",
        "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
        "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
        "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
        "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
        "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
        "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
    ),
    SET_DTYPE: (
        "prod", "softmax", "log_softmax", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm", "sum",
        # PyTorch appends float32 to the arguments of this one.
        "norm",
    ),
    PROMOTE: (
        "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
        "scatter_add",
    ),
    BANNED: ("binary_cross_entropy",),
}  # fmt: skip

HOSTS: dict[str, tuple[str, ...]] = {
    LOWER: (
        "conv1d", "conv2d", "conv3d", "bmm", "mm", "linalg_vecdot", "baddbmm", "addmm", "_addmm_activation", "addbmm",
        "linear", "_convolution", "matmul", "conv_tbc", "mkldnn_rnn_layer", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "prelu", "scaled_dot_product_attention", "_native_multi_head_attention",
    ),
    FLOAT32: (
        "_grid_sampler_2d_cpu_fallback", "_lu_with_info", "adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cdist", "cholesky", "cholesky_inverse",
        "cholesky_solve", "cosine_embedding_loss", "cross_entropy_loss", "ctc_loss", "fake_quantize_per_tensor_affine",
        *_FFT, "fractional_max_pool2d", "fractional_max_pool3d", "geqrf", "grid_sampler", "grid_sampler_2d",
        "grid_sampler_3d", "hinge_embedding_loss", "huber_loss", "inverse", "kl_div", "l1_loss", "linalg_cholesky",
        "linalg_cholesky_ex", "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh",
        "linalg_householder_product", "linalg_inv", "linalg_inv_ex", "linalg_lstsq", "linalg_matrix_rank", "linalg_qr",
        "linalg_solve", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "lu_solve",
        "margin_ranking_loss", "max_pool3d", "max_unpool2d", "max_unpool3d", "mse_loss", "multi_margin_loss",
        "multilabel_margin_loss", "multilabel_margin_loss_forward", "nanquantile", "quantile", "nll_loss", "nll_loss2d",
        "orgqr", "ormqr", "pinverse", "poisson_nll_loss", "polar", "prod", "qr", "reflection_pad1d",
        "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "smooth_l1_loss",
        "soft_margin_loss", "stft", "svd", "trace", "triangular_solve", "triplet_margin_loss", "view_as_complex",
    ),
    PROMOTE: ("stack", "cat", "index_copy"),
}  # fmt: skip

# PyTorch's name -> lazyt's operations and functions, where these have another name. A name that starts with `linalg_`
# or `fft_` is that of an operation `linalg.` or `fft.`.
NAMES: dict[str, tuple[str, ...]] = {
    "adaptive_max_pool3d": ("adaptive_max_pool3d_with_indices",),
    "bmm": ("matmul",),
    "cat": ("concat",),
    "conv_tbc": ("conv1d",),
    "cross_entropy_loss": ("cross_entropy",),
    "cumprod": ("cumulative_prod",),
    "cumsum": ("cumulative_sum",),
    "fft_fft2": ("fft.fftn",),
    "fft_ifft2": ("fft.ifftn",),
    "fft_irfft2": ("fft.irfftn",),
    "fft_rfft2": ("fft.rfftn",),
    "grid_sampler": ("grid_sample",),
    "grid_sampler_2d": ("grid_sample",),
    "grid_sampler_3d": ("grid_sample",),
    "gru_cell": ("recurrent.gru",),
    "inverse": ("linalg.inv",),
    "kl_div": ("kl_div", "kl_div_log"),
    "linalg_vecdot": ("vecdot",),
    "lstm_cell": ("recurrent.lstm",),
    "mm": ("matmul",),
    "mv": ("matmul",),
    "nll_loss2d": ("nll_loss",),
    "norm": ("linalg.vector_norm", "linalg.matrix_norm"),
    "pinverse": ("linalg.pinv",),
    "qr": ("linalg.qr",),
    "reflection_pad1d": ("reflection_pad",),
    "reflection_pad2d": ("reflection_pad",),
    "replication_pad1d": ("replication_pad",),
    "replication_pad2d": ("replication_pad",),
    "replication_pad3d": ("replication_pad",),
    "rnn_relu_cell": ("recurrent.rnn",),
    "rnn_tanh_cell": ("recurrent.rnn",),
    "svd": ("linalg.svd",),
    **{
        name: ("interpolate",)
        for name in GPU[FLOAT32]
        if name.startswith(("upsample_", "_upsample_"))
    },
}  # fmt: skip

# What PyTorch composes of listed functions, and lazyt records as one operation: it has their policy.
# NOTE: a cell's state is in no product, so those of LSTM and GRU keep its dtype on the CPU.
# An einsum without a product of matrices (`einsum.apart`) has none there.
COMPOSED_ON_HOST = {"einsum": LOWER, "local_response_norm": FLOAT32, "tensordot": LOWER, "recurrent.rnn": LOWER}
# NOTE: a cross entropy is log_softmax and nll_loss.
COMPOSED_ON_GPU = {"cross_entropy": FLOAT32, "einsum.apart": LOWER, "local_response_norm": FLOAT32}

# Of the lists, what is no function of lazyt's: kernels that PyTorch's functions call, and functions it has not.
ABSENT = frozenset((
    "_addmm_activation", "_convolution", "_grid_sampler_2d_cpu_fallback", "_lu_with_info",
    "_native_multi_head_attention", "_scaled_dot_product_flash_attention", "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "baddbmm", "chain_matmul",
    "cholesky", "cholesky_inverse", "cholesky_solve", "convolution", "cudnn_convolution",
    "cudnn_convolution_transpose", "dist", "fake_quantize_per_tensor_affine", "frobenius_norm", "geqrf",
    "index_copy", "linalg_cholesky_ex", "linalg_householder_product", "linalg_inv_ex", "linalg_tensorinv",
    "linalg_tensorsolve", "lu_solve", "multilabel_margin_loss_forward", "native_layer_norm", "nuclear_norm", "orgqr",
    "ormqr", "polar", "renorm", "stft", "triangular_solve", "view_as_complex",
))  # fmt: skip


def names_of(listed: str) -> tuple[str, ...]:
    """What lazyt calls a function of the lists; nothing for what it has not."""
    if listed in ABSENT:
        return ()
    for prefix in ("linalg", "fft"):
        if listed not in NAMES and listed.startswith(prefix + "_"):
            return (f"{prefix}.{listed.removeprefix(prefix + '_')}",)
    return NAMES.get(listed, (listed,))


def _policies(lists: dict[str, tuple[str, ...]], composed: dict[str, str]) -> dict[str, str]:
    return {name: policy for policy, listed in lists.items() for one in listed for name in names_of(one)} | composed


# The policy of each of lazyt's operations and functions that has one.
ON_HOST, ON_GPU = _policies(HOSTS, COMPOSED_ON_HOST), _policies(GPU, COMPOSED_ON_GPU)
