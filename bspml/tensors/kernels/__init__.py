"""Compiled kernels: numba on a processor, Triton on an accelerator; `device` says which runs."""
