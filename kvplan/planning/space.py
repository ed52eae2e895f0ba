"""The candidates: every way to divide the model, in every format, as the engine and the heads allow.

What is rejected here is rejected for every GPU, before any memory is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from kvplan.engines.base import has_kind
from kvplan.engines.budget.law import Rejection
from kvplan.engines.traits import Axes, traits_of
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.planning.ask import DATA_WAYS, DEALT_WAYS, PIPELINE_WAYS, TENSOR_WAYS, Ask, Variant
from kvplan.planning.quality import Quality, kv_quality
from kvplan.record import replace
from kvplan.settings import Settings

WHOLE_LIMIT = ("attn_dp_size",)
"""Options beside which max_num_seqs is meant for all attention groups together (sgl-project/sglang 0.5.23
max_running_requests // attn_dp_size); TensorRT-LLM's max_batch_size is of one rank."""
SLOTS = (256,)
"""llama.cpp: each request has a slot, of 256 at most; --max-num-seqs is not one of its words."""


class Layout(NamedTuple):
    """How one engine is divided. dp: data-parallel attention whose experts lie over all ranks; adp: groups
    of data-parallel attention inside the tensor-parallel ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: bool = False
    adp: int = 1

    @property
    def pools(self) -> int:
        """Pools with requests of their own."""
        return self.dp * self.adp

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def plainness(self) -> tuple[int, int, int, int, int]:
        """Smaller is plainer: tensor parallelism, then data-parallel attention with experts over all ranks,
        then decode context parallelism, then pipelines (which make every request wait at each stage)."""
        return (self.pp, self.dcp, self.pools, int(self.ep), self.tp)

    def words(self) -> str:
        """``tp 4 · pp 2``; ``1 GPU`` for neither."""
        named = [f"{name} {value}" for name, value in zip(("tp", "pp", "dp", "dcp"), self[:4]) if value > 1]
        named += ([f"attn dp {self.adp}"] if self.adp > 1 else []) + (["ep"] if self.ep else [])
        return " · ".join(named) or "1 GPU"


class Class(NamedTuple):
    """Everything of a candidate but the GPU, max_num_seqs, max_model_len and the replicas. groups, spread:
    the options for the layout's attention groups and for its experts (see `Axes`)."""

    place: int
    variant: Variant
    kv: str
    kv_quality: Quality
    layout: Layout
    groups: str = ""
    spread: str = ""

    @property
    def quality_rank(self) -> tuple[int, int]:
        """The worse of weights and cache first, then their sum."""
        weights, cache = self.variant.quality.rank, self.kv_quality.rank
        return max(weights, cache), weights + cache

    @property
    def tier(self) -> str:
        """The worse tier of weights and cache."""
        return max((self.variant.quality, self.kv_quality), key=lambda quality: quality.rank).tier

    def words(self) -> str:
        """``fp8 weights, auto cache, tp 4``."""
        return f"{self.variant.label} weights, {self.kv} cache, {self.layout.words()}"

    @property
    def limit_ways(self) -> int:
        """Pools that share one max_num_seqs."""
        return self.layout.adp if self.groups in WHOLE_LIMIT else 1

    def settings(self, base: Settings) -> Settings:
        layout, own = self.layout, base.own
        if layout.adp > 1:
            own |= {self.groups: layout.adp if self.groups in WHOLE_LIMIT else True}
        if layout.ep and self.spread:
            own |= {self.spread: layout.tp}
        return replace(
            base,
            tensor_parallel_size=layout.tp,
            pipeline_parallel_size=layout.pp,
            data_parallel_size=layout.dp,
            decode_context_parallel_size=layout.dcp,
            enable_expert_parallel=layout.ep and not self.spread,
            kv_cache_dtype=self.kv,
            quantization=self.variant.build or base.quantization,
            own=own,
        )


def axes_of(ask: Ask) -> Axes:
    return traits_of(ask.choice.engine.name).axes


def seqs_of(ask: Ask) -> tuple[int, ...]:
    """max_num_seqs tried, rising."""
    return tuple(sorted(set(ask.seqs))) if axes_of(ask).seqs else SLOTS


def classes(ask: Ask) -> tuple[tuple[Class, Rejection | None], ...]:
    """Every class, with the reason for which it is rejected whatever the GPU. The same order each time."""
    bound = ask.mean.input_tokens > ask.mean.output_tokens > 0
    tried = ask.tp, ask.pp, ask.dp, ask.dcp, ask.adp, _experts_asked(ask)
    key = (ask.variants, ask.choice.engine.name, ask.kv_dtypes, ask.quality, bound, tried)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[key] = tuple(_classes(ask, bound=bound))
    return found


_KNOWN: dict[Hashable, tuple[tuple[Class, Rejection | None], ...]] = {}
"""The classes of the latest questions: one answer searches the same ones many times."""
_MOST_KNOWN = 64


def _classes(ask: Ask, *, bound: bool) -> Iterator[tuple[Class, Rejection | None]]:
    """bound: prompts are longer than answers."""
    axes = axes_of(ask)
    words = ask.kv_dtypes or traits_of(ask.choice.engine.name).kv_formats
    place = 0
    for variant in ask.variants:
        model = variant.model
        ways = layouts(ask, variant)
        for word in words:
            quality = kv_quality(model, word, prefill_bound=bound)
            for layout in ways:
                one = Class(place, variant, word, quality, layout, axes.groups, axes.spread)
                place += 1
                yield one, _policy(ask, one) or divides(variant, layout)


def _policy(ask: Ask, one: Class) -> Rejection | None:
    named = ask.kv_dtypes is not None
    if not one.variant.quality.allowed(ask.quality) and len(ask.variants) > 1:
        return Rejection("quality", f"{one.variant.label} weights are {one.variant.quality.tier}:"
                               f" {one.variant.quality.words()}")  # fmt: skip
    if not named and not one.kv_quality.allowed(ask.quality):
        return Rejection("quality", f"a cache in {one.kv} is {one.kv_quality.tier}: {one.kv_quality.words()}")
    return None


def layouts(ask: Ask, variant: Variant) -> list[Layout]:
    """The plainest first. Decode context parallelism only where it would spread copies of the same heads."""
    axes, model = axes_of(ask), variant.model
    experts = variant.experts if axes.experts else 0
    tensor = (ask.tp or TENSOR_WAYS) if axes.tensor else (1,)
    stages = ask.pp or (PIPELINE_WAYS if axes.tensor else DEALT_WAYS)
    found: list[Layout] = []
    for tp in tensor:
        for pp in stages:
            for ep in _expert_ways(ask, experts):
                for dp in _data_ways(ask, axes, ep, pp):
                    if (ep and tp * dp == 1) or ask.adp not in (None, (1,)):
                        continue
                    found += [Layout(tp, pp, dp, dcp, ep) for dcp in _context_ways(ask, axes, model, tp)]
                found += [Layout(tp, pp, 1, 1, ep, adp) for adp in _group_ways(ask, axes, variant, tp)]
    return sorted(set(found), key=lambda layout: (layout.gpus, layout.plainness))


def _expert_ways(ask: Ask, experts: int) -> tuple[bool, ...]:
    if not experts:
        return (False,)
    asked = _experts_asked(ask)
    return (False, True) if asked is None else (asked,)


def _experts_asked(ask: Ask) -> bool | None:
    """Whether experts shall lie over the ranks; False also where the user's own option says how."""
    if axes_of(ask).spread in ask.base.own:
        return False
    return ask.expert_parallel


def _data_ways(ask: Ask, axes: Axes, ep: bool, pp: int) -> tuple[int, ...]:
    """Plain replicas are counted elsewhere: data parallelism is one engine where experts are shared."""
    if not axes.data or not ep or pp > 1:
        return (1,)
    return ask.dp or (1, *DATA_WAYS)


def _context_ways(ask: Ask, axes: Axes, model: Model, tp: int) -> tuple[int, ...]:
    if ask.dcp is not None:
        return ask.dcp
    copies = copies_of_heads(model, tp)
    if not axes.context or copies == 1 or has_kind(model, Kind.SLIDING, Kind.CHUNKED, Kind.STATE):
        return (1,)
    return tuple(ways for ways in (1, 2, 4, 8, 16) if copies % ways == 0)


def _group_ways(ask: Ask, axes: Axes, variant: Variant, tp: int) -> tuple[int, ...]:
    """Groups of data-parallel attention: where ranks would keep the same cache, of latents and of experts."""
    if not axes.groups:
        return ()
    if ask.adp is not None:
        return tuple(ways for ways in ask.adp if ways > 1 and tp % ways == 0)
    copies = copies_of_heads(variant.model, tp)
    if copies == 1 or not (variant.experts or has_kind(variant.model, Kind.MLA)):
        return ()
    ways = tuple(ways for ways in (2, 4, 8, 16) if copies % ways == 0)
    return ways if axes.groups in WHOLE_LIMIT else tuple(one for one in ways if one == tp)


def copies_of_heads(model: Model, tp: int) -> int:
    """How often tensor parallelism keeps the same K and V: a latent on every rank, heads beyond their own."""
    if has_kind(model, Kind.MLA):
        return tp
    heads = [
        value for run in model.runs for part in run.layer.parts
        if isinstance(value := getattr(part, "num_kv_heads", None), int) and value
    ]  # fmt: skip
    return max(1, tp // max(heads)) if heads else 1


def divides(variant: Variant, layout: Layout) -> Rejection | None:
    """Heads over tensor-parallel ranks, experts over all ranks, layers over the stages."""
    model = variant.model
    heads = model.num_attention_heads
    if heads and heads % layout.tp:
        return Rejection("heads", f"{heads} attention heads do not divide over {layout.tp} ranks")
    ways = layout.tp * layout.dp
    if layout.ep and variant.experts % ways:
        return Rejection("experts", f"{variant.experts} experts do not divide over {ways} ranks")
    if layout.pp > model.num_layers:
        return Rejection("layers", f"{model.num_layers} layers make fewer than {layout.pp} stages")
    return None
