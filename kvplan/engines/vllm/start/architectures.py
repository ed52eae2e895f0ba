"""Which architectures vLLM builds: model_executor/models/registry.py of vllm-project/vllm 0.8.5 to 0.33.

What a model's class decides: whether it pools, which states prefix caching keeps, what images see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from kvplan.engines.supported import classes
from kvplan.engines.vllm.classes import class_of
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import Rules, rules_of
from kvplan.errors import KvplanError
from kvplan.families import (
    FullAttention,
    Kind,
    KvConvolution,
    NgramEmbedding,
    Part,
    WindowedConvolution,
)
from kvplan.later import regex
from kvplan.model import SENTENCES, EncoderInput, Layer, Model
from kvplan.record import replace
from kvplan.settings import Layout

GENERATING = classes("vllm", "generates")
"""Classes that generate text, with and without other inputs, and the releases that have them."""
POOLING = classes("vllm", "pools")
"""Classes that pool: embeddings, rewards, classification."""
NO_PIPELINE = frozenset(classes("vllm", "one_stage"))
"""Generating classes without SupportsPP."""
THROUGH_TRANSFORMERS = frozenset(classes("vllm", "through_transformers"))
"""transformers 5.23 classes that vLLM runs itself where every layer is attention (is_backend_compatible)."""


@lru_cache(maxsize=64)
def as_run(model: Model, version: str) -> Model:
    """The model as the release builds it, where its class knows less of it than the config says."""
    rules = rules_of(version)
    reads_images = model.encoder is not None and model.encoder.input is EncoderInput.IMAGE
    # vllm/model_executor/models/transformers/base.py (create_attention_instances): a text model without an
    # encoder of its own gets one attention a layer, layers that read images too (Mllama, since 0.11).
    if rules.image_layers_full and reads_images and model.architecture in THROUGH_TRANSFORMERS:
        return with_parts(replace(model, encoder=None), _plain)
    heads = model.num_attention_heads
    # vllm/models/glm5next/common/attention.py, until 0.24 deepseek_v2.py: every latent layer has an indexer,
    # those too that share another's choice.
    if model.model_type == "glm5_next_text" or not rules.borrowed_indexers:
        model = _all_indexed(model)
    if any(isinstance(part, KvConvolution) for run in model.runs for part in run.layer.parts):
        return _inkling(model)
    # vllm/model_executor/models/commandr.py, before 0.29.
    if not rules.head_dim_stated and model.model_type == "cohere2" and heads:
        width = model.hidden_size // heads
        return with_parts(model, lambda part: _of_width(part, width))
    return model


def _inkling(model: Model) -> Model:
    """vllm/models/inkling/nvidia/: convolutions are kept in pages, and a layer is windowed where
    local_layer_ids names it."""
    heads, width = (model.facts.get(f"serving_full_{name}") for name in ("kv_heads", "head_dim"))
    whole = (heads, width) if isinstance(heads, int) and isinstance(width, int) else None

    def served(part: Part) -> Part:
        if isinstance(part, KvConvolution):
            own = whole or (part.num_kv_heads, part.head_dim)
            return WindowedConvolution(*own, part.hidden_size, part.conv_kernel)
        return FullAttention(*whole) if whole and part.kind is Kind.SLIDING else part

    return with_parts(model, served)


def _all_indexed(model: Model) -> Model:
    own = next((p for run in model.runs for p in run.layer.parts if p.kind is Kind.INDEXER), None)
    if own is None:
        return model

    def layer_of(layer: Layer) -> Layer:
        bare = Kind.MLA in layer.kinds and Kind.INDEXER not in layer.kinds
        return replace(layer, parts=(*layer.parts, own)) if bare else layer

    return replace(model, runs=tuple(replace(run, layer=layer_of(run.layer)) for run in model.runs))


def _plain(part: Part) -> Part:
    return FullAttention(part.num_kv_heads, part.head_dim) if part.kind is Kind.CROSS else part


def _of_width(part: Part, width: int) -> Part:
    return replace(part, head_dim=width) if part.kind in (Kind.FULL, Kind.SLIDING) else part


def with_parts(model: Model, change: Callable[[Part], Part]) -> Model:
    """The model with every part changed so."""
    runs = tuple(
        replace(run, layer=replace(run.layer, parts=tuple(change(part) for part in run.layer.parts)))
        for run in model.runs
    )
    return replace(model, runs=runs)


PREFIX_WRAPPERS = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
"""Wrappers in which image tokens see each other (model_arch_config_convertor.py, is_mm_prefix_lm)."""
POOLING_ENDINGS = (
    "ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification",
    "ClassificationModel", "ForRewardModeling", "RewardModel",
)  # fmt: skip


_EMBEDS = regex(r"(?<![a-z0-9])embed(?:ding|dings|der)?(?![a-z0-9])")
"""Names of checkpoints that bring a modules.json: Qwen3-Embedding-0.6B, jina-code-embeddings-1.5b."""


def is_pooling(model: Model, settings: Layout) -> bool:
    """Whether it pools: as ``--runner`` says, as the files of sentence-transformers beside the config do, or
    as its class does, by its name where vLLM does not build it itself.

    vllm-project/vllm vllm/config/model.py, _get_default_runner_type and _SUFFIX_TO_DEFAULTS (0.10 to 0.33);
    transformers_utils/config.py, get_pooling_config, reads modules.json. Of a model that is known by its id
    alone the id says whether there is one.
    """
    asked = VllmOptions.of(settings).runner
    if asked != "auto":
        return asked == "pooling"
    if model.facts.get(SENTENCES) or _EMBEDS.search(model.id.rpartition("/")[2].lower()):
        return True
    name = model.architecture or ""
    if name in GENERATING:
        return False
    if name in POOLING or name.endswith(POOLING_ENDINGS):
        return True
    return name.endswith("Model") and not name.endswith(("LMHeadModel", "ChatModel"))


def mamba_mode(model: Model, rules: Rules, drafts: int, asked: str | None = None) -> str:
    """States that prefix caching keeps: one of every block, those of the last two, or (before 0.15) none.
    asked: --mamba-cache-mode, which ``none`` leaves to the default (MambaModelConfig)."""
    supported = class_of(model.architecture).every_state
    if asked == "all" and rules.every_state_asked and rules.state_at_end:
        return "all" if supported else "align"
    if asked == "align" and rules.state_at_end:
        return "align"
    every = rules.every_state and supported
    if every and (rules.every_state_with_drafts or not drafts):
        return "all"
    return "align" if rules.state_at_end else "none"


def sees_whole_items(model: Model, rules: Rules) -> bool:
    """Whether the tokens of an image see each other, those behind them too."""
    if model.facts.get("top_model_type") in PREFIX_WRAPPERS:
        return True
    seen = rules.gemma4_whole_items and model.facts.get("use_bidirectional_attention") == "vision"
    return seen and model.model_type.startswith("gemma4")


def has_ngrams(model: Model) -> bool:
    """Whether layers look up n-grams."""
    return any(isinstance(part, NgramEmbedding) for run in model.runs for part in run.layer.parts)


LATENT_TYPES = frozenset(
    """axk1 bailing_hybrid bailing_moe_v2_5 deepseek_ref deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
    dots3_note dots3_note_text glm4_moe_lite glm5_next glm5_next_text glm_moe_dsa hy_v4 kimi_k2 kimi_linear
    longcat_flash longcat_flash_ngram pangu_ultra_moe sarvam_mla""".split()
)
"""Model types whose attention vLLM keeps as a latent (model_arch_config_convertor.py, is_deepseek_mla)."""


def lead_attention(model: Model) -> Part | None:
    """The first attention part: its widths stand for the model's (ModelConfig.get_head_size)."""
    kinds = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED, Kind.MLA)
    parts = (part for run in model.runs for part in run.layer.parts if part.kind in kinds)
    return next((part for part in parts if part.key_width), None)


def keeps_latent(model: Model) -> bool:
    """False where vLLM has no latent kernel for the type and caches every head's K and V."""
    return model.model_type in LATENT_TYPES


def grouped_keys(layer: Layer) -> bool:
    """K and V per head with index keys of groups of tokens."""
    indexed = any(part.kind is Kind.INDEXER and part.group > 1 for part in layer.parts)
    return indexed and Kind.FULL in layer.kinds


def registered(parts: Iterable[Part]) -> Iterable[Part]:
    """In the order in which a layer makes its caches: groups' keys before K and V."""
    return sorted(parts, key=lambda part: not (part.kind is Kind.INDEXER and part.group > 1))


def head_width(part: Part) -> int:
    """Numbers in one head's K, or in the latent with its rope key."""
    if not part.key_width:
        raise KvplanError("unknown-layer-type", f"vLLM: no attention width for {part.family}")
    return part.key_width
