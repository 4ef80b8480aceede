"""What random training loops do in modes: autocast, a scaler of gradients, a memory budget, compression, checkpoints.

A mode changes from turn to turn, covers the forward pass or only a part of it, and stands in another one at times.
`long_programs.py` draws from these tables; `{when}` is a condition on the turn `k`.
"""

from __future__ import annotations

# What the forward pass is recorded in.
MODES = (
    "lt.amp.autocast('cpu', dtype=lt.bfloat16)", "lt.amp.autocast('cpu', dtype=lt.bfloat16, enabled=bool({when}))",
    "lt.amp.autocast('cpu', dtype=lt.float16 if {when} else lt.bfloat16)", "lt.amp.autocast('cpu', enabled=False)",
    "lt.amp.autocast('cpu', dtype=lt.float16)", "lt.memory.budget('1 GiB')",
    "lt.memory.budget(None, policy=recomputed)",
    "lt.memory.budget('1 GiB' if {when} else None, policy=kept_or_not)", "lt.memory.compress(bits=8)",
    "lt.memory.compress(bits=2 if {when} else 4)", "lt.memory.compress(level='L0' if {when} else 'L2')", "packed",
    "packed if {when} else lt.amp.autocast('cpu', dtype=lt.bfloat16)", "lt.enable_grad()", "lt.library.scoped()",
)  # fmt: skip
# The state of these loops, before the loop.
STATE = (
    "recomputed = lambda saved: 'recompute'", "kept_or_not = lambda saved: 'keep' if saved.nbytes % 3 else None",
    "packed = lt.memory.compress(bits=3, level='L3')",
)  # fmt: skip
SCALERS = (
    "lt.amp.GradScaler('cpu', init_scale=4.0, growth_interval=2)", "lt.amp.GradScaler('cpu', init_scale=2.0 ** 14)",
    "lt.amp.GradScaler('cpu', enabled=False)", "lt.amp.GradScaler('cpu', init_scale=2.0 ** 30, growth_interval=1)",
)  # fmt: skip
# The forward pass `{h}`, in a function that computes it again in the backward.
CHECKPOINTS = ("checkpoint(lambda x: {h}, x)", "checkpoint(lambda x, w: {h}, x, w)")
# Between the backward and a scaled step.
ON_SCALED = (
    "scaler.unscale_(opt)", "scaler.unscale_(opt); lt.nn.utils.clip_grad_norm_([w, v], 0.5)",
    "note(scaler.is_enabled())",
    "total = total + scaler.get_scale()", "fails(lambda: scaler.step(lt.optim.SGD([lt.zeros(3)], lr=0.1)))",
    "scaler.load_state_dict(scaler.state_dict())", "scaler.load_state_dict(copy.deepcopy(scaler.state_dict()))",
    "w.grad *= float('inf')", "v.grad = v.grad * float('nan')",
)  # fmt: skip
