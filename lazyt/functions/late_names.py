"""The public names of `lazyt` that are loaded at their first use, by module: what not every program needs.

`lazyt.__getattr__` loads a module when one of its names is read first. tests/test_importing.py compares the table with
the modules; without it an import of lazyt would load them all.
"""

from __future__ import annotations

LATE: dict[str, str] = {
    "lazyt.autograd.custom_rules": "custom_jvp custom_vjp",
    "lazyt.functions.activations": (
        "elu gelu glu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish prelu relu6 selu silu softplus softsign"
    ),
    "lazyt.functions.adaptive_pooling": "adaptive_avg_pool2d",
    "lazyt.functions.array_info": (
        "array bartlett blackman copy diag_indices geomspace hamming hanning iscomplexobj isrealobj isscalar "
        "issubdtype kaiser matvec ndim promote_types setxor1d shape size vdot vecmat"
    ),
    "lazyt.functions.convolution": "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d",
    "lazyt.functions.derivatives": "hessian hvp jacfwd jacrev jvp linearize",
    "lazyt.functions.distances": "cdist",
    "lazyt.functions.gradients.host_calls": "pure_callback",
    "lazyt.functions.gradients.modes": "inference_mode is_inference_mode_enabled set_grad_enabled",
    "lazyt.functions.histograms": "histogram histogram2d histogram_bin_edges histogramdd",
    "lazyt.functions.inspection": "__array_api_version__ __array_namespace_info__",
    "lazyt.functions.io": "load save",
    "lazyt.functions.jit": "jit",
    "lazyt.functions.losses": (
        "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss kl_div l1_loss "
        "linear_cross_entropy mse_loss nll_loss smooth_l1_loss"
    ),
    "lazyt.functions.nan_reductions": "nanargmax nanargmin nancumprod nancumsum nanprod nanstd nanvar",
    "lazyt.functions.normalization": "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm",
    "lazyt.functions.padding": "pad",
    "lazyt.functions.polynomials": "polyadd polyder polyint polymul polysub polyval vander",
    "lazyt.functions.pooling": "avg_pool1d avg_pool2d max_pool1d max_pool2d",
    "lazyt.functions.quantiles": "average median nanmedian nanpercentile nanquantile percentile quantile",
    "lazyt.functions.reshaping": (
        "append block delete diag_indices_from diagflat dsplit hsplit insert ix_ mgrid ogrid ravel_multi_index "
        "resize rollaxis sliding_window_view tril_indices tril_indices_from trim_zeros triu_indices "
        "triu_indices_from unravel_index vsplit"
    ),
    "lazyt.functions.sampling": "multinomial",
    "lazyt.functions.sets": (
        "intersect1d setdiff1d union1d unique unique_all unique_counts unique_inverse unique_values"
    ),
    "lazyt.functions.signals": "convolve corrcoef correlate cov ediff1d gradient interp trapezoid unwrap",
    "lazyt.functions.special": (
        "around bitwise_count cbrt digamma erfinv fabs float_power frexp gcd i0 iscomplex isneginf isposinf isreal lcm "
        "ldexp lgamma logaddexp2 modf mvlgamma nan_to_num packbits polygamma rint sinc spacing unpackbits"
    ),
    "lazyt.functions.spelling": "SpellingError spelling",
    "lazyt.functions.vectorize": "vmap",
    "lazyt.inspect.explain": "explain",
    "lazyt.inspect.pending": "pending",
    "lazyt.kernel_language.function": "kernel",
}
# Those whose functions have NumPy's signatures besides their own (protocols/signatures.py).
NUMPYS = frozenset(
    f"lazyt.functions.{name}"
    for name in (
        "array_info", "histograms", "nan_reductions", "padding", "polynomials", "quantiles", "reshaping", "sets",
        "signals", "special",
    )
)  # fmt: skip
# The names of `lazyt.autograd`, which `lazyt.functions.gradients` has.
AUTOGRAD = (
    "Function FunctionCtx GradcheckError backward custom_jvp custom_vjp detect_anomaly enable_grad grad "
    "gradcheck gradgradcheck inference_mode is_anomaly_enabled is_grad_enabled is_inference_mode_enabled "
    "no_grad once_differentiable save_on_cpu saved_tensors_hooks set_detect_anomaly set_grad_enabled "
    "value_and_grad vjp"
)
# name -> its module
PLACES = {name: module for module, names in LATE.items() for name in names.split()}
