"""Owns which KV page is free, which is promised, and which is held. Knows nothing of tensors."""

DUMMY_PAGE = 0
"""The page that padded lanes and capture write to. It is never given to a sequence."""


class BlockAllocator:
    """Pages 1..num_pages, handed out last-freed-first, so that a just-freed page is the next to be used.

    A sequence promises its worst case when it is admitted (`reserve`) and takes pages only as it grows, so that
    growth can never fail and no sequence is ever evicted.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(num_pages, DUMMY_PAGE, -1))
        self._num_reserved = 0

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def can_reserve(self, num_pages: int) -> bool:
        return self._num_reserved + num_pages <= self.num_pages

    def reserve(self, num_pages: int) -> None:
        self._num_reserved += num_pages

    def grow(self, block_table: list[int], num_tokens: int) -> None:
        """Appends pages until `block_table` covers `num_tokens` tokens."""
        while len(block_table) < self.pages_for(num_tokens):
            block_table.append(self._free.pop())

    def release(self, block_table: list[int], num_reserved: int) -> None:
        """Takes all pages of a sequence back, and its promise."""
        self._free.extend(reversed(block_table))
        block_table.clear()
        self._num_reserved -= num_reserved
