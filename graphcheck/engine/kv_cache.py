"""Owns the KV cache: per layer and shard one tensor of pages, page 0 the dummy, in one of two layouts."""

import torch


class KVCache:
    """Keys and values [num_pages + 1, page_size, kv_heads, head_dim] for each layer and shard of a rank.

    A slot is `page * page_size + offset`; slots of page 0 take the writes of padded lanes. Layouts share the storage
    and the slots, and differ in how a lane's keys and values are gathered.
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
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def write(
        self, layer: int, shard: int, slot_mapping: torch.Tensor, k_tnh: torch.Tensor, v_tnh: torch.Tensor
    ) -> None:
        """Stores the keys and values [tokens, kv_heads, head_dim] at int32 slots [tokens]."""
        self.keys[layer, shard].flatten(0, 1)[slot_mapping] = k_tnh.to(self.keys.dtype)
        self.values[layer, shard].flatten(0, 1)[slot_mapping] = v_tnh.to(self.values.dtype)

    def gather(self, layer: int, shard: int, block_tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [lanes, context, kv_heads, head_dim] behind int32 block_tables [lanes, blocks]."""
        raise NotImplementedError


class PagedKVCache(KVCache):
    """A sequence's positions lie in pages anywhere, in the order of its block table."""

    def gather(self, layer: int, shard: int, block_tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See KVCache.gather."""
        lanes = block_tables.shape[0]
        pages = block_tables.flatten()
        keys = self.keys[layer, shard].index_select(0, pages)
        values = self.values[layer, shard].index_select(0, pages)
        return keys.unflatten(0, (lanes, -1)).flatten(1, 2), values.unflatten(0, (lanes, -1)).flatten(1, 2)


class StaticKVCache(KVCache):
    """A sequence owns one contiguous stretch of full context, chosen when it is admitted: a page as long as that."""

    def gather(self, layer: int, shard: int, block_tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See KVCache.gather; block_tables has one column."""
        stretch = block_tables.select(1, 0)
        return self.keys[layer, shard].index_select(0, stretch), self.values[layer, shard].index_select(0, stretch)


KV_LAYOUTS: dict[str, type[KVCache]] = {"paged": PagedKVCache, "static": StaticKVCache}
