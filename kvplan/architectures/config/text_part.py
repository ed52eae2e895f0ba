"""Finding the text decoder in a config: the config itself, or a part of a wrapper, however deep it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.architectures.config.class_names import (
    OWN_CLASSES,
    class_facts,
    first_architecture,
    known_model_types,
    model_type_of,
)
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.architectures.lineages import custom_types, lineage_of
from kvplan.dtypes import SCALARS, scalar
from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import Json, record

if TYPE_CHECKING:
    from kvplan.architectures.prediction import Prediction

MAX_WRAPPERS = 6
# Classes that read the text part's keys at the top level when there is no text part (transformers 5.23.0:
# fuyu, qwen2_vl, qwen2_5_vl, paddleocr_vl, hunyuan_vl, dots3_note, glm5_next).
FLAT_WRAPPERS = frozenset(
    {"fuyu", "qwen2_vl", "qwen2_5_vl", "paddleocr_vl", "hunyuan_vl", "dots3_note", "glm5_next"}
)
# Where wrappers of public checkpoints keep their text part, in the order in which transformers and vLLM look.
PART_KEYS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model_config",
    "decoder",
    "generator",
    "decoder_config",
)
# Wrappers whose text part the table does not name, because their class cannot be built from nothing.
_TEXT_PARTS = {"nougat": "decoder"}
LAYER_KEYS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "decoder_layers",
    "num_decoder_layers",
)


@record()
class Level:
    """One object on the way from the file's top to the text part; ``path`` ends in a dot or is empty."""

    model_type: str
    raw: Json
    path: str


@record()
class TextPart:
    """The text decoder's view, and the levels that lead to it (the last one is the text part itself)."""

    view: ConfigView
    levels: tuple[Level, ...]
    known: bool
    warnings: tuple[str, ...]

    @property
    def top(self) -> Level:
        return self.levels[0]

    @property
    def model_type(self) -> str:
        """The text part's own word for itself (``kimi_k2``, even where deepseek_v3's rule reads it)."""
        return self.levels[-1].model_type

    @property
    def prediction(self) -> Prediction | None:
        """The row of the model's type: its own word for itself, or the type whose rule reads it."""
        return lineage_of(self.model_type).prediction or lineage_of(self.view.model_type).prediction

    @property
    def stated_dtype(self) -> str | None:
        """``dtype`` or ``torch_dtype`` of the file's top, else of the text part, else of what lies between.

        Raises KvplanError(unknown-dtype) for a word that is no element type.
        """
        for raw in (self.levels[0].raw, self.levels[-1].raw, *(level.raw for level in self.levels[1:-1])):
            for key in ("dtype", "torch_dtype"):
                word = raw.get(key)
                if word is None or word == "auto":
                    continue
                if not isinstance(word, str) or len(word) > 60:
                    raise KvplanError(
                        "bad-config", f"{key} is a {type(word).__name__}, not the name of an element type"
                    )
                name = scalar(word).name
                return name if name in SCALARS else word
        return None


def find_text_part(raw: Json) -> TextPart:
    """Walk from the top of the file to the text decoder.

    A known wrapper names its text part (the generated table); an unknown one is searched for the usual
    keys. A part that is missing takes the class's own settings. Raises KvplanError(bad-config,
    unknown-model-type).
    """
    level = Level(_top_type(raw), raw, "")
    levels = [level]
    warnings: list[str] = []
    for _ in range(MAX_WRAPPERS):
        inner, warning = _inner(level)
        if warning:
            warnings.append(warning)
        if inner is None:
            view, known = _view(level)
            return TextPart(view, tuple(levels), known, (*warnings, *_older_warning(level)))
        levels.append(inner)
        level = inner
    raise KvplanError("bad-config", f"the text part lies more than {MAX_WRAPPERS} levels deep")


def _top_type(raw: Json) -> str:
    word = raw.get("model_type")
    architecture = first_architecture(raw)
    if architecture in OWN_CLASSES:
        return OWN_CLASSES[architecture]
    if word is None or word == "":
        if architecture is not None:
            named = model_type_of(architecture)
            if named is not None:
                return named
            raise KvplanError(
                "unknown-model-type",
                f"the config has no model_type, and the architecture {architecture[:80]!r} is not known",
                help="add the model_type that the model's own config class declares",
            )
        raise KvplanError(
            "bad-config", "the config has no model_type", help='add "model_type": "llama", for example'
        )
    if not isinstance(word, str):
        raise KvplanError("bad-config", f"model_type is a {type(word).__name__}, not a text")
    if len(word) > 200:
        raise KvplanError("bad-config", f"model_type is a text of {len(word):,} characters")
    own = lineage_of(word)
    if architecture is not None and class_facts(word) is None and own.reads is None and own.layers is None:
        # Checkpoints with a private model_type that a public class reads (DeepSeek-V4's "deepseek_ref").
        return model_type_of(architecture) or word
    return word


def _inner(level: Level) -> tuple[Level | None, str | None]:
    """The next level down, or None where this level is the text part; and a warning."""
    facts = class_facts(level.model_type)
    if facts is not None:
        where = facts.get("text") or _TEXT_PARTS.get(level.model_type)
        if where is None:
            return _unannounced(level)
        key = str(where).split(".")[0]
        return _declared(level, key, facts["sub_configs"][key])
    custom = lineage_of(level.model_type).reads
    if custom is not None and custom.text is None:
        return None, None
    keys = PART_KEYS if custom is None or custom.text is None else (custom.text, *PART_KEYS)
    for key in keys:
        value = level.raw.get(key)
        if isinstance(value, Mapping):
            default = custom.text_type if custom is not None else None
            inner_type = _part_type(value, default)
            if inner_type is None:
                raise KvplanError(
                    "bad-config",
                    f"{level.path}{key} has no model_type",
                    help=f"add {level.path}{key}.model_type",
                )
            warning = None
            if custom is None:
                warning = f"unknown model type {level.model_type!r}: its {key} ({inner_type}) was sized"
            return Level(inner_type, value, f"{level.path}{key}."), warning
    if custom is not None and custom.text_type is not None and _has_layers(level.raw):
        return Level(custom.text_type, level.raw, level.path), None
    if custom is not None:
        raise KvplanError("missing-key", f"{level.model_type}: the config has no {level.path}{custom.text}")
    return None, None


def _declared(level: Level, key: str, part: Any) -> tuple[Level | None, str | None]:
    """The part that a transformers class declares as its text."""
    declared = part if isinstance(part, str) else part.get("type")
    auto = isinstance(part, Mapping) and bool(part.get("auto"))
    value = level.raw.get(key)
    path = f"{level.path}{key}."
    if isinstance(value, Mapping):
        own = _part_type(value, None)
        # A fixed part has one class whatever the file says, but where the file says a type that is
        # known too, the checkpoint was made with that one.
        inner_type = own if own is not None and (auto or declared is None) else declared
        if inner_type is None:
            raise KvplanError("bad-config", f"{path[:-1]} has no model_type")
        return Level(str(inner_type), value, path), None
    if value is not None:
        raise KvplanError("bad-config", f"{path[:-1]} is a {type(value).__name__}, not an object")
    if declared is None:
        raise KvplanError("missing-key", f"{level.model_type}: the config has no {path[:-1]}")
    if level.model_type in FLAT_WRAPPERS and _has_layers(level.raw):
        return Level(str(declared), level.raw, level.path), None
    if _has_layers(level.raw):
        warning = (
            f"{level.model_type}: no {key}; its keys were read at the top level"
            " (the transformers class would ignore them and take its defaults)"
        )
        return Level(str(declared), level.raw, level.path), warning
    init = part.get("init", {}) if isinstance(part, Mapping) else {}
    return Level(str(declared), dict(init), path), None


def _unannounced(level: Level) -> tuple[Level | None, str | None]:
    """A text-only type whose file has a text part all the same (model_type of the part copied to the top)."""
    value = level.raw.get("text_config")
    if not isinstance(value, Mapping) or _has_layers(level.raw):
        return None, None
    inner_type = _part_type(value, level.model_type)
    return Level(str(inner_type), value, f"{level.path}text_config."), None


def _part_type(value: Json, default: str | None) -> str | None:
    word = value.get("model_type")
    if isinstance(word, str) and 0 < len(word) <= 200:
        return word
    if word not in (None, ""):
        raise KvplanError("bad-config", "the text part's model_type is not a text")
    architecture = first_architecture(value)
    named = model_type_of(architecture) if architecture else None
    return named or default


def _has_layers(raw: Json) -> bool:
    return any(raw.get(key) is not None for key in LAYER_KEYS)


def _view(level: Level) -> tuple[ConfigView, bool]:
    """The level as a view with its class's aliases and defaults; False where the type is not known."""
    custom = lineage_of(level.model_type).reads
    if custom is not None:
        return _custom_view(level, custom), True
    facts = class_facts(level.model_type)
    if facts is not None:
        return _class_view(level, level.model_type, facts), True
    return ConfigView(level.raw, model_type=level.model_type, defaults={}, path=level.path), False


# Older spellings that the class of today ignores, but that the checkpoint was written with.
_OLDER_KEYS = {
    "falcon": {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}
}


def _class_view(level: Level, model_type: str, facts: Json) -> ConfigView:
    older = _older_keys(level, model_type)
    return ConfigView(
        level.raw,
        model_type=model_type,
        defaults=facts.get("defaults", {}),
        aliases={**facts.get("aliases", {}), **older},
        path=level.path,
    )


def _older_keys(level: Level, model_type: str) -> dict[str, str]:
    """Older spellings in this file whose key of today is not there."""
    known = _OLDER_KEYS.get(model_type, {})
    return {old: new for old, new in known.items() if old in level.raw and new not in level.raw}


def _older_warning(level: Level) -> tuple[str, ...]:
    older = _older_keys(level, level.model_type)
    if not older:
        return ()
    named = ", ".join(f"{old} as {new}" for old, new in older.items())
    return (f"{level.model_type}: read {named} (the transformers class ignores the older spelling)",)


def _custom_view(level: Level, custom: CustomType) -> ConfigView:
    """A custom type read by a rule: its own words, or the transformers type that it is a copy of; its class's
    defaults and spellings since transformers has one."""
    model_type = custom.like or level.model_type
    like = class_facts(custom.like) if custom.like and custom.inherits else None
    facts = class_facts(level.model_type) or like or {}
    return ConfigView(
        level.raw,
        model_type=model_type,
        defaults={**facts.get("defaults", {}), **custom.defaults},
        aliases={**facts.get("aliases", {}), **custom.aliases},
        path=level.path,
    )


def unknown_type(model_type: str, why: str) -> KvplanError:
    """The refusal of a model type that nobody described to kvplan."""
    near = (
        did_you_mean(model_type, [*known_model_types(), *custom_types()]) if len(model_type) <= 80 else None
    )
    return KvplanError(
        "unknown-model-type",
        f"unknown model type {model_type[:80]!r}: {why}",
        help=(
            *((f"did you mean {near!r}?",) if near else ()),
            "a card can state the layers by hand: CONTRIBUTING.md, Add a model",
        ),
    )
