"""What lazyt is to reach: its time over the best peer's, both of the same run. Lower is better; the table is whole."""

from __future__ import annotations

TARGETS: dict[str, float] = {
    "record_overhead": 0.90,
    "gelu_chain": 0.45,
    "black_scholes": 0.35,
    "map_reduce": 1.05,
    "softmax": 0.55,
    "layernorm": 0.55,
    "cross_entropy": 0.45,
    "column_stats": 0.60,
    "movement": 0.35,
    "stencil": 0.80,
    "kmeans_dist": 0.60,
    "mandelbrot": 0.45,
    "matmul_bias_gelu": 0.95,
    "matmul_batched": 1.05,
    "mlp_train_step": 0.75,
    "convnet_train_step": 0.75,
    "gpt_train_step": 0.75,
    "gpt_forward": 0.70,
    "dynamic_batches": 0.90,
    "embedding": 0.60,
    "sort": 1.05,
    "cumsum": 0.80,
    "cold_start": 0.50,
    "warm_start": 0.30,
}
# The geometric mean over the table of best peer / lazyt.
TARGET_MEAN = 1.55
# Identical runs on a shared machine differ by so much: a median within it of 1 is a tie.
TIE = 1.3
