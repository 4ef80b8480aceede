"""Kernel IR to OpenCL C."""
