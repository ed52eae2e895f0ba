"""SGLang's tensors: a row for every token of a pool and one page more, a slot for every state and one more.

sgl-project/sglang 0.5.23 python/sglang/srt/mem_cache/memory_pool.py (MHATokenToKVPool: K and V of equal shape
in one tensor [2, rows, heads, head_dim], else one each; MHATokenToKVPoolFP4 and -MXFP8: scales beside them;
MLATokenToKVPool [rows, 1, width]; DSATokenToKVPool: pages of keys followed by their scales; MambaPool
[layers, slots + 1, …]), swa_memory_pool.py (a second pool for windows). Page 0 and slot 0 take padded writes.
"""

from __future__ import annotations

from kvplan.engines.base import part_terms
from kvplan.engines.sglang.cache_layout.cells import heads_on_rank, pool_layers, store_of
from kvplan.engines.sglang.cache_layout.pools import solve, split_stages, trailing
from kvplan.engines.sglang.cache_layout.stages import Pools, Sizes, Stage
from kvplan.engines.sglang.engine import Sglang, pools_of
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.models import is_window
from kvplan.engines.tensors.base import BlockPool, Group, GroupKind, Layout, Rank
from kvplan.engines.tensors.building import Building, data_and_scales
from kvplan.engines.tensors.parts import Stored, element_bytes, pooled, stored
from kvplan.errors import KvplanError
from kvplan.families import Kind, Part
from kvplan.model import Layer, Model
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.terms import Grows, Term

SCALE_BYTES = 4
"""Of an fp8 index key: one float32."""


def layout(model: Model, settings: Settings, version: str, rank: Rank) -> Layout:
    """Pools of the rank's stage. Raises KvplanError(no-memory, engine-refuses, unknown-rule)."""
    result, pool = pooled(Sglang(), model, settings, version)
    pools = pools_of(model, settings, version)
    memory = settings.kv_cache_memory
    assert pools is not None
    assert memory is not None
    arguments, stage = pools.arguments, pools.stages[rank.stage]
    if pools.compressed:
        raise KvplanError("unknown-rule", "the tensors of SGLang's DeepSeek-V4 pools are not described")
    if stage.target.index and arguments.dcp > 1:
        raise KvplanError(
            "unknown-rule", "how SGLang pages index keys under context parallelism is not known"
        )
    sizes = solve(pools, memory)
    build = Building()
    _Stage(build, pools, stage, sizes).layers(
        split_stages(pool_layers(model, arguments), arguments.pp), rank.stage
    )
    return build.layout(
        "sglang",
        version,
        rank,
        result.request,
        predicted_bytes=_predicted(stage, arguments, sizes),
        requests=pool.requests_that_fit,
        max_model_len=arguments.context_len,
        num_attention_heads=max(1, model.num_attention_heads // arguments.attn_tp),
    )


def _predicted(stage: Stage, arguments: Arguments, sizes: Sizes) -> int:
    """The cell times the rows, and the slots: what the engine's own arithmetic says is allocated."""
    page = arguments.page_size
    amount = stage.full * (sizes.max_total_num_tokens + page) if stage.full else 0
    amount += stage.window * (sizes.window_tokens + page) if stage.window else 0
    slots = (sizes.state_slots + 1) * stage.target.slot
    return amount + slots + _drafts(arguments, sizes) * stage.target.slot


def _drafts(arguments: Arguments, sizes: Sizes) -> int:
    """Intermediate states of speculation: draft tokens for each request that may run, and one."""
    if not arguments.draft_tokens:
        return 0
    return (sizes.state_slots // arguments.slots_per_request + 1) * arguments.draft_tokens


class _Stage:
    """The groups and tensors of one pipeline stage."""

    def __init__(self, build: Building, pools: Pools, stage: Stage, sizes: Sizes) -> None:
        self.build, self.pools, self.stage, self.sizes = build, pools, stage, sizes
        self.arguments = pools.arguments
        self.page = self.arguments.page_size
        keeping, windows, states = stage.keeping
        self.full = build.group(
            Group("full", GroupKind.FULL, 0, keeping, self.page, shards=self.arguments.dcp),
            BlockPool("tokens", sizes.max_total_num_tokens // self.page + 1, first=1),
        )
        self.window = self.state = -1
        if pools.window is not None and sizes.window_tokens:
            self.window = build.group(
                Group(
                    "window",
                    GroupKind.WINDOW,
                    len(build.pools),
                    windows,
                    self.page,
                    window=pools.window,
                    limit=trailing(pools),
                ),
                BlockPool("window tokens", sizes.window_tokens // self.page + 1, first=1),
            )
        if sizes.state_slots:
            self.state = build.group(
                Group(
                    "state",
                    GroupKind.STATE,
                    len(build.pools),
                    states,
                    1,
                    fixed=self.arguments.slots_per_request,
                ),
                BlockPool("states", sizes.state_slots + 1, first=1),
            )

    def layers(self, stages: list[list[Layer]], number: int) -> None:
        first = sum(len(layers) for layers in stages[:number])
        states: dict[tuple[str, int], list[tuple[int, Stored]]] = {}
        for index, layer in enumerate(stages[number], first):
            for part in layer.parts:
                if part.kind is Kind.STATE:
                    for term in part_terms(part, store_of(self.arguments, part)):
                        one = stored(term.on_rank(self.arguments.state_tp)).whole()
                        states.setdefault((one.name, one.content), []).append((index, one))
                elif part.kind is not Kind.NONE:
                    self._tokens(part, index)
        for (name, content), own in states.items():
            self._states(name, content, own)
        self._beside()

    def _tokens(self, part: Part, layer: int) -> None:
        """K and V, latent, or index keys of one layer: a row for each token of its pool."""
        ranks = self.arguments.attn_tp // self.arguments.dcp
        terms = [
            heads_on_rank(term, ranks)
            for term in part_terms(part, store_of(self.arguments, part))
            if term.grows is Grows.TOKEN
        ]
        in_window = self.arguments.window_pool and is_window(part)
        group = self.window if in_window else self.full
        if part.kind is Kind.INDEXER:
            self._index(terms[0], layer, group)
            return
        parts = [stored(term) for term in terms]
        if part.kind is Kind.MLA:
            self._latent(parts, layer, group)
            return
        split = [data_and_scales(one, term.factors[-1].value) for one, term in zip(parts, terms, strict=True)]
        if all(pair is not None for pair in split):
            for pair in split:
                assert pair is not None
                for one in pair:
                    self._rows(one, layer, group)
        elif len(parts) == 2 and parts[0].content == parts[1].content and parts[0].heads == parts[1].heads:
            self._fused(parts, layer, group)
        else:
            for one in parts:
                self._rows(one, layer, group)

    def _row_count(self, group: int) -> int:
        return self.build.pools[self.build.groups[group].pool].num_blocks * self.page

    def _rows(
        self, one: Stored, layer: int, group: int, *, offset: int = 0, tensor: int | None = None
    ) -> None:
        rows = self._row_count(group)
        if tensor is None:
            shape = (rows, one.heads, one.content // element_bytes(one.dtype))
            tensor = self.build.tensor(f"{one.name}.{layer}", shape, one.dtype)
        self.build.window(
            one, layer, group, tensor, blocks=rows // self.page, states=self.page, offset=offset
        )

    def _fused(self, parts: list[Stored], layer: int, group: int) -> None:
        """[2, rows, heads, head_dim]: K is the first half, V the second."""
        one, rows = parts[0], self._row_count(group)
        tensor = self.build.tensor(
            f"kv.{layer}", (2, rows, one.heads, one.content // element_bytes(one.dtype)), one.dtype
        )
        for half, part in enumerate(parts):
            self._rows(part, layer, group, offset=half * rows * one.heads * one.content, tensor=tensor)

    def _latent(self, parts: list[Stored], layer: int, group: int) -> None:
        """[rows, 1, width]: latent and rope key in one row (sparse attention in fp8: records of bytes)."""
        rows, width = self._row_count(group), sum(part.content for part in parts)
        dtype = parts[0].dtype if len({part.dtype for part in parts}) == 1 else "uint8"
        tensor = self.build.tensor(f"latent.{layer}", (rows, 1, width // element_bytes(dtype)), dtype)
        joined = replace(parts[0], content=width, dtype=dtype)
        self.build.window(joined, layer, group, tensor, blocks=rows // self.page, states=self.page)
        components, offset = [], 0
        for part in parts:
            components.append(part.component(offset))
            offset += part.content
        self.build.views[-1] = replace(self.build.views[-1], components=tuple(components))

    def _index(self, term: Term, layer: int, group: int) -> None:
        """[pages, page · (index_head_dim + 4)] bytes: the page's keys, then its scales."""
        one, pages = stored(term), self._row_count(group) // self.page
        width = term.factors[-1].value
        scale = one.content - width
        if one.packing.elements == 1 or scale != SCALE_BYTES:
            self._rows(one, layer, group)
            return
        tensor = self.build.tensor(f"index.{layer}", (pages, self.page * one.content), "uint8")
        stride = self.page * one.content
        for part, offset in (
            (replace(one, content=width), 0),
            (replace(one, name=f"{one.name}_scale", content=scale), self.page * width),
        ):
            self.build.window(
                part, layer, group, tensor, blocks=pages, states=self.page, offset=offset, block_stride=stride
            )

    def _states(self, name: str, content: int, own: list[tuple[int, Stored]]) -> None:
        """[layers, slots + 1, …]: one tensor for all layers of the stage."""
        slots = self.sizes.state_slots + 1
        one = own[0][1]
        tensor = self.build.tensor(name, (len(own), slots, content // element_bytes(one.dtype)), one.dtype)
        for place, (layer, part) in enumerate(own):
            self.build.window(
                part, layer, self.state, tensor, blocks=slots, states=1, offset=place * slots * content
            )

    def _beside(self) -> None:
        """The draft's layers and workspaces: rows without a meaning of their own here."""
        rows = {
            "draft": self.stage.draft_full * self._row_count(self.full),
            "dequantized": self.stage.extra * self._row_count(self.full),
            "draft window": self.stage.draft_window * self._row_count(self.window) if self.window >= 0 else 0,
            "draft states": _drafts(self.arguments, self.sizes) * self.stage.target.slot,
        }
        for name, amount in rows.items():
            if amount:
                self.build.tensor(name, (amount,), "uint8")
