"""The workloads, by family: importing this package registers them all, in the order in which they run."""

from benchmarks.workloads import recording  # isort: skip
from benchmarks.workloads import small  # isort: skip
from benchmarks.workloads import elementwise  # isort: skip
from benchmarks.workloads import reductions  # isort: skip
from benchmarks.workloads import rows  # isort: skip
from benchmarks.workloads import movement  # isort: skip
from benchmarks.workloads import products  # isort: skip
from benchmarks.workloads import mlp  # isort: skip
from benchmarks.workloads import convnet  # isort: skip
from benchmarks.workloads import resnet  # isort: skip
from benchmarks.workloads import mobilenet  # isort: skip
from benchmarks.workloads import unet  # isort: skip
from benchmarks.workloads import dcgan  # isort: skip
from benchmarks.workloads import gpt  # isort: skip
from benchmarks.workloads import lstm  # isort: skip
from benchmarks.workloads import vae  # isort: skip
from benchmarks.workloads import loading  # isort: skip
from benchmarks.workloads import batches  # isort: skip
from benchmarks.workloads import per_sample  # isort: skip
from benchmarks.workloads import ordering  # isort: skip
from benchmarks.workloads import policy  # isort: skip
from benchmarks.workloads import decoding  # isort: skip
from benchmarks.workloads import small_linalg  # isort: skip
from benchmarks.workloads import filters  # isort: skip
from benchmarks.workloads import nbody  # isort: skip
from benchmarks.workloads import kalman  # isort: skip
from benchmarks.workloads import hmc  # isort: skip
from benchmarks.workloads import starts  # isort: skip
from benchmarks.workloads import ceilings  # isort: skip

FAMILIES = (
    recording, small, elementwise, reductions, rows, movement, products, mlp, convnet, resnet, mobilenet, unet, dcgan,
    gpt, lstm, vae, loading, batches, per_sample, ordering, policy, decoding, small_linalg, filters, nbody, kalman,
    hmc, starts, ceilings,
)  # fmt: skip
