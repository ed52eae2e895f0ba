"""From a budget of bytes to the tokens of the pools and the slots of the states.

sgl-project/sglang 0.5.23 model_executor/pool_configurator.py (DefaultPoolConfigurator,
HybridSWAPoolConfigurator, SWARequestCapPoolConfigurator) and mem_cache/kv_cache_configurator.py
(_handle_max_mamba_cache, resolve_max_num_reqs). SGLang computes in floating-point GiB; the numbers here are
exact.
"""

from __future__ import annotations

from fractions import Fraction

from kvplan.engines.base import has_kind
from kvplan.engines.sglang.cache_layout.cells import Cell, cell_of, dequant_workspace, pool_layers, window_of
from kvplan.engines.sglang.cache_layout.compressed import compressed_bytes, solve_compressed
from kvplan.engines.sglang.cache_layout.stages import PoolError, Pools, Sizes, Stage, running
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.models import window_size
from kvplan.families import Kind
from kvplan.model import Layer, Model
from kvplan.units import round_up

UNASKED = 512
"""Slots where prompts are not reused and nobody says how many requests run."""

EVICTION_INTERVAL = 128
"""SGLANG_SWA_EVICTION_INTERVAL: tokens behind a window are given back after so many steps."""


def build_pools(model: Model, arguments: Arguments) -> Pools:
    stages = tuple(
        _stage(model, part, arguments) for part in split_stages(pool_layers(model, arguments), arguments.pp)
    )
    slots = max(stage.target.slot for stage in stages)
    window = window_of(model) if arguments.window_pool and not has_kind(model, Kind.COMPRESSED) else None
    return Pools(arguments, stages, slots, None if window is None else window_size(model, window))


def split_stages(layers: list[Layer], stages: int) -> list[list[Layer]]:
    """Consecutive slices; the last ones take the remainder (distributed/utils.py, get_pp_indices)."""
    base, longer = divmod(len(layers), stages)
    found, start = [], 0
    for stage in range(stages):
        end = start + base + (stage >= stages - longer)
        found.append(layers[start:end])
        start = end
    return found


def _stage(model: Model, layers: list[Layer], arguments: Arguments) -> Stage:
    if has_kind(model, Kind.COMPRESSED):
        return Stage(
            len(layers),
            (0, 0, 0),
            Cell(),
            compressed=compressed_bytes(layers, arguments, len(model.draft_layers)),
        )
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    target = sum((cell_of(layer, arguments).times(count) for layer, count in counts.items()), start=Cell())
    draft_full, draft_window = _draft(model, layers, target, arguments)
    cells = [(cell_of(layer, arguments), count) for layer, count in counts.items()]
    keeping = (
        sum(count for cell, count in cells if cell.full),
        sum(count for cell, count in cells if cell.window),
        sum(count for cell, count in cells if cell.slot),
    )
    return Stage(len(layers), keeping, target, draft_full, draft_window, dequant_workspace(model, arguments))


def _draft(model: Model, layers: list[Layer], target: Cell, arguments: Arguments) -> tuple[int, int]:
    """The draft's layers in the cell: the target's mean layer, times their number.

    Sparse MLA: the latent by layers, and an index key for every draft layer. Window pools: as many draft
    layers are window layers as the config that is read for them has (spec_aux_hidden_state.py).
    """
    count = arguments.draft_layers
    keeping = [
        layer for layer in layers if cell_of(layer, arguments).full or cell_of(layer, arguments).window
    ]
    if not count or not keeping:
        return 0, 0
    if target.window:
        full = max((cell_of(layer, arguments).full for layer in keeping), default=0)
        window = max(cell_of(layer, arguments).window for layer in keeping)
        windows = min(arguments.draft_windows, count)
        return full * (count - windows), window * windows
    index = 0
    for layer in keeping:
        if Kind.INDEXER in layer.kinds and target.full:
            index = cell_of(layer, arguments).index
    if index and has_kind(model, Kind.MLA):
        return target.full * count // len(keeping) * arguments.dcp + index * count, 0
    return (target.full + target.index + dequant_workspace(model, arguments)) * count // len(keeping), 0


def solve(pools: Pools, memory: int) -> Sizes:
    """Pools for ``memory`` bytes (what is left for the cache on each GPU). Raises PoolError."""
    if pools.compressed:
        return solve_compressed(pools, memory)
    arguments, rules = pools.arguments, pools.arguments.rules
    slots, rest = _states(pools, memory)
    cap = _request_cap(pools)
    stages = [stage for stage in pools.stages if pools.cell(stage)]
    each = [_stage_tokens(pools, stage, rest, cap) for stage in stages]
    if cap is not None and any(own < arguments.page_size for stage, own in zip(stages, each) if stage.full):
        raise PoolError(
            f"the window pool of {cap:,} tokens leaves no room for the full one in {memory:,} bytes"
        )
    tokens = _full_tokens(pools, stages, each, slots)
    if tokens <= 0:
        why = f"{memory:,} bytes hold no page of {arguments.page_size} tokens: raise --mem-fraction-static"
        raise PoolError(why)
    divided = tokens if rules.split_first else min(each, default=0) or tokens
    counted = tokens
    if stages and not rules.requests_capped:
        counted = min(int(rest // (stage.full + stage.window)) for stage in stages)
    return Sizes(tokens, _window_tokens(pools, divided, cap), slots, running(arguments, counted, slots))


def _stage_tokens(pools: Pools, stage: Stage, rest: int, cap: int | None) -> int:
    """The tokens that the full pool of a stage holds, before they are made whole pages."""
    if cap is not None and stage.full:
        return (rest - cap * stage.window) // stage.full
    if pools.arguments.rules.split_first:
        return int(rest // pools.cell(stage))
    return _split_last(stage, rest, pools.arguments)


def _full_tokens(pools: Pools, stages: list[Stage], each: list[int], slots: int) -> int:
    """Whole pages of what the smallest stage holds, and no more than --max-total-tokens."""
    arguments, rules = pools.arguments, pools.arguments.rules
    page, capped = arguments.page_size, arguments.max_total_tokens
    if not each:
        tokens = (capped or arguments.context_len) // page * page
    elif rules.headroom and arguments.draft_tokens:
        tokens = (min(each) + _headroom(arguments, slots)) // page * page
    else:
        tokens = min(
            own // page * page if rules.window_pools or not stage.window else own
            for stage, own in zip(stages, each)
        )
    if capped is None or not (rules.split_first or all(not stage.window for stage in pools.stages)):
        return tokens
    return min(tokens, capped) // page * page


def _headroom(arguments: Arguments, slots: int) -> int:
    """Until 0.5.6: places for the tokens of drafts and their verification, on top of what the memory holds.

    model_executor/model_runner.py (draft_runner_cache_size), for chains of drafts. The memory for them is
    not taken from anywhere: it lies in the slack.
    """
    draft, requests = arguments.draft_tokens, arguments.max_running_requests
    if not draft or requests is None:
        return 0
    if slots:
        requests = min(requests, slots // arguments.slots_per_request)
    return requests * (2 * draft - 1) + 100


def _split_last(stage: Stage, rest: int, arguments: Arguments) -> int:
    """Before 0.5.12: tokens as if every layer kept them all, the bound and whole pages of that, then the
    split of its bytes (set_num_tokens_hybrid_swa)."""
    both = stage.full + stage.window
    tokens = int(rest // both)
    if arguments.max_total_tokens is not None:
        tokens = min(tokens, arguments.max_total_tokens)
    tokens = tokens // arguments.page_size * arguments.page_size
    if not stage.window or not stage.full:
        return tokens
    full, windows, _ = stage.keeping  # layers are counted, whatever their heads, in floating point
    return int(tokens * (full + windows) / (float(arguments.swa_ratio) * windows + full))


def _window_tokens(pools: Pools, tokens: int, cap: int | None) -> int:
    """floor_page(tokens · ratio), or the cap; it must hold one window and one page more."""
    arguments, page = pools.arguments, pools.arguments.page_size
    if pools.window is None:
        return 0
    if not any(stage.full for stage in pools.stages):
        return tokens
    if cap is not None:
        return min(cap, tokens)
    own = int(tokens * arguments.swa_ratio)
    if arguments.rules.window_pools:
        own = own // page * page
    if arguments.rules.window_floor and pools.window + page >= own:
        raise PoolError(
            f"the window pool ({own:,} tokens) cannot hold one request: it needs more than the window"
            f" ({pools.window:,}) and a page ({page}); raise --swa-full-tokens-ratio or the memory"
        )
    return own


def trailing(pools: Pools) -> int:
    """Window-pool tokens that one running request keeps: window + interval · draft tokens + page."""
    assert pools.window is not None
    return pools.window + EVICTION_INTERVAL * max(1, pools.arguments.draft_tokens) + pools.arguments.page_size


def _request_cap(pools: Pools) -> int | None:
    """compute_swa_request_cap: without a radix cache and with --max-running-requests the need is known."""
    arguments = pools.arguments
    if not arguments.rules.request_cap:
        return None
    if pools.window is None or arguments.radix or arguments.max_running_requests is None:
        return None
    if arguments.whole_prefill:
        return None
    if not any(stage.full for stage in pools.stages):
        return None
    page, draft = arguments.page_size, arguments.draft_tokens
    decode = page if not draft else (1 if not arguments.overlap else 2) * round_up(draft, page)
    requests = max(1, arguments.max_running_requests // arguments.attn_dp)
    chunks = 2 if arguments.overlap else 1
    needed = (trailing(pools) + decode) * requests + chunks * arguments.rank_prefill_size + page
    return round_up(needed, page)


def _states(pools: Pools, memory: int) -> tuple[int, int]:
    """(slots, bytes left for tokens): the states take ratio / (1 + ratio) of the memory, first.

    One slot more than usable is allocated (padding), and taken from the budget since sgl-project/sglang
    #32184. Speculation adds intermediate states: draft tokens for each request that may run, and one.
    """
    arguments, slot = pools.arguments, pools.slot_bytes
    if not slot:
        return 0, memory
    if not arguments.rules.joint_states:
        return older_states(pools, memory)
    draft, per, padding = arguments.draft_tokens, arguments.slots_per_request, arguments.padding_slot
    requests = None
    if arguments.max_running_requests is not None:
        requests = max(1, arguments.max_running_requests // arguments.attn_dp)
    rest = memory
    if arguments.max_slots is not None:
        slots = arguments.max_slots // arguments.attn_dp
        if draft and requests is not None:
            rest -= slot * (min(requests, slots // per) + padding) * draft
    elif not arguments.radix and requests is not None:
        slots = requests
        rest -= slot * (slots + padding) * draft
    else:
        share = memory * arguments.state_ratio / (1 + arguments.state_ratio)
        if draft:
            assert requests is not None
            slots = int((share - slot * padding * (1 + draft)) // (slot * (1 + Fraction(draft, per))))
            rest -= slot * (min(requests, max(slots, 0) // per) + padding) * draft
        else:
            slots = int((share - slot * padding) // slot)
    if slots <= 0:
        raise PoolError(f"{memory:,} bytes are too few for the states of one request ({slot:,} bytes a slot)")
    return slots, rest - (slots + padding) * slot


def _slots_told(arguments: Arguments) -> int | None:
    """The slots that were asked for, or that requests need; None: a share of the memory decides."""
    rules, requests = arguments.rules, arguments.max_running_requests
    if arguments.max_slots is not None and (rules.slots_told or not arguments.radix):
        return arguments.max_slots
    if arguments.radix or (requests is None and rules.slots_by_share):
        return None
    return UNASKED if requests is None else requests


def older_states(pools: Pools, memory: int) -> tuple[int, int]:
    """(slots, bytes left for tokens) before 0.5.13, when the budget did not count what drafts keep of a
    state. Raises PoolError.

    0.5.2 model_executor/model_runner.py (__init__, profile_max_num_token), 0.5.3 to 0.5.6
    (handle_max_mamba_cache), 0.5.7 to 0.5.12 model_executor/model_runner_kv_cache_mixin.py.
    """
    arguments, slot, rules = pools.arguments, pools.slot_bytes, pools.arguments.rules
    draft, requests, groups = arguments.draft_tokens, arguments.max_running_requests, arguments.attn_dp
    rest, copies = memory, 1
    if rules.drafts_in_share:  # 0.5.3 to 0.5.6: each slot has its drafts' states beside it
        copies = 1 + draft
    elif draft and requests is not None and rules.states_by_ratio and (rules.drafts_first or arguments.radix):
        rest -= slot * draft * (requests // groups if rules.drafts_first else requests)
    told = _slots_told(arguments)
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
