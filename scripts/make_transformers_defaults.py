"""Record what every model type of one transformers release defaults to.

The result, ``kvplan/architectures/data/transformers_defaults.json``, lets kvplan read a ``config.json`` as
the library would, without importing it: what a missing key means, which other names a key has, which part of
a composite configuration is the text model, and which classes a model type builds.

Run it where the pinned transformers is installed (torch is not needed, and does not change the result)::

    python scripts/make_transformers_defaults.py

Layout of the file, one line per model type:

``defaults``
    Values of the class signature, before any normalisation. ``null`` means "derived, or absent". Values of
    ``head.common`` are left out.
``derived``
    What the configuration holds when built from nothing, where that differs from ``defaults`` (keys that only
    normalisation creates are here too). For tests and for a bare model type, never a substitute for deriving.
``aliases``
    Other spellings: ``{alias: real key}``. An alias in a file overwrites the real key, after normalisation.
``legacy``
    Old keys that normalisation still reads, with their literal fallback (``"?"`` where it is computed).
``sub_configs``
    ``{name: part}``. A part is the model type that the part always has, or an object: ``type`` (or ``class``
    for a class outside the mapping, listed under ``classes``), ``auto`` when the part's own ``model_type``
    decides, ``optional`` when an absent part stays absent, ``init`` with the settings used only when the
    whole part is missing, ``derived`` with what else the parent changes.
``text``
    Path of the text decoder inside a composite configuration (absent: the configuration itself).
``per_layer``
    Attributes that differ by layer, for the class default.
``builds``
    ``{kind: class name or names}`` from the automatic mappings.
``model_type``
    The type that the class writes, where it is another one.
``error``
    Why the class cannot be built from nothing.

A long list of few different values is written ``{"of": [...], "at": "0010..."}``: a base-36 digit per entry.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

FORMAT = 1
RELEASE = "5.24.0"
OUTPUT = Path(__file__).resolve().parents[1] / "kvplan/architectures/data/transformers_defaults.json"
COMMAND = "python scripts/make_transformers_defaults.py"

KINDS = {
    "base": "MODEL_MAPPING_NAMES",
    "causal_lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "image_text_to_text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "masked_lm": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "multimodal_lm": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "pretraining": "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "speech_seq2seq": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "text_to_waveform": "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
}
TEXT_KINDS = frozenset(KINDS) - {"base", "pretraining"}

#: Keys that say nothing about sizes.
IRRELEVANT = re.compile(
    r"""
      _token_ids?$ | (?<!_per)_token$ | token_index$ | _tokens_list$ | token_id_ | (?<!layer)_ids$
    | drop | (^|_)(act|activation)($|_) | activation_(function|fn|type)$ | act_fn | hidden_act
    | initializer | ^init_ | _init(_|$) | init_std | (^|_)std$ | (^|_)eps$ | epsilon | jitter | softcap
    | temperature | loss | _coef$ | _coeff$ | coefficient | _cost$ | ^summary_ | ^mask_(time|feature)
    | ^output_(hidden|attentions|router|scores|past) | ^return_dict | label | problem_type | ^id2
    | ^transformers_version$ | ^architectures$ | chat | ^name_or_path$ | ^use_cache$ | chunk_size_feed_forward
    | deterministic | pretraining_tp | ^(?!image_seq_length$|mm_tokens_per_image$)
      (image|images|vision|video|visual|audio|pixel|patch|mm|spatial|speech|mel|codec|codebook|feat|conv_dim)(_|$)
    | ^(vit|siglip|whisper|projector|multimodal_projector|downsample|upsample|vq|vqgan|quant)_ | num_channels
    | norm_(type|momentum|mean) | layer_scale | layerscale | spec_augment | ^ctc_ | classifier
    | (^|_)scal(e|ing)($|_) | ^use_mambapy | ^use_falcon_mambapy | gradient_checkpointing | separate_cls
    | ^(begin_)?suppress | ^forced_ | num_beams | early_stopping | ^max_length$ | ^min_length$
    | length_penalty | no_repeat | repetition | ^time_step_(min|max|floor|limit|scale|init)
    | ^mamba_dt_(min|max|init|limit) | disable_custom_kernels | backbone | ^test_size$ | timm | ^anchor
    | ^bbox | ^giou | ^dice | ^focal | _weight$ | ^class_ | mask_loss | deformable | denois | ^rms_norm$
    | ^layer_norm | inputs_to_logits_ratio
    | _norm_eps | ^norm_eps | (^|_)seed$ | attn_impl | implementation | ^fps | frame | ^sampling_rate
    | detectron2 | ^stage_names$ | ^layer_rope_theta$ | ^default_language | ^languages$ | ^ignore_
    | ^tokenizer | ^prefix$ | ^task_specific
    """,
    re.VERBOSE,
)
#: Fractions that sizes are computed from; every other fraction is dropped.
SIZED_FRACTION = re.compile(
    r"dim_factor|ffn_.*multiplier|mlp_ratio|expan|proj_factor|rotary_(factor|pct|percent)"
)
#: All that is kept of a model that reads no text.
TOWER_KEYS = frozenset(
    {
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    }
    | {"d_model", "depth", "embed_dim", "num_heads", "is_encoder_decoder", "tie_word_embeddings"}
    | {"encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"}
)
#: Same default everywhere; written only where a class differs.
COMMON: Mapping[str, Any] = {"dtype": None, "is_encoder_decoder": False}
LONG_LIST = 9
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def plain(value: Any, key: str = "") -> Any:
    """The value as JSON; the ellipsis when it is none of our business (a fraction, an object)."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else (value if SIZED_FRACTION.search(key) else ...)
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        items = [plain(item, key) for item in value]
        return ... if any(item is ... for item in items) else packed(items)
    if isinstance(value, dict):
        kept = {str(name): plain(item, str(name)) for name, item in value.items()}
        return {name: item for name, item in sorted(kept.items()) if item is not ...}
    return ...


def packed(items: list[Any]) -> Any:
    """A long list of few values in its short form."""
    if len(items) < LONG_LIST:
        return items
    of: list[Any] = []
    at = []
    for item in items:
        same = [n for n, known in enumerate(of) if known == item and type(known) is type(item)]
        if not same:
            of.append(item)
        at.append(same[0] if same else len(of) - 1)
    if len(of) > len(DIGITS) or 2 * len(of) > len(items):
        return items
    return {"at": "".join(DIGITS[n] for n in at), "of": of}


def wanted(key: str, textual: bool) -> bool:
    """Is the key one that sizes may depend on?"""
    if key.startswith("_"):
        return False
    return not IRRELEVANT.search(key) if textual else key in TOWER_KEYS


def names(value: Any) -> Any:
    """A class name, or the list of them."""
    return value if isinstance(value, str) else list(value)


class Recorder:
    """Reads the classes of the installed transformers."""

    def __init__(self) -> None:
        """Import the mappings, quietly and without the network."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        warnings.filterwarnings("ignore")
        self.mapping: Any = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
        auto = import_module("transformers.models.auto.modeling_auto")
        self.base: Any = import_module("transformers").PreTrainedConfig
        self.types: list[str] = sorted(self.mapping.keys())
        self.builds: dict[str, dict[str, Any]] = {name: {} for name in self.types}
        for kind, table in KINDS.items():
            for name, classes in getattr(auto, table).items():
                self.builds.setdefault(name, {})[kind] = names(classes)
        self.extra: dict[str, Any] = {}
        self.textual = self._textual()

    def document(self) -> dict[str, Any]:
        """The whole file as a value."""
        models = {name: self._record(self.mapping[name], name) for name in self.types}
        classes: dict[str, Any] = {}
        while waiting := sorted(set(self.extra) - set(classes)):
            for name in waiting:
                classes[name] = self._record(self.extra[name], "")
        head = {
            "command": COMMAND,
            "common": dict(COMMON),
            "format": FORMAT,
            "model_types": len(models),
            "packages": {"transformers": metadata.version("transformers")},
        }
        return {"classes": classes, "head": head, "models": models}

    # -- what counts as text

    def _parts(self, cls: Any) -> dict[str, Any]:
        return dict(getattr(cls, "sub_configs_defaults", None) or {})

    def _part_class(self, spec: Any) -> Any:
        if issubclass(spec.config_class, self.base):
            return spec.config_class
        try:
            return self.mapping[spec.model_type]
        except KeyError:
            return None

    def _textual(self) -> set[Any]:
        """Classes whose sizes matter: language models, owners of a vocabulary, and text parts of those."""
        found = set()
        for name in self.types:
            cls = self.mapping[name]
            fields = {field.name for field in dataclasses.fields(cls)}
            if TEXT_KINDS & set(self.builds[name]) or "vocab_size" in fields:
                found.add(cls)
        todo = list(found)
        while todo:
            for name, spec in self._parts(todo.pop()).items():
                part = self._part_class(spec)
                tower = re.search(
                    r"vision|image|visual|audio|speech|encoder|vq|codec|backbone|acoustic|qformer", name
                )
                if part is not None and part not in found and not tower:
                    found.add(part)
                    todo.append(part)
        return found

    # -- one class

    def _record(self, cls: Any, model_type: str) -> dict[str, Any]:
        textual = cls in self.textual or not model_type
        parts = self._parts(cls)
        record: dict[str, Any] = {"class": cls.__name__}
        defaults: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            if field.name in parts or not wanted(field.name, textual):
                continue
            given = field.default if field.default is not dataclasses.MISSING else field.default_factory
            if field.default is dataclasses.MISSING:
                given = given() if callable(given) else None
            value = plain(given, field.name)
            if value is not ... and not (field.name in COMMON and COMMON[field.name] == value):
                defaults[field.name] = value
        record["defaults"] = defaults
        record["aliases"] = {a: r for a, r in cls.attribute_map.items() if wanted(a, True) or a in TOWER_KEYS}
        if model_type:
            record["builds"] = self.builds[model_type]
            if cls.model_type != model_type:
                record["model_type"] = cls.model_type
        if textual:
            record["legacy"] = legacy_keys(cls)
        try:
            config = cls()
        except Exception as error:  # whatever goes wrong is what the file must say
            record["error"] = f"{type(error).__name__}: {str(error)[:160]}"
            config = None
        record["sub_configs"] = self._sub_configs(cls, config)
        if config is not None:
            if textual:
                record["derived"] = self._derived(cls, config, defaults)
                record["text"] = self._text_path(config)
            record["per_layer"] = per_layer(config)
        return {key: value for key, value in sorted(record.items()) if value or key in ("class", "defaults")}

    def _values(self, config: Any, textual: bool = True) -> dict[str, Any]:
        """Every attribute that sizes may depend on, by its real name."""
        keys = {field.name for field in dataclasses.fields(config)} | set(vars(config))
        for owner in type(config).__mro__:
            if owner.__module__.startswith("transformers.models."):
                keys |= {name for name, value in vars(owner).items() if isinstance(value, property)}
        found = {}
        for key in sorted(keys - set(config.attribute_map)):
            if not wanted(key, textual) or key == "rope_parameters":
                continue
            try:
                value = plain(config._getattr_without_heterogeneous_validation(key, ...), key)
            except (ValueError, AttributeError, NotImplementedError):  # a property without an answer
                continue
            if value is not ...:
                found[key] = value
        return found

    def _derived(self, cls: Any, config: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
        parts = self._parts(cls)
        known = {**COMMON, **defaults}
        values = self._values(config)
        return {
            k: v for k, v in values.items() if k not in parts and (k not in known or differs(known[k], v))
        }

    def _sub_configs(self, cls: Any, config: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, spec in self._parts(cls).items():
            part = self._part_class(spec)
            entry: dict[str, Any] = {}
            if part is None or not (
                spec.model_type in self.mapping and self.mapping[spec.model_type] is part
            ):
                if part is None:
                    entry["type"] = spec.model_type
                else:
                    entry["class"] = part.__name__
                    self.extra[part.__name__] = part
            else:
                entry["type"] = spec.model_type
            if not issubclass(spec.config_class, self.base):
                entry["auto"] = True
            if spec.optional:
                entry["optional"] = True
            textual = part in self.textual or "class" in entry
            init = {k: plain(v, k) for k, v in spec.init_kwargs.items() if wanted(k, True)} if textual else {}
            entry["init"] = {k: v for k, v in sorted(init.items()) if v is not ...}
            held = getattr(config, name, None) if config is not None else None
            if held is not None and textual:
                usual = self._values(type(held)(**spec.init_kwargs))
                values = self._values(held)
                entry["derived"] = {k: v for k, v in values.items() if k not in usual or differs(usual[k], v)}
            entry = {key: value for key, value in entry.items() if value}
            found[name] = entry["type"] if set(entry) == {"type"} else entry
        if config is not None:
            for name, held in vars(config).items():
                if isinstance(held, self.base) and name not in found:
                    known = held.model_type in self.mapping and self.mapping[held.model_type] is type(held)
                    found[name] = held.model_type if known else {"class": type(held).__name__}
                    if not known:
                        self.extra[type(held).__name__] = type(held)
        return dict(sorted(found.items()))

    def _text_path(self, config: Any) -> str:
        """Where ``get_text_config(decoder=True)`` points, as a dotted path."""
        try:
            text = config.get_text_config(decoder=True)
        except ValueError:
            return "?"
        todo = [("", config)]
        while todo:
            path, part = todo.pop()
            if part is text:
                return path
            for name, held in sorted(vars(part).items()):
                if isinstance(held, self.base):
                    todo.append((f"{path}.{name}".lstrip("."), held))
        return ""


def differs(one: Any, other: Any) -> bool:
    """Are two JSON values different, counting ``1`` and ``True`` as different?"""
    return json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)


def per_layer(config: Any) -> Any:
    """Attributes that differ between layers, in the packed form of a list."""
    if not config.is_heterogeneous:
        return None
    attributes = sorted(name for name in config.per_layer_attributes if wanted(name, True))
    rows = []
    for layer in config.per_layer_config:
        values = {
            name: plain(layer._getattr_without_heterogeneous_validation(name, None), name)
            for name in attributes
        }
        rows.append({name: value for name, value in values.items() if value is not ...})
    return packed(rows) if any(rows) else None


def legacy_keys(cls: Any) -> dict[str, Any]:
    """Old keys that the class takes out of its extra arguments, with the literal fallback."""
    found: dict[str, Any] = {}
    for owner in reversed(cls.__mro__):
        if not owner.__module__.startswith("transformers.models."):
            continue
        for function in vars(owner).values():
            if not inspect.isfunction(function) or function.__module__ != owner.__module__:
                continue
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError, SyntaxError):
                continue
            found.update(legacy_calls(ast.walk(tree)))
    own = {field.name for field in dataclasses.fields(cls)}
    return {key: value for key, value in sorted(found.items()) if key not in own and wanted(key, True)}


def legacy_calls(nodes: Iterable[ast.AST]) -> dict[str, Any]:
    """``kwargs.pop("key", fallback)`` and ``kwargs.get(...)`` in a syntax tree."""
    found: dict[str, Any] = {}
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        owner, first = node.func.value, node.args[0]
        if not isinstance(owner, ast.Name) or owner.id != "kwargs" or node.func.attr not in ("pop", "get"):
            continue
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        fallback = node.args[1] if len(node.args) > 1 else ast.Constant(None)
        try:
            value = plain(ast.literal_eval(fallback), first.value)
        except ValueError:
            value = "?"
        found.setdefault(first.value, "?" if value is ... else value)
    return found


def render(document: Mapping[str, Any]) -> str:
    """The text of the file: sorted, and one line per class or model type."""
    lines = []
    for section in sorted(document):
        rows = [f"{json.dumps(name)}:{short(value)}" for name, value in sorted(document[section].items())]
        lines.append(f"{json.dumps(section)}:{{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def short(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def generate() -> str:
    """The text of the file for the installed transformers."""
    return render(Recorder().document())


def main(argv: list[str] | None = None) -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(
        description="Record the configuration defaults of the pinned transformers."
    )
    parser.add_argument("--out", type=Path, default=OUTPUT, help="where to write")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when the file would change"
    )
    parser.add_argument("--any-version", action="store_true", help=f"accept another release than {RELEASE}")
    options = parser.parse_args(argv)
    installed = metadata.version("transformers")
    if installed != RELEASE and not options.any_version:
        sys.exit(f"transformers {installed} is installed; this file is made with {RELEASE}")
    text = generate()
    if options.check:
        return 0 if options.out.is_file() and options.out.read_text(encoding="utf-8") == text else 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
