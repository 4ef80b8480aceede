"""Benchmarks on a GPU: `python -m benchmarks.device`, every installed library and the machine's limit in one run."""
