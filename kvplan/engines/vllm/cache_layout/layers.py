"""From a model's layers to specs: block size and page of every cache-bearing part.

vllm-project/vllm 0.32: vllm/platforms/interface.py (update_block_size_for_backend, _align_hybrid_block_size,
_align_heterogeneous_kv_block_size) and the get_kv_cache_spec methods of the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any

from kvplan.engines.base import rank_terms
from kvplan.engines.vllm.backends.selection import common_block_size, layer_flash
from kvplan.engines.vllm.backends.table import BACKENDS, DEFAULT_BLOCK_SIZE, GROUPED, TAIL, UNSTRIDED, Backend
from kvplan.engines.vllm.cache_layout.built_model import (
    Served,
    beside_heads,
    has_convolution,
    unknown_to_vllm,
)
from kvplan.engines.vllm.cache_layout.grouping import CannotGroupError
from kvplan.engines.vllm.cache_layout.specs import Shape, Spec, SpecKind, shape_of, state_bytes_of
from kvplan.engines.vllm.start.architectures import grouped_keys, head_width, registered
from kvplan.errors import KvplanError
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Kind,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
    SparseIndexer,
    Storage,
    WindowedConvolution,
)
from kvplan.later import later
from kvplan.model import Layer
from kvplan.named import NamedTuple
from kvplan.record import KeptHash, record, replace
from kvplan.units import ceil_div

if TYPE_CHECKING:
    from kvplan.engines.vllm.cache_layout import compressed as compressed_rules
    from kvplan.engines.vllm.cache_layout import latent as latents
    from kvplan.engines.vllm.cache_layout import older_block_sizes
    from kvplan.engines.vllm.cache_layout import pooled as pooled_rules
    from kvplan.engines.vllm.cache_layout import states as state_rules
else:
    compressed_rules, latents, older_block_sizes, pooled_rules, state_rules = later(
        "kvplan.engines.vllm.cache_layout", "compressed latent older_block_sizes pooled states"
    )

Numbered = list[tuple[int, Layer]]
# Types whose shared attention blocks are registered before all state-space layers.
ATTENTION_FIRST = frozenset({"zamba2"})
_SIDE_BY_SIDE = frozenset(
    ("DEEPSEEK_V4_INDEXER", "DEEPSEEK_V41_INDEXER", TAIL, GROUPED, "DOTS3_NOTE_PADDED_MLA_SPARSE")
)
"""Backends whose pages of several sizes lie beside each other in one block (supported_kv_cache_layouts)."""
_PLAIN_PAGES = frozenset(("TURBOQUANT", "FLEX_ATTENTION", "HPC_ATTN"))
"""Backends that read pages of tokens whose heads lie beside each other, layer by layer, alone (LBNHC)."""
MLA_HYBRID_STEP = 128


@record()
class LayerSpec:
    """A spec, the pipeline stage on which it lies and the number of its layer."""

    stage: int
    spec: Spec
    layer: int


@record()
class Sizes(KeptHash):
    """Tokens of one block, of one state block, and the page to which states are padded (None: no padding).

    shared_page: the page that windows fill and are padded to, where some layers are not quantised.
    """

    block: int
    state_block: int | None = None
    state_page: int | None = None
    shared_page: int | None = None


@record()
class Built:
    """All specs in the order of registration, and what was decided; sizes are the largest stage's."""

    specs: tuple[LayerSpec, ...]
    sizes: Sizes
    kv: str
    backends: tuple[str, ...]
    block_outermost: bool


def build(served: Served) -> Built:
    """Block sizes first, then every layer's specs. Raises NoBackendError, KvplanError(unknown-layer-type)."""
    specs: list[LayerSpec] = []
    kept: dict[Sizes, dict[tuple[Layer, str], tuple[Spec, ...]]] = {}
    used: dict[Backend, None] = {}
    every: list[Sizes] = []
    for stage, layers in enumerate(served.stages):
        # Workers decide for themselves: a stage without attention neither aligns nor pads its states.
        backends = served.backends(layers)
        used.update(dict.fromkeys(backends))
        if not backends and served.rules.states_step:
            backends = served.backends(served.layers)  # decided for the whole model, from its config
        sizes = block_sizes(served, backends, layers)
        every.append(sizes)
        cache = kept.setdefault(sizes, {})
        for index, layer in layers:
            key = (layer, served.kv_word(index))
            if key not in cache:
                place = _Place(served, layer, key[1], sizes)
                parts = registered(served.parts(layer))
                cache[key] = tuple(spec for part in parts for spec in _specs_of(place, part))
            specs += [LayerSpec(stage, spec, index) for spec in cache[key]]
    if served.resolved.stage_numbered and len(served.stages) > 1:
        _check_names(served, specs)
    if served.model.model_type in ATTENTION_FIRST:
        whole = served.model.num_layers
        specs.sort(key=lambda entry: entry.spec.kind is SpecKind.MAMBA or entry.layer >= whole)
    if served.rules.packed_blocks:
        _check_layouts(served, used)
    kv = served.resolved.kv
    if served.lead is not None and BACKENDS["FLASHMLA_SPARSE"] in used:
        kv = latents.stored_latent(served.ask(served.lead, kv), BACKENDS["FLASHMLA_SPARSE"])
    names = tuple(sorted({backend.name for backend in used}))
    largest = max(every, key=lambda sizes: sizes.block)
    return Built(tuple(specs), largest, kv, names, not _SIDE_BY_SIDE.isdisjoint(names))


def _check_layouts(served: Served, used: Iterable[Backend]) -> None:
    """One layout of pages must serve all backends of the model (v1/attention/backends/utils.py,
    get_supported_kv_cache_layouts, 0.29 and later): FlashInfer's kernels on 10.x read blocks by head, some
    read them by token alone. Raises CannotGroupError."""
    names = {backend.name for backend in used}
    plain = _PLAIN_PAGES & names
    other = _SIDE_BY_SIDE & names
    if served.resolved.device.major == 10 and served.resolved.device.vendor == "nvidia":
        other |= {"FLASHINFER"} & names
    if plain and other:
        raise CannotGroupError(
            f"no layout of pages serves both {min(plain)} and {min(other)} on {served.resolved.device.name}"
        )


def _check_names(served: Served, specs: list[LayerSpec]) -> None:
    """An EAGLE head's layer bears the number of layers on its own stage (models/llama_eagle.py,
    target_layer_num), which a layer of the model has too. Raises CannotGroupError where that stops the start:
    on the same stage, or where the two are kept otherwise (v1/core/kv_cache_planning.py)."""
    whole, last = served.model.num_layers, served.stages[-1]
    own = [index for index, _ in last if index < whole]
    number = len(own)
    if number in own:
        raise CannotGroupError(
            f"two layers are named model.layers.{number}: the model's and the EAGLE head's"
        )
    kept = [[one.spec for one in specs if one.layer == index] for index in (number, whole)]
    if number < whole and kept[0] != kept[1]:
        raise CannotGroupError(
            f"layer {number} and the EAGLE head are both named model.layers.{number}, on two pipeline stages,"
            " and kept otherwise"
        )


def block_sizes(served: Served, backends: list[Backend], layers: Numbered) -> Sizes:
    """The user's block size or the backends', grown where states or unquantized layers share the pool.

    layers: those of the stage, whose worker decides for itself.
    """
    resolved = served.resolved
    block = resolved.block_size or _backends_size(served, backends)
    if served.lead is not None and served.lead.kind is Kind.MLA:
        block = older_block_sizes.kernel_block(served, block)
    states = served.state_parts()
    page: int | None = None
    both: int | None = None
    if states and backends and served.lead is not None:  # a model of states alone is not aligned to a draft
        sizes = (state_bytes_of(state_rules.state_terms(served, part)) for part in states)
        largest = max(state_rules.ngram_room(served), *sizes)
        block, shared = _aligned(served, block, backends, largest, layers)
        page = shared if shared != largest else None
    if (served.skipped or resolved.skip_layers) and backends and served.rules.unquantized_layers:
        block, both = _heterogeneous(served, block, backends)
    if not states:
        return Sizes(block, shared_page=both)
    if both is not None and page is not None:
        page = both
    paged = resolved.mamba_mode != "none" and (served.rules.pure_states_blocks or not resolved.state_only)
    return Sizes(block, block if paged else resolved.lengths.max_model_len, page, both)


def _backends_size(served: Served, backends: list[Backend]) -> int:
    """The block size where the user gives none; before 0.31 the first backend's."""
    if not backends:
        return DEFAULT_BLOCK_SIZE
    return common_block_size(backends if served.rules.common_block else backends[:1])


def _aligned(
    served: Served, block: int, backends: list[Backend], state_bytes: int, layers: Numbered
) -> tuple[int, int]:
    """(block size, attention page): an attention page is at least one state, in whole kernel blocks, and in
    whole checkpoint steps where the stage has layers that export checkpoints
    (get_mamba_prefill_checkpoint_alignment)."""
    lead = served.lead
    assert lead is not None
    latent = lead.kind is Kind.MLA
    if not latent:
        lead = FullAttention(getattr(lead, "num_kv_heads", 0), head_width(lead))
    per_token = served.token_bytes(lead, served.resolved.kv)
    if latent and any(
        latents.stored_latent(served.ask(lead, served.resolved.kv), one) == "fp8_ds_mla" for one in backends
    ):
        per_token = head_width(lead)  # a byte a number: the record is not asked
    step = (
        older_block_sizes.states_step(served, lead)
        if served.rules.states_step
        else max(backends[0].smallest, block)
    )
    if latent and served.rules.latent_step:
        step = max(step, MLA_HYBRID_STEP)
    if served.resolved.mamba_mode == "all":
        # Before 0.28: whole chunks of the state's kernel.
        chunk = lcm(mamba_chunk(served), step)
        size = max(block, chunk * ceil_div(ceil_div(state_bytes, per_token), chunk))
        return size, size * per_token
    if served.resolved.mamba_mode == "align":
        parts = (part for _, layer in layers for part in layer.parts)
        step = lcm(step, state_rules.checkpoint_step(served, parts))
    size = step * ceil_div(state_bytes, step * per_token)
    if served.rules.aligned_kernels:
        common = lcm(*(backend.smallest for backend in backends))
        size = common * ceil_div(size, common)
    size = max(block, size)
    return size, size * per_token


def mamba_chunk(served: Served) -> int:
    """Tokens that a state's kernel takes at once (vllm/config/model.py, get_mamba_chunk_size)."""
    stated = served.model.facts.get("mamba_chunk_size")
    return stated if isinstance(stated, int) else 2048


def _heterogeneous(served: Served, block: int, backends: list[Backend]) -> tuple[int, int | None]:
    """(block size, the page that both kinds share) of layers left in 16 bit beside a quantized cache: the
    quantized page grows to cover theirs."""
    if served.lead is None:
        raise KvplanError(
            "unknown-rule",
            f"what a draft in {served.resolved.kv} keeps beside states alone is not known",
            help="--kv-cache-dtype auto",
        )
    native = served.token_bytes(served.lead, "auto")
    if served.resolved.kv in ("auto", "bfloat16", "float16"):
        primary = native
    elif backends[0].name == "TURBOQUANT":
        primary = served.token_bytes(served.lead, served.resolved.kv)
    else:
        # The first layer's backend does not know the packing and counts one byte a number.
        primary = native // served.resolved.dtype.bytes
    if native == primary:
        return block, None
    smallest = backends[0].smallest
    step = max(smallest, block)
    grown = max(block, step * ceil_div(native * smallest, step * primary))
    return grown, grown * primary


class _Place(NamedTuple):
    """A layer whose cache has this word, and the sizes of its stage's blocks."""

    served: Served
    layer: Layer
    word: str
    sizes: Sizes

    def backend(self, part: Part) -> Backend:
        found = self.served.backend(part, self.layer, self.word)
        assert found is not None
        return found


def _specs_of(place: _Place, part: Part) -> tuple[Spec, ...]:
    if part.kind is Kind.STATE:
        block, page = place.sizes.state_block, place.sizes.state_page
        assert block is not None
        return (state_rules.state_spec(place.served, part, block, page),)
    rule = SPECS_OF.get(type(part))
    if rule is None:
        raise unknown_to_vllm(part)
    return rule(place, part)


def _paged(
    place: _Place, part: Part, kind: SpecKind, *, store: Storage | None = None, ahead: Shape = ()
) -> tuple[Spec]:
    """Pages of whole tokens; a window's too keep all that their blocks have room for."""
    served = place.served
    terms = tuple(
        replace(term, keep_last=None)
        for term in rank_terms(part, store or served.store(place.word), served.resolved.tp)
    )
    unstrided = served.rules.pads == "attention" and place.backend(part).name in UNSTRIDED
    shape = (*ahead, *shape_of(terms))
    token_bytes = state_bytes_of(terms)
    return (Spec(kind, place.sizes.block, token_bytes, shape, window=part.window, strided=not unstrided),)


def _windowed(place: _Place, part: SlidingWindow) -> tuple[Spec]:
    """A window chooses a block size of its own; Inkling's class takes the model's
    (vllm/models/inkling/nvidia/attention.py, get_kv_cache_spec)."""
    served, backend = place.served, place.backend(part)
    if place.word == "int4_per_token_head" and not (
        served.rules.packed_windows or served.resolved.disable_hybrid
    ):
        place = place._replace(word="int8_per_token_head")
    (spec,) = _paged(place, part, SpecKind.SLIDING)
    rule = served.rules.window_blocks
    if rule == "shared" or has_convolution(place.layer.parts):
        return (spec,)
    own = layer_flash(served.ask(part, place.word)) if backend.name == "FLASH_ATTN" else backend
    shared = place.sizes.shared_page
    budget = shared or (spec.state_bytes * spec.block_size if rule == "largest" else 0)
    return (replace(spec, block_size=own.window_block_size(spec.state_bytes, budget), padded=shared),)


def _convolution(place: _Place, part: WindowedConvolution) -> tuple[Spec]:
    (spec,) = _paged(place, part, SpecKind.SLIDING)
    return (replace(spec, block_size=part.conv_kernel),)


def _indexed(place: _Place, part: SparseIndexer) -> tuple[Spec, ...]:
    served, block = place.served, place.sizes.block
    if grouped_keys(place.layer):
        return pooled_rules.grouped_specs(part, block, served.resolved)
    store, resolved = served.store(place.word), served.resolved
    if part.kpool > 1:
        drafts = resolved.spec_tokens if served.rules.ring_for_drafts else 0
        return pooled_rules.pooled_specs(part, store, block, resolved.device, drafts)
    if beside_heads(place.layer):
        # MiniMax-M3's index keys stay in 16 bit (vllm/models/minimax_m3/common/indexer.py).
        store = replace(store, index_key=served.format_of("bfloat16"))
    return _paged(place, part, SpecKind.MLA, store=store, ahead=("indexer",))


def _compressed(place: _Place, part: CompressedAttention) -> tuple[Spec, ...]:
    served, resolved, word = place.served, place.served.resolved, place.word
    ask = compressed_rules.V41(resolved.device, word, resolved.spec_tokens, served.rules.v41_whole_rows)
    return compressed_rules.compressed_specs(part, served.store(word), place.sizes.block, ask)


def _latent(place: _Place, part: MultiHeadLatentAttention) -> tuple[Spec]:
    """Groups do not mix layers that own an indexer with layers that borrow one."""
    served, backend = place.served, place.backend(part)
    word = latents.stored_latent(served.ask(part, place.word), backend)
    kind = SpecKind.MLA if part.sliding_window is None else SpecKind.SLIDING_MLA
    indexed = Kind.INDEXER in place.layer.kinds
    (spec,) = _paged(place, part, kind, store=served.store(word), ahead=(word, indexed))
    token_bytes = spec.state_bytes
    if served.row_width:
        spec = replace(spec, state_bytes=served.resolved.dtype.bytes_for(served.row_width))
    if word == "fp8_ds_mla":
        spec = replace(spec, state_bytes=pooled_rules.RECORD)
    pooled = any(other.kind is Kind.INDEXER and other.kpool > 1 for other in place.layer.parts)
    in_rows = pooled or (served.row_width and kind is SpecKind.MLA)
    if in_rows and served.rules.whole_rows:
        spec = replace(spec, stride=pooled_rules.row_stride(backend, spec.state_bytes, word))
    elif served.rules.flat_rows and pooled_rules.reads_flat(backend, word, served.resolved.device):
        spec = replace(spec, stride=token_bytes if served.row_width else spec.state_bytes)
    return (spec,)


SPECS_OF: dict[type[Part], Callable[[_Place, Any], tuple[Spec, ...]]] = {
    FullAttention: partial(_paged, kind=SpecKind.FULL),
    SlidingWindow: _windowed,
    ChunkedAttention: partial(_paged, kind=SpecKind.CHUNKED),
    CrossAttention: partial(_paged, kind=SpecKind.CROSS),
    MultiHeadLatentAttention: _latent,
    SparseIndexer: _indexed,
    CompressedAttention: _compressed,
    WindowedConvolution: _convolution,
}
"""The specs of a part by its family, but for states (`states.STATES`); another family is refused."""
