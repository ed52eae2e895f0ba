"""A model as vLLM's classes build it: the parts it caches, how they are stored, which backend each gets."""

from __future__ import annotations

from kvplan.dtypes import KvDtype, kv_dtype
from kvplan.engines.base import rank_terms
from kvplan.engines.vllm.backends import BACKENDS, Ask, Backend, NoBackendError, attention_backend
from kvplan.engines.vllm.compressed import COMPRESSED_BACKENDS
from kvplan.engines.vllm.latent import latent_backend
from kvplan.engines.vllm.resolve import (
    SINK_TYPES,
    Resolved,
    head_width,
    keeps_latent,
    lead_attention,
)
from kvplan.engines.vllm.specs import state_bytes_of
from kvplan.engines.vllm.versions import Rules
from kvplan.errors import KvplanError
from kvplan.families import (
    CompressedAttention,
    FullAttention,
    Kind,
    MultiHeadLatentAttention,
    Part,
    SlidingWindow,
    SparseIndexer,
    Store,
)
from kvplan.model import Layer, Model


class Served:
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

    def as_served(self, part: Part) -> Part:
        """The part as vLLM's class caches it: without a latent kernel, every head's K and V padded to K."""
        if not isinstance(part, MultiHeadLatentAttention) or keeps_latent(self.model):
            return part
        width = part.qk_nope_head_dim + part.qk_rope_head_dim
        if part.sliding_window is not None:
            return SlidingWindow(part.num_heads, width, part.sliding_window)
        return FullAttention(part.num_heads, width)

    def parts(self, layer: Layer) -> list[Part]:
        """The parts that take memory."""
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
            chosen=self.chosen_backend,
            num_heads=self.model.num_attention_heads // resolved.tp,
            windowed=isinstance(part, SlidingWindow),
        )

    def backend(self, part: Part, layer: Layer, word: str) -> Backend | None:
        """The backend of a part; None for state layers, which have no say in block sizes."""
        if part.kind is Kind.STATE:
            return None
        if isinstance(part, SparseIndexer):
            return BACKENDS["MINIMAX_M3_INDEXER" if beside_heads(layer) else "DEEPSEEK_V32_INDEXER"]
        if isinstance(part, FullAttention) and beside_heads(layer):
            return BACKENDS["MINIMAX_M3_SPARSE"]
        if isinstance(part, CompressedAttention):
            if self.resolved.device.major == 12 or not self.resolved.kv.startswith("fp8"):
                raise NoBackendError(
                    f"DeepSeek-V4's kernels do not run with {self.resolved.kv} on {self.resolved.device.name}"
                )
            return BACKENDS["FLASHMLA_SPARSE_DSV4"]
        sparse = any(isinstance(other, SparseIndexer) for other in layer.parts) or self.sparse_model
        key = (part, word)
        if key not in self._backends:
            ask = self.ask(part, word)
            latent = isinstance(part, MultiHeadLatentAttention)
            self._backends[key] = latent_backend(ask, sparse=sparse) if latent else attention_backend(ask)
        return self._backends[key]

    @property
    def chosen_backend(self) -> str | None:
        """As asked; Gemma-4's two head sizes are left to Triton where FlashAttention 4 is missing."""
        resolved = self.resolved
        if resolved.attention_backend is not None or not self.model.model_type.startswith("gemma4"):
            return resolved.attention_backend
        widths = {head_width(part) for run in self.model.runs for part in self.parts(run.layer)}
        return "TRITON_ATTN" if len(widths) > 1 and resolved.device.major != 10 else None

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
        if BACKENDS["FLASHMLA_SPARSE_DSV4"] in found:
            found += [BACKENDS[name] for name in COMPRESSED_BACKENDS]
        if self.resolved.block_size is not None:
            for backend in found:
                if not backend.accepts(self.resolved.block_size):
                    raise NoBackendError(
                        f"{backend.name} does not take blocks of {self.resolved.block_size} tokens"
                    )
        return found

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


def beside_heads(layer: Layer) -> bool:
    """An indexer beside K and V per head (MiniMax-M3), not beside a latent."""
    kinds = {part.kind for part in layer.parts}
    return Kind.INDEXER in kinds and Kind.FULL in kinds


def unknown_to_vllm(part: Part) -> KvplanError:
    """The refusal of a family for which vLLM's rule is not known."""
    return KvplanError("unknown-layer-type", f"vLLM's rules for {part.family} layers are not known")
