"""Bytes of one token (the "cell") and of one state slot on a rank, layer by layer.

sgl-project/sglang 0.5.23 model_executor/pool_configurator.py (_compute_cell_size, HybridSWAPoolConfigurator),
configs/mamba_utils.py. Heads are divided rounding down, at least one: max(1, heads // (tp // dcp)).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from kvplan.dtypes import KV_DTYPES, scalar
from kvplan.engines.base import has_kind, named_or_float32, part_terms
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.dtypes import FP4, NVFP4_ROW, copies_layers, keeps_scales_twice
from kvplan.engines.sglang.start.models import is_window
from kvplan.errors import KvplanError
from kvplan.families import FullAttention, Kind, Part, Storage
from kvplan.model import Layer, Model
from kvplan.record import field_names, record, replace
from kvplan.terms import Grows, Term


@record()
class Cell:
    """One layer on one rank. full, window: bytes a token of K, V or latent in either pool; k: the share of K
    (all of a latent); index: bytes a token of index keys; conv, ssm: bytes of one state slot."""

    full: int = 0
    full_k: int = 0
    window: int = 0
    window_k: int = 0
    index: int = 0
    conv: int = 0
    ssm: int = 0

    def __add__(self, other: Cell) -> Cell:
        return Cell(*(getattr(self, name) + getattr(other, name) for name in field_names(Cell)))

    def times(self, count: int) -> Cell:
        return Cell(*(getattr(self, name) * count for name in field_names(Cell)))

    @property
    def slot(self) -> int:
        return self.conv + self.ssm


def pool_layers(model: Model, arguments: Arguments) -> list[Layer]:
    """The layers as SGLang's pools price them: where windows have no pool of their own, a window layer of
    other heads takes the full layers' row (pool_configurator.py, _compute_cell_size)."""
    layers = _with_encoder(model, _counted_layers(model))
    if not arguments.rules.index_elided:
        layers = _all_indexed(layers)
    if not arguments.rules.glm_rope:
        layers = _rope_of_heads(model, layers)
    full = next((part for layer in layers for part in layer.parts if part.kind is Kind.FULL), None)
    if arguments.window_pool or full is None:
        return layers
    uniform = {
        layer: Layer(tuple(full if part.kind is Kind.SLIDING else part for part in layer.parts))
        for layer in set(layers)
    }
    return [uniform[layer] for layer in layers]


def _rope_of_heads(model: Model, layers: list[Layer]) -> list[Layer]:
    """GLM-5.2's and 5.3's ``head_dim`` in the place of ``qk_rope_head_dim``: so the config class of
    transformers 5.6.0, which 0.5.11 and 0.5.12 pin, reads them (recorded answers)."""
    width = (model.config or {}).get("head_dim")
    if model.model_type != "glm_moe_dsa" or not isinstance(width, int):
        return layers
    return [
        Layer(
            tuple(
                replace(part, qk_rope_head_dim=width) if part.kind is Kind.MLA else part
                for part in layer.parts
            )
        )
        for layer in layers
    ]


def _all_indexed(layers: list[Layer]) -> list[Layer]:
    """Index keys beside every latent, also where a layer borrows another's choice of tokens (GLM-5.3)."""
    keys = next((part for layer in layers for part in layer.parts if part.kind is Kind.INDEXER), None)
    if keys is None:
        return layers
    return [
        Layer((*layer.parts, keys)) if Kind.MLA in layer.kinds and keys not in layer.parts else layer
        for layer in layers
    ]


def _with_encoder(model: Model, layers: list[Layer]) -> list[Layer]:
    """A cross attention is a row of the same pool: the encoder's tokens lie in a request's own slots.

    Whisper numbers its encoder's layers before the decoder's (models/whisper.py), and rows are allocated for
    them; Mllama's cross layers are layers of the decoder (models/mllama.py).
    """
    if not has_kind(model, Kind.CROSS):
        return layers
    encoder = facts_of(model).encoder
    if model.model_type == "whisper" and not encoder:
        raise KvplanError("unknown-rule", f"{model.id}: how many layers the encoder has is not known")
    found: list[Layer] = []
    for layer in layers:
        for part in layer.parts:
            if part.kind is Kind.CROSS:
                found.append(Layer((FullAttention(part.num_kv_heads, part.head_dim),)))
            elif part.kind is not Kind.NONE:
                found.append(Layer((part,)))
    return [found[0]] * int(encoder or 0) + found


def _counted_layers(model: Model) -> list[Layer]:
    """The layers as SGLang's pools count them: without states, every layer has rows, used or not.

    Layers that share another's cache or have no attention are given the geometry of the layer at the same
    place of the pattern (mem_cache/kv_cache_configurator.py: layer_num = num_effective_layers).
    """
    layers = model.layers()
    if any(part.kind is Kind.STATE for run in model.runs for part in run.layer.parts):
        return layers
    own = [index for index, layer in enumerate(layers) if not _is_empty(layer)]
    if len(own) == len(layers) or not own:
        return layers
    geometries = {layers[index] for index in own}
    if len(geometries) == 1:
        return [layers[own[0]]] * len(layers)
    period = _period(layers, own)
    if period is None:
        raise KvplanError(
            "unknown-rule",
            f"{model.id}: SGLang gives rows to layers without a cache of their own; which is not known",
        )
    by_place = {index % period: layers[index] for index in own}
    return [layer if not _is_empty(layer) else by_place[index % period] for index, layer in enumerate(layers)]


def _is_empty(layer: Layer) -> bool:
    return layer.kinds <= {Kind.NONE}


def _period(layers: list[Layer], own: list[int]) -> int | None:
    """The shortest period that the layers with a cache obey and that gives each place a layer."""
    for period in range(1, len(own) + 1):
        places: dict[int, Layer] = {}
        if all(places.setdefault(index % period, layers[index]) == layers[index] for index in own):
            return period if len(places) == period else None
    return None


def store_of(arguments: Arguments, part: Part) -> Storage:
    """The latent's record under sparse MLA, conv states in bf16, other states as the config names them.

    Beside a window pool a 4-bit cache is priced as a byte a number, without scales: the element size of
    its type (pool_configurator.py, HybridSWAPoolConfigurator). From 0.5.11 to 0.5.16 sparse MLA's fp8 rows
    were priced without scales, though they are kept with them (DefaultPoolConfigurator).
    """
    return _store(arguments, part.state_dtype)


@lru_cache(maxsize=1024)
def _store(arguments: Arguments, state: str | None) -> Storage:
    wide = arguments.window_pool and arguments.kv.name in FP4
    plain = arguments.latent.name == "fp8_ds_mla" and not arguments.rules.scaled_latent
    return Storage(
        kv=KV_DTYPES["fp8_e4m3"] if wide or plain else arguments.latent,
        dtype=arguments.dtype,
        conv_state=arguments.conv_dtype,
        recurrent_state=arguments.ssm_dtype or scalar(state or "float32"),
        index_key=arguments.index,
    )


@lru_cache(maxsize=4096)
def cell_of(layer: Layer, arguments: Arguments) -> Cell:
    """The cell of one layer."""
    cell = Cell()
    for part in layer.parts:
        cell += _part_cell(part, arguments)
    return cell


def _part_cell(part: Part, arguments: Arguments) -> Cell:
    if part.kind is Kind.NONE:
        return Cell()
    terms = part_terms(part, store_of(arguments, part))
    if part.kind is Kind.STATE:
        on_rank = [term.on_rank(arguments.state_tp) for term in terms]
        conv = sum(term.entry_bytes for term in on_rank if term.name.startswith("conv"))
        return Cell(conv=conv, ssm=sum(term.entry_bytes for term in on_rank) - conv)
    ranks = arguments.attn_tp // arguments.dcp
    total = sum(heads_on_rank(term, ranks).entry_bytes for term in terms if term.grows is Grows.TOKEN)
    if part.kind is Kind.INDEXER:
        return Cell(index=total * arguments.dcp if arguments.rules.index_replicated else total)
    k = sum(heads_on_rank(term, ranks).entry_bytes for term in terms if term.name != "v")
    if _keeps_scales_twice(arguments):
        total, k = total + total // NVFP4_ROW, k + k // NVFP4_ROW
    if arguments.window_pool and is_window(part):
        return Cell(window=total, window_k=k)
    return Cell(full=total, full_k=k)


def _keeps_scales_twice(arguments: Arguments) -> bool:
    given = (arguments.kv, arguments.backend, arguments.device, arguments.rules)
    return not arguments.window_pool and keeps_scales_twice(*given)


def window_of(model: Model) -> int | None:
    """The window of the model's window layers (the largest, where they differ)."""
    parts = (part for run in model.runs for part in run.layer.parts)
    return max((part.window for part in parts if part.window is not None and is_window(part)), default=None)


def heads_on_rank(term: Term, ranks: int) -> Term:
    """max(1, heads // ranks): SGLang rounds down where heads do not divide."""
    factors = tuple(
        replace(factor, value=max(1, factor.value // ranks)) if factor.sharded else factor
        for factor in term.factors
    )
    return term if ranks == 1 else replace(term, factors=factors)


def dequant_workspace(model: Model, arguments: Arguments) -> int:
    """The fp8 copy of one layer that prefill reads a 4-bit cache from: 2 · heads · head_dim a token; a window
    pool is not priced with it."""
    if arguments.window_pool or not copies_layers(arguments.kv, arguments.backend, arguments.rules):
        return 0
    parts = [part for run in model.runs for part in run.layer.parts]
    kinds = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED)  # a full layer's, where there is one
    part = next((part for kind in kinds for part in parts if part.kind is kind), None)
    if part is None:
        return 0
    term = heads_on_rank(part_terms(part, store_of(arguments, part))[0], arguments.attn_tp // arguments.dcp)
    return 2 * prod(factor.value for factor in term.factors)


def state_words(model: Model, arguments: Arguments) -> dict[str, str]:
    """The element types of the states, for the answer's settings."""
    names = {
        (arguments.ssm_dtype or named_or_float32(part)).name
        for run in model.runs
        for part in run.layer.parts
        if part.kind is Kind.STATE
    }
    if not names:
        return {}
    return {"mamba_cache_dtype": arguments.conv_dtype.name, "mamba_ssm_cache_dtype": "+".join(sorted(names))}
