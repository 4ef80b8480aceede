"""The computation of each elementwise primitive, in operations that every machine has, for all backends.

A rule takes and gives `Vec`s and never sees how they are spelled; the CPU backend spells them as LLVM IR on vectors
of lanes, the CUDA backend as C for one thread. So the bits are the same on both.
"""
