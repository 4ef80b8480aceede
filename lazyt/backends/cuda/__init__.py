"""The CUDA backend: the kernel IR as CUDA C, compiled by NVRTC and run through CuPy.

File by file as `backends/cpu`, and what both need is in `backends/rules`. CuPy is imported when a GPU is first asked
for, never before.
"""
