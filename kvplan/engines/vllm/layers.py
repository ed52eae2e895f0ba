"""From a model's layers to specs: backend, block size and page of every cache-bearing part.

vllm-project/vllm 0.32: vllm/platforms/interface.py (update_block_size_for_backend, _align_hybrid_block_size,
_align_heterogeneous_kv_block_size) and the get_kv_cache_spec methods of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from kvplan.dtypes import KvDtype, kv_dtype
from kvplan.engines.base import rank_terms
from kvplan.engines.vllm.backends import (
    BACKENDS,
    DEFAULT_BLOCK_SIZE,
    Ask,
    Backend,
    attention_backend,
    common_block_size,
    latent_backend,
    layer_flash,
    stored_latent,
)
from kvplan.engines.vllm.compressed import compressed_specs
from kvplan.engines.vllm.resolve import (
    SINK_TYPES,
    Resolved,
    head_width,
    keeps_latent,
    lead_attention,
)
from kvplan.engines.vllm.specs import Spec, SpecKind, shape_of, state_bytes_of
from kvplan.engines.vllm.versions import Rules
from kvplan.errors import KvplanError
from kvplan.families import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    Kind,
    LightningAttention,
    Mamba1,
    Mamba2,
    MultiHeadLatentAttention,
    Part,
    ShortConvolution,
    SlidingWindow,
    SparseIndexer,
    Store,
)
from kvplan.model import Layer, Model
from kvplan.units import ceil_div

STATE_FAMILIES = (Mamba1, Mamba2, GatedDeltaNet, KimiDeltaAttention, LightningAttention, ShortConvolution)
GDN_CHECKPOINT_STEP = 64
MLA_HYBRID_STEP = 128


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """A spec, the decoder layer it belongs to and whether a drafter owns it."""

    layer: int
    spec: Spec
    draft: bool


@dataclass(frozen=True, slots=True)
class Built:
    """All specs in the order of registration, and what was decided on the way."""

    specs: tuple[LayerSpec, ...]
    block_size: int
    mamba_block_size: int | None
    kv: str
    backends: tuple[str, ...]
    block_outermost: bool


class Builder:
    """One model under one set of resolved settings."""

    def __init__(self, model: Model, resolved: Resolved, rules: Rules) -> None:
        self.model, self.resolved, self.rules = model, resolved, rules
        lead = lead_attention(model)
        self.model_head_dim = head_width(self.as_served(lead)) if lead is not None else 0
        self.lead = None if lead is None else self.as_served(lead)
        self.layers: list[tuple[int, Layer, bool]] = [
            (i, layer, False) for i, layer in enumerate(model.layers())
        ]
        if resolved.spec_tokens:
            count = len(self.layers)
            self.layers += [(count + i, layer, True) for i, layer in enumerate(model.draft_layers)]
        self.skipped = self._unquantized_layers()
        self._backends: dict[tuple[Part, str], Backend] = {}

    # ------------------------------------------------------------------------------------------ parts

    def as_served(self, part: Part) -> Part:
        """The part as vLLM's class caches it: without a latent kernel, K and V of every head, V padded to K."""
        if not isinstance(part, MultiHeadLatentAttention) or keeps_latent(self.model):
            return part
        width = part.qk_nope_head_dim + part.qk_rope_head_dim
        if part.sliding_window is not None:
            return SlidingWindow(part.num_heads, width, part.sliding_window)
        return FullAttention(part.num_heads, width)

    def parts(self, layer: Layer) -> list[Part]:
        return [self.as_served(part) for part in layer.parts if part.kind is not Kind.NONE]

    def _unquantized_layers(self) -> frozenset[int]:
        """TurboQuant leaves the first two and last two layers of a dense model in 16 bit."""
        if not self.resolved.kv.startswith("turboquant_") or self.resolved.hybrid:
            return frozenset()
        count = self.model.num_layers
        edge = min(2, count // 2)
        return frozenset([*range(edge), *range(count - edge, count)])

    def kv_word(self, layer: int) -> str:
        return "auto" if layer in self.skipped else self.resolved.kv

    def format_of(self, word: str) -> KvDtype:
        return kv_dtype(self.resolved.dtype.name if word == "auto" else word)

    def store(self, word: str) -> Store:
        resolved = self.resolved
        return Store(
            kv=self.format_of(word),
            dtype=resolved.dtype,
            conv_state=resolved.conv_dtype,
            recurrent_state=resolved.ssm_dtype or resolved.conv_dtype,
            conv_columns_less=1 - resolved.spec_tokens,
        )

    # --------------------------------------------------------------------------------------- backends

    def ask(self, part: Part, word: str) -> Ask:
        resolved = self.resolved
        width = head_width(part)
        return Ask(
            device=resolved.device,
            kv=word,
            dtype=resolved.dtype.name,
            head_dim=width,
            v_head_dim=getattr(part, "v_head_dim", None) or width
            if not isinstance(part, MultiHeadLatentAttention)
            else width,
            model_head_dim=self.model_head_dim,
            sinks=self.model.model_type in SINK_TYPES,
            mm_prefix=resolved.mm_prefix,
            softcap=bool(self.model.facts.get("attn_logit_softcapping")),
            dcp=resolved.dcp > 1,
            block_size=resolved.block_size,
            chosen=resolved.attention_backend,
            num_heads=self.model.num_attention_heads // resolved.tp,
        )

    def backend(self, part: Part, layer: Layer, word: str) -> Backend | None:
        """The backend of a part; None for state layers, which have no say in block sizes."""
        if part.kind is Kind.STATE:
            return None
        if isinstance(part, SparseIndexer):
            return BACKENDS["DEEPSEEK_V32_INDEXER"]
        if isinstance(part, CompressedAttention):
            return BACKENDS["FLASHMLA_SPARSE_DSV4"]
        sparse = any(isinstance(other, SparseIndexer) for other in layer.parts) or self.sparse_model
        key = (part, word)
        if key not in self._backends:
            ask = self.ask(part, word)
            latent = isinstance(part, MultiHeadLatentAttention)
            self._backends[key] = latent_backend(ask, sparse=sparse) if latent else attention_backend(ask)
        return self._backends[key]

    @property
    def sparse_model(self) -> bool:
        """Layers that borrow another layer's indexer are sparse too."""
        return any(isinstance(part, SparseIndexer) for run in self.model.runs for part in run.layer.parts)

    def backends(self) -> list[Backend]:
        """The distinct backends of all attention layers, in layer order."""
        found: list[Backend] = []
        for index, layer, _ in self.layers:
            for part in self.parts(layer):
                backend = self.backend(part, layer, self.kv_word(index))
                if backend is not None and backend not in found:
                    found.append(backend)
        return found

    # -------------------------------------------------------------------------------------- block size

    def state_parts(self) -> list[Part]:
        seen: dict[Part, None] = {}
        for _, layer, _ in self.layers:
            for part in layer.parts:
                if part.kind is Kind.STATE:
                    seen.setdefault(part)
        return list(seen)

    def token_bytes(self, part: Part, word: str) -> int:
        """Bytes of one token in one layer on one rank."""
        return state_bytes_of(rank_terms(part, self.store(word), self.resolved.tp))

    def aligned(self, block_size: int, backends: list[Backend], state_bytes: int) -> tuple[int, int]:
        """(block size, attention page): an attention page is at least one state, in whole kernel blocks."""
        assert self.lead is not None
        lead = self.lead
        if not isinstance(lead, MultiHeadLatentAttention):
            lead = FullAttention(getattr(lead, "num_kv_heads", 0), head_width(lead))
        per_token = self.token_bytes(lead, self.resolved.kv)
        step = max(backends[0].smallest, block_size)
        if isinstance(lead, MultiHeadLatentAttention):
            step = max(step, MLA_HYBRID_STEP)
        if self.rules.gdn_checkpoint and self.resolved.mamba_mode == "align" and self.has_gdn:
            step = lcm(step, GDN_CHECKPOINT_STEP)
        size = step * ceil_div(state_bytes, step * per_token)
        common = lcm(*(backend.smallest for backend in backends))
        size = max(block_size, common * ceil_div(size, common))
        return size, size * per_token

    @property
    def has_gdn(self) -> bool:
        return any(isinstance(part, GatedDeltaNet) for part in self.state_parts())

    def heterogeneous(self, block_size: int, backends: list[Backend]) -> int:
        """Layers left in 16 bit beside a quantized cache: the quantized page grows to cover theirs."""
        assert self.lead is not None
        native = self.token_bytes(self.lead, "auto")
        if backends[0].name == "TURBOQUANT":
            primary = self.token_bytes(self.lead, self.resolved.kv)
        else:
            # The first layer's backend does not know the packing and counts one byte a number.
            primary = native // self.resolved.dtype.bytes
        if native == primary:
            return block_size
        smallest = backends[0].smallest
        step = max(smallest, block_size)
        return max(block_size, step * ceil_div(native * smallest, step * primary))

    # ------------------------------------------------------------------------------------------- specs

    def build(self) -> Built:
        """Raises NoBackend, KvplanError(unknown-layer-type)."""
        resolved = self.resolved
        backends = self.backends()
        block_size = resolved.block_size or (common_block_size(backends) if backends else DEFAULT_BLOCK_SIZE)
        states = self.state_parts()
        mamba_page: int | None = None
        mamba_block: int | None = None
        if states:
            mamba_block = block_size if resolved.mamba_mode == "align" else resolved.lengths.max_model_len
            largest = max(self.token_bytes(self._state(part), resolved.kv) for part in states)
            if backends and resolved.hybrid:
                block_size, page = self.aligned(block_size, backends, largest)
                mamba_page = page if page != largest else None
                if resolved.mamba_mode == "align":
                    mamba_block = block_size
        if self.skipped:
            block_size = self.heterogeneous(block_size, backends)
        kv = resolved.kv
        specs: list[LayerSpec] = []
        cache: dict[tuple[Part, str, Layer], tuple[Spec, ...]] = {}
        for index, layer, draft in self.layers:
            for part in self.parts(layer):
                word = self.kv_word(index)
                key = (part, word, layer)
                if key not in cache:
                    cache[key] = self.specs_of(part, layer, word, block_size, mamba_block, mamba_page)
                specs += [LayerSpec(index, spec, draft) for spec in cache[key]]
        if any(backend.name == "FLASHMLA_SPARSE" for backend in backends):
            kv = stored_latent(self.ask(self.lead, kv), BACKENDS["FLASHMLA_SPARSE"]) if self.lead else kv
        compressed = any(
            isinstance(p, CompressedAttention) for _, layer, _ in self.layers for p in layer.parts
        )
        return Built(
            tuple(specs), block_size, mamba_block, kv, tuple(sorted(b.name for b in backends)), compressed
        )

    def specs_of(
        self,
        part: Part,
        layer: Layer,
        word: str,
        block_size: int,
        mamba_block: int | None,
        mamba_page: int | None,
    ) -> tuple[Spec, ...]:
        if part.kind is Kind.STATE:
            assert mamba_block is not None
            return (self._state_spec(part, mamba_block, mamba_page),)
        if isinstance(part, CompressedAttention):
            return compressed_specs(part, self.store(word), block_size)
        backend = self.backend(part, layer, word)
        assert backend is not None
        if isinstance(part, MultiHeadLatentAttention):
            word = stored_latent(self.ask(part, word), backend)
        terms = rank_terms(part, self.store(word), self.resolved.tp)
        shape, state = shape_of(tuple(replace(term, keep_last=None) for term in terms)), state_bytes_of(terms)
        if isinstance(part, SparseIndexer):
            return (Spec(SpecKind.MLA, block_size, state, ("indexer", *shape)),)
        if isinstance(part, MultiHeadLatentAttention):
            indexed = any(isinstance(other, SparseIndexer) for other in layer.parts)
            shape = (word, indexed, *shape)
            if part.sliding_window is not None:
                return (Spec(SpecKind.SLIDING_MLA, block_size, state, shape, window=part.sliding_window),)
            return (Spec(SpecKind.MLA, block_size, state, shape),)
        if isinstance(part, FullAttention):
            return (Spec(SpecKind.FULL, block_size, state, shape),)
        if isinstance(part, ChunkedAttention):
            return (Spec(SpecKind.CHUNKED, block_size, state, shape, window=part.attention_chunk_size),)
        if isinstance(part, CrossAttention):
            return (Spec(SpecKind.CROSS, block_size, state, shape),)
        if isinstance(part, SlidingWindow):
            own = layer_flash(self.ask(part, word)) if backend.name == "FLASH_ATTN" else backend
            size = own.window_block_size(state, state * block_size)
            return (Spec(SpecKind.SLIDING, size, state, shape, window=part.sliding_window),)
        raise unknown_to_vllm(part)

    def _state(self, part: Part) -> Part:
        """Mamba-2: where the groups do not divide, every rank gets one (extra_groups_for_head_shards)."""
        if isinstance(part, Mamba2) and part.n_groups % self.resolved.tp:
            return replace(part, n_groups=self.resolved.tp)
        if isinstance(part, Mamba1) and self.resolved.spec_tokens:
            # Mamba-1's conv state has no room for draft tokens.
            return replace(part, conv_kernel=part.conv_kernel - self.resolved.spec_tokens)
        return part

    def _state_spec(self, part: Part, block_size: int, padded: int | None) -> Spec:
        if not isinstance(part, STATE_FAMILIES):
            raise unknown_to_vllm(part)
        resolved = self.resolved
        terms = rank_terms(self._state(part), self.store("auto"), resolved.tp)
        slots = 1 + resolved.spec_tokens
        if resolved.mamba_mode == "align":
            slots += 1 + self._checkpoints(part)
        state = state_bytes_of(terms)
        shape = (part.family, *shape_of(terms))
        return Spec(SpecKind.MAMBA, block_size, state, shape, padded=padded, slots=slots, dcp_sharded=False)

    def _checkpoints(self, part: Part) -> int:
        """States reserved for a prefill checkpoint (MambaMixer2, Kimi-K3's KDA; GDN since 0.33)."""
        if isinstance(part, Mamba2):
            return 1
        if isinstance(part, KimiDeltaAttention):
            return int((self.model.architecture or "").startswith("KimiK3"))
        return int(isinstance(part, GatedDeltaNet) and self.rules.gdn_checkpoint)


def unknown_to_vllm(part: Part) -> KvplanError:
    """The refusal of a family for which vLLM's rule is not known."""
    return KvplanError("unknown-layer-type", f"vLLM's rules for {part.family} layers are not known")
