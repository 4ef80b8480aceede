"""Fixtures of more than one test file."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.ops import catalog  # noqa: F401 - tests ask for every operation
from lazyt.runtime import plan_cache
from lazyt.tracing.trace import local

# A failed assertion of a helper shows its values, as a test's own does; said before a helper is imported.
pytest.register_assert_rewrite("tests.support")

from tests.support.plans import forget, make_room  # noqa: E402

# A mistake of lazyt's own in what it does again in short would go the general way, and nobody would hear of it.
general["strict"] = True
# Most tests are of planning, of which a plan that an earlier run kept would take the place.
general["stored"] = False


# Files of many cases that are alike: of each function's cases the README's command runs the first of every so many, and
# `.ci/run` runs the others with the slow tests.
ONE_OF = {
    "tests/amp/test_autocast.py": 4,
    "tests/amp/test_checkpoints.py": 2,
    "tests/amp/test_initialize.py": 2,
    "tests/amp/test_training.py": 3,
    "tests/autograd/test_batching.py": 3,
    "tests/autograd/test_derivatives.py": 3,
    "tests/autograd/test_vmap.py": 3,
    "tests/backends/cpu/test_attention.py": 4,
    "tests/backends/cpu/test_bit_packing.py": 3,
    "tests/backends/cpu/test_cpu_casts.py": 3,
    "tests/backends/cpu/test_cpu_elementwise.py": 2,
    "tests/backends/cpu/test_cpu_emit.py": 6,
    "tests/backends/cpu/test_cpu_pairs.py": 6,
    "tests/backends/cpu/test_cpu_switches.py": 3,
    "tests/backends/cpu/test_cpu_targets.py": 8,
    "tests/backends/cpu/test_depthwise.py": 3,
    "tests/backends/cpu/test_half_products.py": 2,
    "tests/backends/cpu/test_kept_panels.py": 2,
    "tests/backends/cpu/test_kernel_needs.py": 12,
    "tests/backends/cpu/test_layouts.py": 9,
    "tests/backends/cpu/test_object_cache_faults.py": 3,
    "tests/backends/cpu/test_peel.py": 3,
    "tests/backends/cpu/test_phases.py": 3,
    "tests/backends/cpu/test_products.py": 4,
    "tests/backends/cpu/test_row_folds.py": 2,
    "tests/backends/cpu/test_scatter.py": 10,
    "tests/backends/cpu/test_small_matrices.py": 2,
    "tests/backends/cpu/test_small_stacks.py": 3,
    "tests/backends/cpu/test_sorting.py": 16,
    "tests/backends/cpu/test_strided_access.py": 4,
    "tests/backends/cpu/test_symbolic_binding.py": 3,
    "tests/backends/cpu/test_time_tiles.py": 2,
    "tests/backends/cuda/test_cuda_attention.py": 36,
    "tests/backends/cuda/test_cuda_compression.py": 4,
    "tests/backends/cuda/test_cuda_cudnn.py": 6,
    "tests/backends/cuda/test_cuda_emit.py": 20,
    "tests/backends/cuda/test_cuda_library.py": 12,
    "tests/backends/cuda/test_cuda_mapping.py": 4,
    "tests/backends/cuda/test_cuda_operations.py": 30,
    "tests/backends/cuda/test_cuda_replay.py": 6,
    "tests/backends/cuda/test_cuda_rows.py": 8,
    "tests/backends/cuda/test_cuda_runtime.py": 10,
    "tests/backends/cuda/test_cuda_transfers.py": 3,
    "tests/backends/test_interpreted_backend.py": 8,
    "tests/benchmarks/test_benchmarks.py": 3,
    "tests/benchmarks/test_device_benchmarks.py": 4,
    "tests/functions/protocols/test_ecosystem.py": 1000,
    "tests/functions/test_devices.py": 6,
    "tests/functions/test_distributions.py": 12,
    "tests/functions/test_distributions_as_pytorch.py": 20,
    "tests/functions/test_numpy_forms.py": 8,
    "tests/functions/test_numpy_names.py": 12,
    "tests/functions/test_signatures.py": 12,
    "tests/ir/passes/test_memory_order.py": 3,
    "tests/ir/passes/test_split_reduction.py": 12,
    "tests/ir/test_bit_exact.py": 8,
    "tests/ir/test_mixed_bits.py": 2,
    "tests/ir/test_quantize.py": 2,
    "tests/ir/test_scan.py": 10,
    "tests/kernel_language/test_kernel_derivatives.py": 2,
    "tests/nn/test_bad_arguments.py": 2,
    "tests/nn/test_models_as_pytorch.py": 8,
    "tests/nn/test_nn_gradients.py": 4,
    "tests/nn/test_torch_golden.py": 60,
    "tests/nn/test_vmap_layers.py": 24,
    "tests/ops/test_ops.py": 14,
    "tests/ops/test_ops_lowering.py": 4,
    "tests/optim/test_optim.py": 2,
    "tests/optim/test_optimizers_as_pytorch.py": 8,
    "tests/runtime/test_compression.py": 2,
    "tests/runtime/test_divided_backward.py": 2,
    "tests/runtime/test_extents_of_one.py": 3,
    "tests/runtime/test_interrupts.py": 8,
    "tests/runtime/test_linear_work.py": 12,
    "tests/runtime/test_linked_parts.py": 2,
    "tests/runtime/test_long_programs.py": 6,
    "tests/runtime/test_loops.py": 4,
    "tests/runtime/test_memory_budget.py": 6,
    "tests/runtime/test_robust.py": 2,
    "tests/runtime/test_subprograms.py": 4,
    "tests/runtime/test_symbolic_extents.py": 4,
    "tests/testing/test_strategies.py": 2,
    "tests/torch/test_calls.py": 3,
    "tests/torch/test_idioms.py": 2,
    "tests/tracing/test_call_cache.py": 3,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the cases of a function that `ONE_OF` leaves out."""
    met: Counter[tuple[str, str]] = Counter()
    for item in items:
        file, _, rest = item.nodeid.partition("::")
        function = rest.partition("[")[0]
        if rest != function and (n := ONE_OF.get(file)) is not None and not item.get_closest_marker("slow"):
            if met[file, function] % n:
                item.add_marker(pytest.mark.slow)
            met[file, function] += 1


def _as_numpy() -> None:
    """Take off the methods that the first import of `lazyt.torch`, by whomever, gave to tensors."""
    if (ported := sys.modules.get("lazyt.torch")) is not None:
        ported.detach()


def pytest_collection_finish() -> None:
    """Keep the garbage collector off the million objects of ten thousand collected tests.

    Each `gc.collect()` of a test would go through them: 0.7 s of its own, in some hundred tests.
    """
    _as_numpy()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_pending():
    """A test begins with an empty trace and room for plans, whatever ran before it in this process."""
    try:
        lt.sync()
    except Exception:  # noqa: BLE001 - an earlier test's mistake, which it has reported
        if not local.trace.empty:
            local.trace.leave()
    _as_numpy()
    make_room()


@pytest.fixture(autouse=True)
def of_kernels(monkeypatch: pytest.MonkeyPatch):
    """Most tests run a tiny program once: they are of kernels. What interprets it first has tests that turn that on.

    NOTE: doctests outside of this folder, which may run in the same process, are as users have it.
    """
    monkeypatch.setitem(general, "first", False)


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest):
    """Numbers of threads, set for the test."""
    before = lt.get_num_threads()
    lt.set_num_threads(request.param)
    yield request.param
    lt.set_num_threads(before)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are new to the test, planned whole at their first sync, and verified between passes."""
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    yield
    forget()


@pytest.fixture
def new_trace() -> None:
    """The test's trace is the first that its thread ever recorded."""
    lt.sync()
    local.trace.reset_trie()


@pytest.fixture
def quiet() -> Iterator[None]:
    """NumPy warns of no overflow, division or invalid value."""
    with np.errstate(all="ignore"):
        yield
