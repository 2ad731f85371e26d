"""Measures decode attention on a GPU: the kernel over pages against torch ops over gathered pages.

    python benchmarks/decode_attention.py

One layer's attention in a CUDA graph, every lane as long as `length` says, the context fixed at capture.
"""

import itertools
import json
from collections.abc import Callable

import torch
import triton.testing

from graphcheck.engine.attention import attention
from graphcheck.engine.kv_cache import PagedKVCache

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 32, 8, 128, 16
"""A layer of an 8B Llama."""


def attend(name: str, lanes: int, length: int, context: int, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """One decode attention of every lane, with its KV cache, ready to be called."""
    device = torch.device("cuda")
    blocks = context // PAGE_SIZE
    torch.manual_seed(0)
    cache = PagedKVCache(
        num_layers=1,
        num_shards=1,
        num_pages=lanes * blocks,
        page_size=PAGE_SIZE,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        dtype=dtype,
        device=device,
    )
    cache.keys.normal_()
    cache.values.normal_()
    tables = torch.arange(1, lanes * blocks + 1, dtype=torch.int32, device=device).view(lanes, blocks)
    seq_lens = torch.full((lanes,), length, dtype=torch.int32, device=device)
    slots = tables[:, (length - 1) // PAGE_SIZE] * PAGE_SIZE + (length - 1) % PAGE_SIZE
    q = torch.randn(lanes, HEADS, HEAD_DIM, dtype=dtype, device=device)
    k, v = torch.randn(2, lanes, KV_HEADS, HEAD_DIM, dtype=dtype, device=device)
    return lambda: attention(name)(cache, slots, seq_lens, tables, context)(0, 0, q, k, v)


def main() -> None:
    """Prints the figures as JSON: microseconds of each, and the kernel's share of the gather's time."""
    figures = []
    for dtype, lanes, (length, context) in itertools.product(
        (torch.float32, torch.bfloat16), (1, 8), ((100, 128), (100, 2048), (2000, 2048))
    ):
        both = {name: attend(name, lanes, length, context, dtype) for name in ("gather", "triton")}
        error = (both["gather"]() - both["triton"]()).abs().max().item()
        us = {name: 1e3 * triton.testing.do_bench_cudagraph(call, return_mode="median") for name, call in both.items()}
        figures.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "lanes": lanes,
                "length": length,
                "context": context,
                "gather_us": round(us["gather"], 1),
                "triton_us": round(us["triton"], 1),
                "triton_over_gather": round(us["triton"] / us["gather"], 3),
                "largest_difference": error,
            }
        )
    print(json.dumps({"device": torch.cuda.get_device_name(), "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
