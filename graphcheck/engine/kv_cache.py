"""Owns the KV cache: per layer and virtual shard one contiguous tensor of pages, page 0 the dummy."""

import torch


class PagedKVCache:
    """Keys and values [num_pages + 1, page_size, kv_heads, head_dim] for each layer and virtual shard.

    A slot is `page * page_size + offset`; slots of page 0 take the writes of padded lanes.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_shards: int,
        num_pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size = page_size
        shape = (num_layers, num_shards, num_pages + 1, page_size, kv_heads, head_dim)
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)

    def write(
        self, layer: int, shard: int, slot_mapping: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> None:
        """Stores the keys and values [tokens, kv_heads, head_dim] at int32 slots [tokens]."""
        self._keys[layer, shard].flatten(0, 1)[slot_mapping] = k_tnh
        self._values[layer, shard].flatten(0, 1)[slot_mapping] = v_tnh

    def gather(self, layer: int, shard: int, block_tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [lanes, blocks * page_size, kv_heads, head_dim] behind int32 block_tables [lanes, blocks]."""
        lanes = block_tables.shape[0]
        pages = block_tables.flatten()
        keys = self._keys[layer, shard].index_select(0, pages)
        values = self._values[layer, shard].index_select(0, pages)
        return keys.unflatten(0, (lanes, -1)).flatten(1, 2), values.unflatten(0, (lanes, -1)).flatten(1, 2)
