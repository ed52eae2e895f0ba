"""What a model's class decides: whether it pools, which states prefix caching keeps, what images see."""

from __future__ import annotations

import re

from kvplan.engines.vllm.architectures import GENERATING, POOLING
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import Rules
from kvplan.model import SENTENCES, Model
from kvplan.settings import Layout

PREFIX_WRAPPERS = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
"""Wrappers in which image tokens see each other (model_arch_config_convertor.py, is_mm_prefix_lm)."""
POOLING_ENDINGS = (
    "ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification",
    "ClassificationModel", "ForRewardModeling", "RewardModel",
)  # fmt: skip
EVERY_STATE = frozenset(
    "BambaForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM GraniteMoeHybridForCausalLM "
    "JambaForCausalLM JambaForSequenceClassification Mamba2ForCausalLM MambaForCausalLM NemotronHForCausalLM "
    "NemotronHPuzzleForCausalLM Zamba2ForCausalLM".split()
)
"""Classes with SupportsMambaPrefixCaching (vllm/model_executor/models/interfaces.py)."""


_EMBEDS = re.compile(r"(?<![a-z0-9])embed(?:ding|dings|der)?(?![a-z0-9])")
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


def mamba_mode(model: Model, rules: Rules, drafts: int) -> str:
    """What prefix caching keeps: a state of every block, those of the last two, or (before 0.15) none."""
    every = rules.every_state and (model.architecture or "") in EVERY_STATE
    if every and (rules.every_state_with_drafts or not drafts):
        return "all"
    return "align" if rules.state_at_end else "none"


def sees_whole_items(model: Model, rules: Rules) -> bool:
    """Whether the tokens of an image see each other, those behind them too."""
    if model.facts.get("top_model_type") in PREFIX_WRAPPERS:
        return True
    seen = rules.gemma4_whole_items and model.facts.get("use_bidirectional_attention") == "vision"
    return seen and model.model_type.startswith("gemma4")
