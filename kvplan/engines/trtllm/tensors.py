"""TensorRT-LLM's pools: one for each window, of the layers whose blocks are equally wide, and state slots.

NVIDIA/TensorRT-LLM 1.2 cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (WindowBlockManager::allocatePools):
[blocks, layers, 2, heads · tokens_per_block · head_dim], heads outside tokens, the latent of MLA in one half
[blocks, layers, 1, …]; block scales of nvfp4 and index keys in pools of their own. mamba_cache_manager.py:
[layers, slots, …] for each state. Every block may be handed out.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.engines.base import part_terms
from kvplan.engines.generic import split_evenly
from kvplan.engines.tensors.base import BlockPool, Group, GroupKind, Layout, Rank
from kvplan.engines.tensors.building import Building, data_and_scales
from kvplan.engines.tensors.parts import Stored, element_bytes, pooled, stored
from kvplan.engines.trtllm.engine import TrtLlm, plan_of
from kvplan.engines.trtllm.plan import Blocks, Plan, draft_layers, pool_blocks, room_of, state_slots
from kvplan.engines.trtllm.store import part_store, store_for
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Layer, Model
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.terms import Grows


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """Pools of the rank's stage. Raises KvplanError(no-memory, engine-refuses, unknown-rule)."""
    result, pool = pooled(TrtLlm(), model, settings, version)
    plan = plan_of(model, settings, version)
    memory = settings.kv_cache_memory
    assert memory is not None
    if plan is None:
        raise KvplanError("unknown-rule", "the tensors of TensorRT-LLM's KVCacheManagerV2 are not described")
    if plan.interval is not None:
        raise KvplanError("unknown-rule", "where TensorRT-LLM keeps snapshots of states is not known")
    found, own = pool_blocks(plan, memory), plan.ranks[rank.stage]
    if len(found) != len(own.windows):
        raise KvplanError("unknown-rule", "windows that TensorRT-LLM reduced to one pool are not described")
    build = Building()
    for blocks in found:
        _group(build, plan, blocks)
    layers = list(split_evenly(model.layers(), settings.pipeline_parallel_size)[rank.stage])
    first = sum(
        len(part) for part in split_evenly(model.layers(), settings.pipeline_parallel_size)[: rank.stage]
    )
    if settings.speculative_method is not None and rank.stage == settings.pipeline_parallel_size - 1:
        layers += draft_layers(model, settings)
    slots = state_slots(plan) if own.state else 0
    _Stage(build, model, settings, plan, slots).fill(enumerate(layers, first), found)
    requests = min(pool.requests_that_fit, plan.resident) if own.state else pool.requests_that_fit
    sizes = [size for _, size, _ in own.windows]
    predicted = sum(blocks.blocks * plan.block * size for blocks, size in zip(found, sizes, strict=True))
    return build.layout(
        "trtllm",
        version,
        rank,
        result.request,
        predicted_bytes=predicted + slots * own.state,
        requests=requests,
        max_model_len=plan.max_seq_len,
        num_attention_heads=max(1, model.num_attention_heads // settings.tensor_parallel_size),
    )


def _group(build: Building, plan: Plan, blocks: Blocks) -> None:
    """A request is admitted with the blocks of its window and of the chunk in prefill, or with all."""
    whole = blocks.window >= plan.max_seq_len
    build.group(
        Group(
            f"window {blocks.window}",
            GroupKind.FULL if whole else GroupKind.WINDOW,
            len(build.pools),
            blocks.layers,
            plan.block,
            window=None if whole else blocks.window,
            limit=None if whole else room_of(plan, blocks.window),
        ),
        BlockPool(f"window {blocks.window}", blocks.blocks),
    )


class _Stage:
    def __init__(self, build: Building, model: Model, settings: Settings, plan: Plan, slots: int) -> None:
        self.build, self.plan, self.slots = build, plan, slots
        self.store, self.ssm = store_for(model, settings), settings.mamba_ssm_cache_dtype
        self.plan_tp = plan.tensor_parallel_size
        self.pattern = plan.pattern

    def fill(self, layers: Iterable[tuple[int, Layer]], found: tuple[Blocks, ...]) -> None:
        """The pools of each window by their layers' blocks, then the states."""
        listed = list(layers)
        token, states = self._tokens(listed), self._states(listed)
        if states:
            token = [(index, parts) for index, parts in token if parts]
        windows = sorted(
            {self.pattern[place % len(self.pattern)] for place, (_, parts) in enumerate(token) if parts}
        )
        for group, window in enumerate(windows):
            own = [
                entry
                for place, entry in enumerate(token)
                if self.pattern[place % len(self.pattern)] == window
            ]
            self._pools(group, found[group].blocks, own)
        for (name, content), parts in states.items():
            self._state(name, content, parts)

    def _tokens(self, layers: list[tuple[int, Layer]]) -> list[tuple[int, list[list[Stored]]]]:
        """For every layer its halves that lie side by side: [K, V], [latent], scales, [index key]."""
        found = []
        for index, layer in layers:
            sides: list[list[Stored]] = []
            for part in layer.parts:
                terms = [
                    term.on_rank(self.plan_tp)
                    for term in part_terms(part, part_store(self.store, part, self.ssm))
                    if term.grows is Grows.TOKEN
                ]
                own = [stored(term) for term in terms]
                split = [
                    data_and_scales(one, term.factors[-1].value) for one, term in zip(own, terms, strict=True)
                ]
                pairs = [pair for pair in split if pair is not None]
                if pairs and len(pairs) == len(own):
                    sides += [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
                elif part.kind is Kind.MLA:
                    sides.append(own)
                elif own:
                    same = len({(one.heads, one.content, one.dtype) for one in own}) == 1
                    sides += [own] if same else [[one] for one in own]
            found.append((index, sides))
        return found

    def _pools(self, group: int, blocks: int, layers: list[tuple[int, list[list[Stored]]]]) -> None:
        """One tensor [blocks, layers, halves, …] for all layers with equal halves."""
        tokens = self.plan.block
        pools: dict[tuple[tuple[str, int, int, str], ...], list[tuple[int, list[Stored]]]] = {}
        for index, sides in layers:
            for side in sides:
                key = tuple((one.name, one.heads, one.content, one.dtype) for one in side)
                pools.setdefault(key, []).append((index, side))
        for own in pools.values():
            side = own[0][1]
            latent = len({one.content * one.heads for one in side}) > 1
            each = tokens * sum(one.heads * one.content for one in side)
            size = element_bytes(side[0].dtype) if len({one.dtype for one in side}) == 1 else 1
            halves = 1 if latent else len(side)
            shape = (blocks, len(own), halves, each // halves // size)
            tensor = self.build.tensor(
                f"pool {group} " + "+".join(one.name for one in side),
                shape,
                side[0].dtype if size > 1 or side[0].dtype.startswith("float8") else "uint8",
            )
            for place, (index, parts) in enumerate(own):
                offset = place * each
                for one in parts:
                    self.build.window(
                        one,
                        index,
                        group,
                        tensor,
                        blocks=blocks,
                        states=tokens,
                        offset=offset,
                        block_stride=len(own) * each,
                        heads_outside=True,
                    )
                    offset += one.content if latent else tokens * one.heads * one.content
                if latent:
                    self._one_row(len(parts))

    def _one_row(self, count: int) -> None:
        """Latent and rope key of a token lie in one row."""
        views = self.build.views[-count:]
        row = sum(view.content for view in views)
        self.build.views[-count:] = [
            replace(view, state_stride=row, head_stride=row * view.states) for view in views
        ]

    def _states(self, layers: list[tuple[int, Layer]]) -> dict[tuple[str, int], list[tuple[int, Stored]]]:
        found: dict[tuple[str, int], list[tuple[int, Stored]]] = {}
        for index, layer in layers:
            for part in layer.parts:
                for term in part_terms(part, part_store(self.store, part, self.ssm)):
                    if term.grows is Grows.REQUEST:
                        one = stored(term.on_rank(self.plan_tp)).whole()
                        found.setdefault((one.name, one.content), []).append((index, one))
        return found

    def _state(self, name: str, content: int, own: list[tuple[int, Stored]]) -> None:
        group = next((i for i, group in enumerate(self.build.groups) if group.kind is GroupKind.STATE), None)
        if group is None:
            group = self.build.group(
                Group("state", GroupKind.STATE, len(self.build.pools), len(own), 1, fixed=1),
                BlockPool("states", self.slots),
            )
        size = element_bytes(own[0][1].dtype)
        tensor = self.build.tensor(name, (len(own), self.slots, content // size), own[0][1].dtype)
        for place, (index, one) in enumerate(own):
            offset = place * self.slots * content
            self.build.window(one, index, group, tensor, blocks=self.slots, states=1, offset=offset)
