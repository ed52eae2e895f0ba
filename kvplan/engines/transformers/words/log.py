"""The lines of transformers' continuous batching, at log level info.

huggingface/transformers 5.24.0 generation/continuous_batching/cache.py (PagedAttentionCache.__init__,
PagedAttentionMemoryHandler.get_available_memory): sizes are whole MiB, rounded down.
"""

from __future__ import annotations

from kvplan.engines.observed import Rank
from kvplan.engines.observed.rules import Dialect, Rule, rule


def rank_of(head: str) -> Rank:
    """The one process."""
    del head
    return Rank(whole=True)


RULES: tuple[Rule, ...] = (
    rule(
        "Memory available for cache allocation: {:n} MB",
        kind="note",
        text="transformers sizes the cache of continuous batching by what is free beside the model",
        weight=3,
    ),
    rule(
        "Paged cache initialized: self.max_batch_tokens = {max_batch_tokens:n}, self.num_sectors ="
        " {num_sectors:n}, mb_per_sector = {:n}",
        kind="settings",
        anchor="Paged cache initialized: ",
        weight=3,
    ),
)
DIALECT = Dialect("transformers", RULES, rank_of, {})
