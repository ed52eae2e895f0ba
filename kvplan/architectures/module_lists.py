"""Lists of modules in quantisation configs: exact paths, texts inside a path, wildcards, expressions.

Checkpoints of wrappers write the path of one layer in several ways (``model.language_model.layers.0``,
``language_model.model.layers.0``); lists and inventory are brought to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.weights.quantisation import Modules

MAX_ENTRIES, MAX_LENGTH = 200_000, 300

# A repeated group that is itself repeated can take exponential time; no real list has one.
_RISKY = regex(r"[+*}]\)[+*{]|\)[+*{].*\)[+*{]")


def plain_path(text: str) -> str:
    """A module's path as a text-only checkpoint writes it."""
    text = text.removesuffix(".weight").replace("language_model.", "")
    for prefix in ("model.visual", "model.vision_tower", "model.multi_modal_projector", "model.vision_model"):
        if text.startswith(prefix):
            return text.removeprefix("model.")
    return "model." + text.removeprefix("model.model.") if text.startswith("model.model.") else text


def _texts(entries: Iterable[Any]) -> list[str]:
    made: list[str] = []
    for entry in entries:
        if not isinstance(entry, str) or len(entry) > MAX_LENGTH or len(made) >= MAX_ENTRIES:
            raise KvplanError("bad-config", "quantization_config lists modules that are not short texts")
        made.append(entry)
    return made


def _experts_too(texts: list[str]) -> frozenset[str]:
    """The paths, and for one expert's module the whole of its experts, by our names of its matrices."""
    paths = {plain_path(text) for text in texts}
    return frozenset(paths | {_EXPERT.sub(_whole_expert, path) for path in paths})


_EXPERT = regex(r"\.experts\.\d+\.(w[123](?=$|\.))?")
_MATRICES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
"""Mixtral's names for an expert's matrices, which MiniMax and others kept."""


def _whole_expert(found: re.Match[str]) -> str:
    return ".experts." + _MATRICES.get(found[1] or "", "")


def exact_list(entries: Iterable[Any]) -> Modules:
    """Whole paths only."""
    return Modules(exact=_experts_too(_texts(entries)))


def substring_list(entries: Iterable[Any]) -> Modules:
    """Any path that contains an entry."""
    return Modules(inside=tuple(plain_path(text) for text in _texts(entries) if text))


def component_list(entries: Iterable[Any]) -> Modules:
    """An entry's own path, what lies under it, and a path that ends in it."""
    texts = _experts_too(_texts(entries))
    names = "|".join(re.escape(text) for text in sorted(texts))
    if not names:
        return Modules()
    return Modules(exact=texts, expressions=(re.compile(rf"(?:.*\.)?(?:{names})(?:\..*)?$"),))


def modelopt_list(entries: Iterable[Any]) -> Modules:
    """Exact paths, texts inside a path, and shell wildcards, as ModelOpt's lists have meant over time."""
    texts = _texts(entries)
    wild = [plain_path(text) for text in texts if "*" in text or "?" in text]
    plain = [text for text in texts if "*" not in text and "?" not in text and text]
    exact = _experts_too(plain)
    return Modules(
        exact=exact, inside=tuple(sorted(exact)), expressions=tuple(_wildcard(text) for text in wild)
    )


def wildcard_list(entries: Iterable[Any]) -> Modules:
    """Shell wildcards over whole paths (``*mlp.experts*``)."""
    texts = _texts(entries)
    return Modules(
        exact=_experts_too([text for text in texts if "*" not in text]),
        expressions=tuple(_wildcard(plain_path(text)) for text in texts if "*" in text),
    )


def pattern_list(entries: Iterable[Any]) -> Modules:
    """compressed-tensors: ``re:`` marks a regular expression, everything else is a whole path."""
    texts = _texts(entries)
    expressions = [_expression(text[3:]) for text in texts if text.startswith("re:")]
    return Modules(
        exact=_experts_too([text for text in texts if not text.startswith("re:")]),
        expressions=tuple(expressions),
    )


def _wildcard(text: str) -> re.Pattern[str]:
    inner = "".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in re.sub(r"\*+", "*", text))
    return re.compile(inner + "$")


def _expression(text: str) -> re.Pattern[str]:
    if _RISKY.search(text):
        raise KvplanError(
            "bad-config", f"quantization_config: the expression {text[:60]!r} nests repetitions"
        )
    try:
        return re.compile(text)
    except re.error as error:
        raise KvplanError(
            "bad-config", f"quantization_config: {text[:60]!r} is no expression: {error}"
        ) from error
