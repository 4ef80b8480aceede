#!/bin/sh
# compute-sanitizer over the generated kernels: memory errors, then races in shared memory. Needs a GPU, some minutes.
# Each allocation is CUDA's own, because within a block of CuPy's pool an access outside a buffer is not seen.
set -eu
cd "$(dirname "$0")/../../.."
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not here: it comes with the CUDA toolkit" >&2; exit 1; }
for tool in memcheck racecheck; do
    echo "== $tool"
    LAZYT_REQUIRE_CUDA=1 LAZYT_TEST_NO_POOL=1 timeout "${SECONDS_EACH:-240}" \
        compute-sanitizer --tool "$tool" --error-exitcode 1 --target-processes all \
        "${PYTHON:-python3}" -m pytest -q -x -p no:cacheprovider -o addopts= tests/backends/cuda/test_cuda_gpu.py \
        -k "programs or rows or replays_with"
done
