"""State slots before 0.5.13, whose budget does not hold what drafts keep of a state.

sgl-project/sglang 0.5.2 model_executor/model_runner.py (__init__, profile_max_num_token), 0.5.3 to 0.5.6
(handle_max_mamba_cache), 0.5.7 to 0.5.12 model_executor/model_runner_kv_cache_mixin.py.
"""

from __future__ import annotations

from kvplan.engines.sglang.stages import PoolError, Pools

UNASKED = 512
"""Slots where prompts are not reused and nobody says how many requests run."""


def older_states(pools: Pools, memory: int) -> tuple[int, int]:
    """(slots, bytes left for tokens). Raises PoolError."""
    arguments, slot, rules = pools.arguments, pools.slot_bytes, pools.arguments.rules
    draft, requests, groups = arguments.draft_tokens, arguments.max_running_requests, arguments.attn_dp
    rest, copies = memory, 1
    if rules.drafts_in_share:  # 0.5.3 to 0.5.6: each slot has its drafts' states beside it
        copies = 1 + draft
    elif draft and requests is not None and rules.states_by_ratio and (rules.drafts_first or arguments.radix):
        rest -= slot * draft * (requests // groups if rules.drafts_first else requests)
    told = arguments.max_slots if rules.slots_told or not arguments.radix else None
    if told is None and not arguments.radix and (requests is not None or not rules.slots_by_share):
        told = UNASKED if requests is None else requests
    if told is None:
        share = rest * arguments.state_ratio / (1 + arguments.state_ratio)
        slots = int(share // slot // copies)
        if rules.drafts_in_share and arguments.divided_slots:
            slots //= groups
    else:
        divided = not rules.drafts_in_share or arguments.divided_slots
        slots = told // groups if divided else told
    if slots <= 0:
        raise PoolError(f"{memory:,} bytes are too few for the states of one request ({slot:,} bytes a slot)")
    return slots, rest - slots * copies * slot
