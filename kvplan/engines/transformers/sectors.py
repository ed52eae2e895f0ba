"""transformers' continuous batching: sectors of a flat cache, and how many the free memory makes.

huggingface/transformers 5.24.0 src/transformers/generation/continuous_batching/: cache.py
(PagedAttentionCache, PagedAttentionMemoryHandler), cache_allocators/, scheduler.py (FIFOScheduler). A *page*
holds page_size tokens of one layer, K then V; a *block* a page of every layer of one kind (full or sliding);
a *sector* so many bytes that blocks of each kind divide it, and belongs to one kind at a time. Two sectors
are never handed out. 5.20.0 has the same rules.
"""

from __future__ import annotations

from math import lcm

from kvplan.bisection import most_up_to
from kvplan.named import NamedTuple
from kvplan.record import record
from kvplan.units import ceil_div

PAGE_SIZE, BATCH_TOKENS, MOST_REQUESTS, TABLE_BLOCKS = 256, 8192, 1024, 32
"""page_size, _default_max_batch_tokens, FALLBACK_DEFAULTS: max_requests_per_batch, max_blocks_per_request."""
LEAST_PAGE = 4
TRASH = 2
"""Sectors that padding reads from and writes to."""
ALIGNMENT = 128
MARGIN = 15
"""FIFOScheduler's safety margin: prompts wait while less than so many hundredths of the cache are free."""
_INDEX, _WORD = 8, 4
_BULK_ROWS = 7


class Kind(NamedTuple):
    """Layers of one kind of attention. window: tokens that a sliding one keeps, as a ring."""

    layers: int
    window: int | None = None

    def blocks(self, tokens: int, page: int) -> int:
        """Blocks of a request of so many tokens."""
        held = tokens if self.window is None else min(tokens, self.window)
        return ceil_div(held, page)


@record()
class Geometry:
    """kinds: in the order of their first layer. page_bytes: K and V of ``page`` tokens of one layer."""

    kinds: tuple[Kind, ...]
    page: int
    page_bytes: int

    def block_bytes(self, kind: Kind) -> int:
        return kind.layers * self.page_bytes

    @property
    def sector_bytes(self) -> int:
        return lcm(*(self.block_bytes(kind) for kind in self.kinds), ALIGNMENT)

    def blocks_in_sector(self, kind: Kind) -> int:
        return self.sector_bytes // self.block_bytes(kind)

    @property
    def whole_block_bytes(self) -> int:
        """A page of every layer: what the library's own num_blocks counts."""
        return sum(kind.layers for kind in self.kinds) * self.page_bytes

    @property
    def sector_tokens(self) -> int:
        """The most tokens that a sector holds of one kind."""
        return max(self.blocks_in_sector(kind) for kind in self.kinds) * self.page

    def request_bytes(self, tokens: int) -> int:
        """Blocks of one request."""
        return sum(self.block_bytes(kind) * kind.blocks(tokens, self.page) for kind in self.kinds)

    def sectors(self, tokens: int, requests: int) -> int:
        """Sectors of so many equal requests: blocks of a kind fill its own."""
        return sum(
            ceil_div(requests * kind.blocks(tokens, self.page), self.blocks_in_sector(kind))
            for kind in self.kinds
        )

    def fitting(self, sectors: int, tokens: int) -> int:
        """How many requests of ``tokens`` tokens so many sectors hold at their full length."""
        low, high = 0, sectors * max(self.blocks_in_sector(kind) for kind in self.kinds)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sectors(tokens, middle) <= sectors else (low, middle - 1)
        return low

    def sectors_of(self, num_blocks: int) -> int:
        """The sectors of a stated ``num_blocks``."""
        return max(1, ceil_div(num_blocks * self.whole_block_bytes, self.sector_bytes))

    def num_blocks_of(self, sectors: int) -> int:
        """The library's num_blocks of so many sectors."""
        return sectors * self.sector_bytes // self.whole_block_bytes


@record()
class Batch:
    """Inputs that decide the tensors next to the cache. Widths are those of the whole model."""

    tokens: int
    requests: int
    hidden_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    element_bytes: int
    flash: bool
    doubled: bool
    """two sets of batch tensors"""
    table_blocks: int
    sliced: bool
    """logits of a request's last token alone (logits_to_keep)"""
    output_rows: int = 1


class Needs(NamedTuple):
    """Bytes beside the cache: whatever it is, of each sector, and of each sector a batch's masks."""

    fixed: int
    each_sector: int
    masks: int
    """of the batch's own tokens"""
    mask_sector: int

    def of(self, sectors: int) -> int:
        """Bytes beside so many sectors, the two that nobody gets left out."""
        return self.fixed + self.masks + sectors * (self.each_sector + self.mask_sector)


def needs(geometry: Geometry, batch: Batch) -> Needs:
    """bytes_per_batch_token, bytes_per_cache_token, fixed_overhead_bytes, attention_mask_bytes."""
    width, groups, sets = batch.element_bytes, len(geometry.kinds), 2 if batch.doubled else 1
    # Eager attention and sdpa repeat K and V to every head while V as stored is still there.
    at_peak = 2 * batch.num_kv_heads if batch.flash else 2 * batch.num_heads + batch.num_kv_heads
    row = batch.hidden_size * width + batch.vocab_size * _WORD
    own = batch.num_heads + 2 * batch.num_kv_heads + at_peak
    attention = width * (batch.hidden_size + own * batch.head_dim)
    tensors = sets * (
        _BULK_ROWS * _WORD
        + batch.output_rows * _WORD
        + groups * batch.table_blocks * _WORD
        + 2 * groups * _INDEX
    )
    token = max(0 if batch.sliced else row, attention) + tensors
    read = at_peak * batch.head_dim * width + sets * groups * _INDEX
    masks = 0 if batch.flash else sets * width * (2 if any(kind.window for kind in geometry.kinds) else 1)
    return Needs(
        batch.tokens * token + (batch.requests * row if batch.sliced else 0),
        geometry.sector_tokens * read,
        masks * batch.tokens * batch.tokens,
        masks * batch.tokens * geometry.sector_tokens,
    )


def sectors_left(geometry: Geometry, beside: Needs, available: int) -> int:
    """infer_max_batch_tokens_and_num_sectors: below 1 where nothing is left. The masks are paid for by
    removing sectors last."""
    size = geometry.sector_bytes
    each = size + beside.each_sector
    left = (available - TRASH * size - beside.fixed) // each
    masks = beside.masks + left * beside.mask_sector
    return left - ceil_div(masks, each + beside.mask_sector)


def footprint(geometry: Geometry, beside: Needs, sectors: int) -> int:
    """compute_memory_footprint: more than the available memory is a MemoryError at start-up."""
    return (TRASH + sectors) * geometry.sector_bytes + beside.of(sectors)


def running(geometry: Geometry, sectors: int, batch: Batch, tokens: int, answer: int, arriving: int) -> int:
    """Of so many equal requests that arrive together, those whose prompts are computed before one ends.

    Each step decodes first, then goes on with prompts in their order, ``batch.tokens`` tokens in all; a step
    that begins with less than the margin free decodes only. arriving: no more than fit at their full length.
    """
    prompt, lengths, begun = max(1, tokens - answer), [0] * arriving, 0
    size = sectors * geometry.sector_bytes
    while begun < arriving and lengths[0] < tokens - 1:
        held = sum(geometry.request_bytes(length) for length in lengths if length)
        within, decoding, budget = (size - held) * 100 >= MARGIN * size, begun, batch.tokens - begun
        if decoding and not within:
            break
        alone = _steps_of_one(geometry, lengths, begun, budget, prompt, tokens, margin=size * (100 - MARGIN))
        if alone > 1 and begun < batch.requests:
            lengths[begun] += alone * budget
            lengths[:begun] = [length + alone for length in lengths[:begun]]
            continue
        # Without the margin the first prompt goes on alone, as nothing else is in the step.
        for index in range(decoding, min(arriving, batch.requests) if within else decoding + 1):
            taken = min(budget, prompt - lengths[index])
            lengths[index] += taken
            budget -= taken
            begun += lengths[index] == prompt
            if not budget:
                break
        for index in range(decoding):
            lengths[index] += 1
        if budget == batch.tokens - decoding:
            break  # nobody else may join
    return begun


def _steps_of_one(
    geometry: Geometry, lengths: list[int], begun: int, budget: int, prompt: int, tokens: int, *, margin: int
) -> int:
    """How many steps in a row give all their tokens to the prompt that is being computed: taken together, as
    a prompt of a million tokens has a hundred thousand. margin: hundredths of bytes that may be held where a
    step begins with others decoding; what is held never falls."""
    room = prompt - lengths[begun]
    if budget < 1 or room <= budget:
        return 0
    steps = (room - 1) // budget
    if not begun:
        return steps
    steps = min(steps, tokens - 1 - lengths[0])

    def begins(step: int) -> bool:
        grown = [length + step - 1 for length in lengths[:begun]]
        now = [*grown, lengths[begun] + (step - 1) * budget, *lengths[begun + 1 :]]
        return sum(geometry.request_bytes(length) for length in now if length) * 100 <= margin

    return most_up_to(steps, begins, steps)
