"""What a small backend inherits: memory with counts, and runs whose kernels and calls the host may compute."""
