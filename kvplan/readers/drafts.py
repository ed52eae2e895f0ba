"""Multi-token-prediction layers: what a speculative method adds to the model's own layers.

How many there are is a key of the config; each is built like one of the model's own layers. Which one, and
which key, by model type: vllm-project/vllm 0.32 vllm/config/speculative.py (hf_config_override) and
vllm/model_executor/models/*_mtp.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.families import CompressedAttention, Kind, SparseIndexer
from kvplan.model import Layer, Model
from kvplan.readers.text_part import TextPart
from kvplan.readers.view import MAX_LAYERS, ConfigView
from kvplan.record import record

_NEXTN = ("num_nextn_predict_layers",)
_ATTENTION = (Kind.FULL, Kind.MLA)
_WINDOWED = (Kind.SLIDING, Kind.MLA)


@record()
class DraftRule:
    """keys: how many prediction layers (the first that is there); default: without a key; most: what the
    engine builds at most; kinds: which of the model's layers they are built like."""

    keys: tuple[str, ...] = _NEXTN
    default: int = 0
    most: int | None = None
    kinds: tuple[Kind, ...] = _ATTENTION


_MODULES = DraftRule(("num_mtp_modules", "num_nextn_predict_layers"))
_RULES: dict[str, DraftRule] = {
    **dict.fromkeys(
        (
            "deepseek_v3",
            "deepseek_v32",
            "glm_moe_dsa",
            "kimi_k2",
            "mimo",
            "glm4_moe",
            "glm4_moe_lite",
            "glm_ocr_text",
            "ernie4_5_moe",
            "nemotron_h",
            "bailing_hybrid",
            "exaone_moe",
            "exaone4",
            "step3p5",
            "hy_v3",
            "hy_v4",
            "pangu_ultra_moe",
            "kimi_linear",
            "glm5_next_text",
            "deepseek_v4",
            "bailing_moe_v2",
        ),
        DraftRule(),
    ),
    "qwen3_next": DraftRule(default=1),
    "qwen4_exp_text": DraftRule(("mtp_num_hidden_layers", "num_nextn_predict_layers")),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), DraftRule(("mtp_num_hidden_layers",))),
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), DraftRule(default=1, most=1, kinds=_WINDOWED)),
    "longcat_flash": DraftRule(default=1, most=1),
    "dots3_note_text": DraftRule(default=1, kinds=_WINDOWED),
    **dict.fromkeys(("minimax_m3", "minimax_m3_text", "minimax_m3_vl_text", "minimax_m2"), _MODULES),
}


def draft_layers(part: TextPart, layers: list[Layer]) -> tuple[Layer, ...]:
    """The model's prediction layers, one entry each; empty where it has none or their shape is not known."""
    view = part.view
    rule = _RULES.get(part.model_type) or _RULES.get(view.model_type)
    if rule is None:
        return ()
    count = view.optional_integer(*rule.keys, default=rule.default, lowest=0, highest=MAX_LAYERS) or 0
    count = count if rule.most is None else min(count, rule.most)
    if count == 0:
        return ()
    if view.model_type == "deepseek_v4":
        return (_window_only(layers),) * count
    if view.model_type == "nemotron_h":
        count *= _attention_marks(view)
    like = _like(layers, rule.kinds)
    if like is None:
        return ()
    if view.model_type == "step3p5":
        return _step3p5(view, layers, count, like)
    return (like,) * count


def _like(layers: list[Layer], kinds: tuple[Kind, ...]) -> Layer | None:
    """The first layer of one of the kinds; of two, the one with an indexer of its own."""
    found = [layer for layer in layers if any(part.kind in kinds for part in layer.parts)]
    indexed = [layer for layer in found if any(isinstance(part, SparseIndexer) for part in layer.parts)]
    return next(iter(indexed or found), None)


def _window_only(layers: list[Layer]) -> Layer:
    """DeepSeek-V4's prediction layer keeps the window and compresses nothing (its compress ratio is 0)."""
    part = next(part for layer in layers for part in layer.parts if isinstance(part, CompressedAttention))
    return Layer(
        (CompressedAttention(part.head_dim, part.sliding_window, qk_rope_head_dim=part.qk_rope_head_dim),)
    )


def _attention_marks(view: ConfigView) -> int:
    """How many of Nemotron-H's prediction blocks are attention: ``*`` in the pattern, or the list's words."""
    words = view.sequence("mtp_layers_block_type")
    if words is not None:
        return sum(word in ("attention", "full_attention") for word in words)
    pattern = view.get("mtp_hybrid_override_pattern")
    return pattern.count("*") if isinstance(pattern, str) else 1


def _step3p5(view: ConfigView, layers: list[Layer], count: int, full: Layer) -> tuple[Layer, ...]:
    """layer_types may go on past the model's own layers and name the prediction layers' kinds."""
    kinds = view.sequence("layer_types") or []
    window = next((layer for layer in layers if any(p.kind is Kind.SLIDING for p in layer.parts)), full)
    extra: Mapping[int, object] = dict(enumerate(kinds[len(layers) : len(layers) + count]))
    return tuple(window if extra.get(i) == "sliding_attention" else full for i in range(count))


def method_of(draft: Model) -> str:
    """The method by the draft's name or class, as vLLM tells it (vllm/config/speculative.py)."""
    words = f"{draft.id} {draft.architecture or ''}".lower()
    if "eagle3" in words:
        return "eagle3"
    return "eagle" if "eagle-" in words or "eagleforcausal" in words else "draft_model"
