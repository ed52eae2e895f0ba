"""What a model's class decides: whether it pools, which states prefix caching keeps, what images see."""

from __future__ import annotations

from kvplan.engines.vllm.architectures import GENERATING, POOLING
from kvplan.engines.vllm.versions import Rules
from kvplan.model import Model

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


def is_pooling(model: Model) -> bool:
    """A class that pools, by its name where vLLM does not build it itself."""
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
