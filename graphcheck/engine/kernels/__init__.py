"""Kernels in Triton; imported only where a GPU runs them."""
