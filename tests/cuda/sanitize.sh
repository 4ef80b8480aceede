#!/bin/sh
# compute-sanitizer over the generated kernels: memory errors, then races in shared memory. Needs a GPU.
set -eu
cd "$(dirname "$0")/../.."
command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not here: it comes with the CUDA toolkit" >&2; exit 1; }
for tool in memcheck racecheck; do
    LAZYT_REQUIRE_CUDA=1 compute-sanitizer --tool "$tool" --error-exitcode 1 --target-processes all \
        "${PYTHON:-python3}" -m pytest -q -m cuda -p no:cacheprovider tests/test_cuda_gpu.py -k "programs or rows"
done
