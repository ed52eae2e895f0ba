"""TGI's log lines: huggingface/text-generation-inference 3.3 server models/flash_causal_lm.py (warmup),
launcher/src/main.rs, backends/v3/src/lib.rs."""

from __future__ import annotations

from kvplan.engines.observed import Rank
from kvplan.engines.observed.rules import Dialect, Rule, rule


def rank_of(head: str) -> Rank:
    """One process a shard; rank 0 alone logs."""
    del head
    return Rank(whole=True)


RULES: tuple[Rule, ...] = (
    rule("KV-cache blocks: {num_blocks:n}, size: {block_size:n}", weight=3),
    rule("Using Attention = {attention:word}", kind="settings", weight=2),
    rule("Default `max_batch_prefill_tokens` to {max_num_batched_tokens:n}", kind="settings", weight=3),
    rule("Not enough memory to handle", kind="refusal", text="out-of-memory", weight=3),
)
DIALECT = Dialect("tgi", RULES, rank_of, {})
