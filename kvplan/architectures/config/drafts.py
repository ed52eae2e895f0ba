"""Multi-token-prediction layers: what a speculative method adds to the model's own layers.

How many there are is a key of the config; each is built like one of the model's own layers: which key and
which layer is said by the lineage (`registry.Lineage.prediction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kvplan.architectures.config.text_part import TextPart, find_text_part
from kvplan.architectures.config.view import MAX_LAYERS, ConfigView, split_quant
from kvplan.architectures.lineages import lineage_of
from kvplan.architectures.prediction import Prediction
from kvplan.families import CompressedAttention, Kind, SparseIndexer
from kvplan.model import Layer, Model
from kvplan.record import Json, record, replace

Layers = tuple[Layer, ...]
_WORDS = {"attention": "*", "full_attention": "*", "moe": "E", "mlp": "-", "mamba": "M"}


@record()
class Drafts:
    """The rule of a model's prediction layers, how many steps they predict, and each layer's cache.

    letters: the blocks of one step where a pattern names them; ``*`` is attention, ``E`` experts. Without a
    pattern that the rule asks for, one attention layer is known of them.
    """

    rule: Prediction
    count: int
    layers: Layers
    letters: str = ""


def how_many(part: TextPart) -> int:
    """Prediction steps that the engine builds layers for."""
    rule = part.prediction
    if rule is None:
        return 0
    found = part.view.optional_integer(*rule.keys, default=rule.default, lowest=0, highest=MAX_LAYERS)
    return min(int(found or 0), MAX_LAYERS if rule.most is None else rule.most)


def draft_layers(part: TextPart, layers: list[Layer]) -> Layers:
    """The model's prediction layers, one entry each; empty where it has none or their shape is not known."""
    found = drafts_of(part, layers)
    return found.layers if found else ()


@lru_cache(maxsize=64)
def with_assumed_drafts(model: Model) -> Model:
    """The model with one prediction layer, where its class has them and a config that is not the whole
    published one does not say how many; else the model itself."""
    if model.draft_layers or model.provenance.whole:
        return model
    config, rule = model.config, lineage_of(model.model_type).prediction
    found: Layers = ()
    if config:
        part = find_text_part(split_quant(config)[0])
        rule = part.prediction
        if rule is None or part.view.given(*rule.keys):
            return model
        config = _with_key(config, part.levels[-1].raw, rule.keys[0])
        found = draft_layers(find_text_part(split_quant(config)[0]), model.layers())
    elif rule is not None:
        like = _like(model.layers(), rule.kinds)
        found = () if like is None else (like,)
    if rule is None or not found:
        return model
    said = (
        f"how many prediction layers {model.id} has is not known: one is assumed; the copy of its config"
        f" does not say ({rule.keys[0]})"
    )
    return replace(model, config=config, draft_layers=found, warnings=(*model.warnings, said))


def _with_key(config: Json, text: Json, key: str) -> Json:
    """The config, with the key set to 1 in its text part."""
    if all(name in config and config[name] is value for name, value in text.items()):
        return {**config, key: 1}
    return {name: {**value, key: 1} if value is text else value for name, value in config.items()}


def drafts_of(part: TextPart, layers: list[Layer]) -> Drafts | None:
    """Prediction layers by the config; None where it has none. layers: the model's own."""
    view, rule, count = part.view, part.prediction, how_many(part)
    if rule is None or count == 0 or not layers:
        return None
    if rule.window_only:
        return Drafts(rule, count, (_window_only(layers),) * count)
    like = _like(layers, rule.kinds)
    if like is None:
        return None
    if rule.pattern:
        letters = _letters(view, rule.pattern)
        return Drafts(rule, count, (like,) * (count * (letters or "*").count("*")), letters)
    return Drafts(rule, count, _named(rule, view, layers, count, like))


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


def _letters(view: ConfigView, key: str) -> str:
    """The blocks of a prediction step: a pattern of letters, or a list of words; empty without either."""
    words = view.sequence("mtp_layers_block_type")
    if words is not None:
        return "".join(_WORDS.get(str(word), "?") for word in words)
    pattern = view.get(key)
    return pattern if isinstance(pattern, str) and len(pattern) <= MAX_LAYERS else ""


def _named(rule: Prediction, view: ConfigView, layers: list[Layer], count: int, like: Layer) -> Layers:
    """The kinds that a list of the config gives the prediction layers, else one layer for all."""
    kinds = (rule.types and view.sequence(*rule.types)) or ()
    first = 0 if rule.types_from_start else len(layers)
    window = next((layer for layer in layers if any(p.kind is Kind.SLIDING for p in layer.parts)), like)
    extra: Mapping[int, object] = dict(enumerate(kinds[first : first + count]))
    return tuple(window if extra.get(i) == "sliding_attention" else like for i in range(count))


def method_of(draft: Model) -> str:
    """The method by the draft's name or class, as vLLM tells it (vllm/config/speculative.py)."""
    return method_named(f"{draft.id} {draft.architecture or ''}")


def method_named(text: str) -> str:
    """The method by a draft's name alone."""
    words = text.lower()
    if "eagle3" in words:
        return "eagle3"
    return "eagle" if "eagle-" in words or "eagleforcausal" in words else "draft_model"
