"""What `lazyt.autograd` offers: PyTorch's and JAX's ways to say, ask for and check derivatives."""

from lazyt.autograd.custom_rules import custom_jvp as custom_jvp, custom_vjp as custom_vjp
from lazyt.autograd.functional import value_and_grad as value_and_grad, vjp as vjp
from lazyt.functions.gradients.anomaly import *
from lazyt.functions.gradients.calls import *
from lazyt.functions.gradients.checking import *
from lazyt.functions.gradients.function import *
from lazyt.functions.gradients.modes import *
from lazyt.functions.gradients.saving import *
from lazyt.runtime.context import enable_grad as enable_grad, is_grad_enabled as is_grad_enabled, no_grad as no_grad

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "backward", "custom_jvp", "custom_vjp", "detect_anomaly",
    "enable_grad", "grad", "gradcheck", "gradgradcheck", "inference_mode", "is_anomaly_enabled", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "once_differentiable", "save_on_cpu", "saved_tensors_hooks",
    "set_detect_anomaly", "set_grad_enabled", "value_and_grad", "vjp",
]  # fmt: skip
