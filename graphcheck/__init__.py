"""graphcheck: proves that a decode engine gives the same tokens with CUDA graphs on or off, on 1, 2 or 4 ranks."""

__version__ = "0.1.0"
