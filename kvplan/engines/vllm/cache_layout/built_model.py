"""A model as vLLM's classes build it: the parts it caches, how they are stored, which backend each gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from kvplan.dtypes import KvDtype, kv_dtype
from kvplan.engines.base import SINK_TYPES, has_kind, rank_terms
from kvplan.engines.vllm.backends.selection import Ask, NoBackendError, attention_backend, flashinfer_sinks
from kvplan.engines.vllm.backends.table import BACKENDS, GROUPED, GROUPED_HEADS, POOLED, TAIL, Backend
from kvplan.engines.vllm.cache_layout.specs import state_bytes_of
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.start.architectures import grouped_keys, head_width, keeps_latent, lead_attention
from kvplan.engines.vllm.start.resolve import Resolved
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
    Storage,
    WindowedConvolution,
)
from kvplan.later import later
from kvplan.model import Layer, Model
from kvplan.record import replace

if TYPE_CHECKING:
    from kvplan.engines.vllm.backends import rocm
    from kvplan.engines.vllm.cache_layout import compressed, older_block_sizes, pooled
    from kvplan.engines.vllm.cache_layout import latent as latents
else:
    compressed, latents, older_block_sizes, pooled = later(
        "kvplan.engines.vllm.cache_layout", "compressed latent older_block_sizes pooled"
    )
    rocm = later("kvplan.engines.vllm.backends", "rocm")

# Decoder layers that hold several attention blocks, each a layer of the Model.
ATTENTION_BLOCKS = {"longcat_flash": 2, "longcat_flash_ngram": 2}


def stage_bounds(num_layers: int, stages: int) -> list[tuple[int, int]]:
    """First and last + 1 layer of each pipeline stage; the remainder goes to the last but one first."""
    sizes = [num_layers // stages] * stages
    for back in range(2, num_layers % stages + 2):
        sizes[-back] += 1
    return list(pairwise(accumulate(sizes, initial=0)))


class Served:
    """One model under one set of resolved settings."""

    def __init__(self, model: Model, resolved: Resolved, rules: Rules, version: str) -> None:
        self.model, self.resolved, self.rules, self.version = model, resolved, rules, version
        self.own_layers = model.num_layers
        lead = lead_attention(model)
        self.model_head_dim = head_width(self.as_served(lead)) if lead is not None else 0
        self.lead = None if lead is None else self.as_served(lead)
        self.stages = self._stages()
        self.layers = [entry for stage in self.stages for entry in stage]
        self.skipped = self._unquantized_layers()
        self._backends: dict[tuple[Part, str], Backend] = {}
        self._parts: dict[Layer, list[Part]] = {}

    def _stages(self) -> list[list[tuple[int, Layer]]]:
        """Each pipeline stage's layers with their numbers; a drafter's come last, on the last stage."""
        layers, unit = self.model.layers(), ATTENTION_BLOCKS.get(self.model.model_type, 1)
        bounds = stage_bounds(len(layers) // unit, self.resolved.pp)
        stages = [[(i, layers[i]) for i in range(first * unit, last * unit)] for first, last in bounds]
        stages[-1] += enumerate(self.resolved.draft_layers, len(layers))
        return stages

    def as_served(self, part: Part) -> Part:
        """The part as vLLM's class caches it: without a latent kernel, every head's K and V padded to K."""
        rule = _SERVED_AS.get(type(part))
        return part if rule is None else rule(self, part)

    def _expanded(self, part: MultiHeadLatentAttention) -> Part:
        if keeps_latent(self.model):
            return part
        width = part.qk_nope_head_dim + part.qk_rope_head_dim
        if part.sliding_window is not None:
            return SlidingWindow(part.num_heads, width, part.sliding_window)
        return FullAttention(part.num_heads, width)

    def _own_window(self, part: SlidingWindow) -> SlidingWindow:
        """MiMo-V2's windowed layers have keys of their own, which the transformers class does not read."""
        changed: dict[str, int] = {}
        for name in ("num_kv_heads", "head_dim", "v_head_dim"):
            value = self.model.facts.get(f"serving_window_{name}")
            if isinstance(value, int):
                changed[name] = value
        return replace(part, **changed) if changed else part

    def parts(self, layer: Layer) -> list[Part]:
        """The parts that take memory, in the order in which the classes register them: an indexer before the
        latent that it serves (vllm/model_executor/models/deepseek_v2.py), convolutions before the attention
        whose streams they take (vllm/models/inkling/nvidia/model.py)."""
        if layer not in self._parts:
            self._parts[layer] = self._in_order(layer)
        return self._parts[layer]

    def _in_order(self, layer: Layer) -> list[Part]:
        parts = [self.as_served(part) for part in layer.parts if part.kind is not Kind.NONE]
        if any(part.kind is Kind.MLA for part in parts):
            return sorted(parts, key=lambda part: part.kind is not Kind.INDEXER)
        return sorted(parts, key=lambda part: not has_convolution((part,)))

    def _unquantized_layers(self) -> frozenset[int]:
        """TurboQuant leaves the first two and last two layers of a dense model in 16 bit; others are left by
        number, or as windows (layers/attention/attention.py; latent attention by number alone,
        mla_attention.py)."""
        named = self._named_layers()
        if not self.resolved.kv.startswith("turboquant_") or self.resolved.hybrid:
            return named
        count = self.model.num_layers
        edge = min(2, count // 2)
        return named | frozenset([*range(edge), *range(count - edge, count)])

    def _named_layers(self) -> frozenset[int]:
        """--kv-cache-dtype-skip-layers."""
        names = self.resolved.skip_layers
        if not names:
            return frozenset()
        windows, latents = "sliding_window" in names, self.rules.skips_latent
        return frozenset(
            index
            for index, layer in self.layers
            if (str(index) in names and (latents or Kind.MLA not in layer.kinds))
            or (windows and Kind.SLIDING in layer.kinds)
        )

    def kv_word(self, layer: int) -> str:
        if layer in self.skipped:
            return "auto"
        if layer < self.own_layers or not self.resolved.draft_layers:
            return self.resolved.kv
        # A draft model's layers are numbered from 0 again, and skipped by number.
        skipped = self.resolved.draft_restarts and layer - self.own_layers in self.skipped
        return "auto" if skipped else self.resolved.draft_kv

    def format_of(self, word: str) -> KvDtype:
        return kv_dtype(self.resolved.dtype.name if word == "auto" else word)

    def store(self, word: str) -> Storage:
        resolved = self.resolved
        found = Storage(
            kv=self.format_of(word),
            dtype=resolved.dtype,
            conv_state=resolved.conv_dtype,
            recurrent_state=resolved.ssm_dtype or resolved.conv_dtype,
            conv_columns_less=1 - resolved.spec_tokens,
        )
        return replace(found, index_key=kv_dtype("mxfp4")) if self.small_keys else found

    @property
    def small_keys(self) -> bool:
        """DeepSeek-V4's index keys of 68 bytes, 64 of packed values and 4 scales; before 0.27 they took fp8's
        room (models/deepseek_v4/attention.py)."""
        return self.resolved.index_kv == "mxfp4" and self.rules.small_index_keys

    def ask(self, part: Part, word: str) -> Ask:
        resolved = self.resolved
        width, size = head_width(part), resolved.block_size
        if size is not None and part.kind is Kind.MLA:
            size = older_block_sizes.kernel_block(self, size)
        return Ask(
            device=resolved.device,
            kv=word,
            dtype=resolved.dtype.name,
            head_dim=width,
            v_head_dim=part.value_width,
            model_head_dim=self.model_head_dim,
            sinks=self.model.model_type in SINK_TYPES,
            mm_prefix=resolved.mm_prefix,
            softcap=bool(self.model.facts.get("attn_logit_softcapping")),
            dcp=resolved.dcp > 1,
            block_size=size,
            chosen=self.chosen_backend,
            num_heads=self.model.num_attention_heads // resolved.tp,
            windowed=part.kind in (Kind.SLIDING, Kind.CHUNKED),
            cross=part.kind is Kind.CROSS,
            encoded=self.encoder_decoder,
            flashinfer=resolved.flashinfer,
            nope_width=getattr(part, "qk_nope_head_dim", 0),
            grouped=self._grouped,
            connected=resolved.connected,
            rules=self.rules,
            version=self.version,
        )

    def backend(self, part: Part, layer: Layer, word: str) -> Backend | None:
        """The backend of a part; None for state layers, which have no say in block sizes."""
        if part.kind is Kind.STATE:
            return None
        rule = _OWN_BACKENDS.get(type(part))
        own = None if rule is None else rule(self, part, layer)
        if own is not None:
            return own
        sparse = Kind.INDEXER in layer.kinds or self.sparse_model
        key = (part, word)
        if key not in self._backends:
            ask = self.ask(part, word)
            latent = part.kind is Kind.MLA
            found = latents.note_backend(part, ask) if latent and self.row_width else None
            self._backends[key] = found or _chosen_by_platform(ask, latent=latent, sparse=sparse)
            check_own_kernels(self.model, ask)
        return self._backends[key]

    @property
    def _grouped(self) -> bool:
        """Several query heads share K and V on a rank (flashinfer.py, get_supported_kernel_block_sizes)."""
        heads = getattr(self.lead, "num_kv_heads", None)
        if not isinstance(heads, int) or not heads:
            return False
        tp = self.resolved.tp
        return self.model.num_attention_heads // tp // max(1, heads // tp) > 1

    @property
    def chosen_backend(self) -> str | None:
        """As asked; Gemma-4's two head sizes are left to Triton where FlashAttention 4 is missing."""
        resolved = self.resolved
        if resolved.attention_backend is not None or not self.model.model_type.startswith("gemma4"):
            return resolved.attention_backend
        widths = {head_width(part) for run in self.model.runs for part in self.parts(run.layer)}
        return "TRITON_ATTN" if len(widths) > 1 and resolved.device.major != 10 else None

    @cached_property
    def encoder_decoder(self) -> bool:
        """Some layers read an encoder's output."""
        return has_kind(self.model, Kind.CROSS)

    @cached_property
    def sparse_model(self) -> bool:
        """Layers that borrow another layer's indexer are sparse too."""
        return has_kind(self.model, Kind.INDEXER)

    def backends(self, layers: list[tuple[int, Layer]]) -> list[Backend]:
        """The distinct backends of the layers' attention, in layer order."""
        found: list[Backend] = []
        for layer, word in dict.fromkeys((layer, self.kv_word(index)) for index, layer in layers):
            for part in self.parts(layer):
                backend = self.backend(part, layer, word)
                if backend is not None and backend not in found:
                    found.append(backend)
        if any(backend.name.endswith("_DSV4") for backend in found):
            found += [BACKENDS[name] for name in compressed.COMPRESSED_BACKENDS]
        if any(backend.name.endswith("_DSV41") for backend in found):
            found += compressed.v41_backends(self.resolved.device)
        if any(backend.name == POOLED for backend in found):
            found.append(BACKENDS[TAIL])
        return found

    @property
    def row_width(self) -> int:
        """Numbers of one row of every latent, where a class gives them all the same (dots3), else 0."""
        return int(self.model.facts.get("serving_row_width") or 0)

    def state_parts(self) -> list[Part]:
        seen: dict[Part, None] = {}
        for layer in {id(layer): layer for _, layer in self.layers}.values():
            for part in layer.parts:
                if part.kind is Kind.STATE:
                    seen.setdefault(part)
        return list(seen)

    def token_bytes(self, part: Part, word: str) -> int:
        """Bytes of one token in one layer on one rank."""
        return state_bytes_of(rank_terms(part, self.store(word), self.resolved.tp))


def _indexer_backend(served: Served, part: SparseIndexer, layer: Layer) -> Backend:
    if part.kpool > 1:
        return pooled.pooled_backend(part, served.resolved.device)
    if grouped_keys(layer):
        return BACKENDS[GROUPED]
    if beside_heads(layer):
        return BACKENDS["MINIMAX_M3_INDEXER"]
    return BACKENDS["ROCM_V32_INDEXER" if served.resolved.device.vendor == "amd" else "DEEPSEEK_V32_INDEXER"]


def _indexed_heads_backend(served: Served, part: FullAttention, layer: Layer) -> Backend | None:
    if grouped_keys(layer):
        return BACKENDS[GROUPED_HEADS]
    return BACKENDS["MINIMAX_M3_SPARSE"] if beside_heads(layer) else None


def _compressed_backend(served: Served, part: CompressedAttention, layer: Layer) -> Backend:
    resolved, newer = served.resolved, part.index_of_latent
    return compressed.compressed_backend(resolved.device, resolved.kv, served.version, newer=newer)


_SERVED_AS: dict[type[Part], Callable[[Served, Any], Part]] = {
    SlidingWindow: Served._own_window,
    MultiHeadLatentAttention: Served._expanded,
}
"""Families that vLLM's classes may cache otherwise than the model has them."""
_OWN_BACKENDS: dict[type[Part], Callable[[Served, Any, Layer], Backend | None]] = {
    WindowedConvolution: lambda *_: BACKENDS["INKLING_SCONV_SWA"],
    SparseIndexer: _indexer_backend,
    FullAttention: _indexed_heads_backend,
    CompressedAttention: _compressed_backend,
}
"""Backends that a model's class names itself; the platform selects the others."""


def _chosen_by_platform(ask: Ask, *, latent: bool, sparse: bool) -> Backend:
    """The backend that the platform's class selects (vllm/platforms/cuda.py, rocm.py)."""
    if ask.device.vendor == "amd":
        return rocm.rocm_latent(ask, sparse=sparse) if latent else rocm.rocm_backend(ask)
    return latents.latent_backend(ask, sparse=sparse) if latent else attention_backend(ask)


def check_own_kernels(model: Model, ask: Ask) -> None:
    """Flint's fused kernels write FlashInfer's pages themselves, in bfloat16 (vllm/models/flint/model.py);
    with its sinks FlashInfer is what Blackwell takes, and Hopper where it is asked for. Raises
    NoBackendError."""
    if not class_of(model.architecture).own_kernels:
        return
    if ask.quantized or ask.dtype != "bfloat16":
        raise NoBackendError("Flint's kernels take a cache in bfloat16 only")
    by_itself = (ask.device.major in (10, 12) or ask.device.assumed) and ask.chosen is None
    if not by_itself and (ask.chosen != "FLASHINFER" or not flashinfer_sinks(ask)):
        raise NoBackendError(
            "Flint's kernels need FlashInfer's backend (--attention-backend FLASHINFER) on a GPU of compute"
            f" capability 9.0, 10.x or 12.x; {ask.device.name} would take another"
        )


def beside_heads(layer: Layer) -> bool:
    """An indexer beside K and V per head (MiniMax-M3), not beside a latent."""
    return {Kind.INDEXER, Kind.FULL} <= layer.kinds


def has_convolution(parts: Iterable[Part]) -> bool:
    """Inkling's: it takes the streams of the attention beside it."""
    return any(isinstance(part, WindowedConvolution) for part in parts)


def unknown_to_vllm(part: Part) -> KvplanError:
    """The refusal of a family for which vLLM's rule is not known."""
    return KvplanError("unknown-layer-type", f"vLLM's rules for {part.family} layers are not known")
