"""Kernels that users write as Python functions of indices: `lazyt.kernel`."""
