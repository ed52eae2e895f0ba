"""Cards that a name means which no card has: a checkpoint in another weight format, a folder, a fine-tune.

``cyankiwi/gemma-4-26B-A4B-it-qat-AWQ-INT4`` has the layers of ``google/gemma-4-26B-A4B``: its words are those
of the card but for the format of the weights and how the model was tuned. Words with digits in them (sizes,
generations) are never dropped, so a name finds no card of another size.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kvplan.files.cards.find import load_card
from kvplan.files.cards.index import Target, find_targets, key_of, packaged_index, target_id
from kvplan.later import regex
from kvplan.model import Model

_FORMAT = regex(
    r"(?:i?q\d(?:-(?:\d|k|xs|xxs|nl)(?:-[sml]|-xl)?)?|w\d{1,2}a\d{1,2}\w{0,4}|(?:u?int|nv|mx|b|n)?fp?\d{1,2}|u?int\d{1,2}"
    r"|\d-?bits?|e\dm\d\w{0,4}|awq|gptq|gguf|bnb|hqq|aqlm|exl\d|mlx|quark|torchao|modelopt|marlin|autoround|auto-round"
    r"|compressed-tensors|quantized|unquantized|quantised|quant|qat|ptq|per-(?:channel|tensor|token|group|block)|dynamic|static|block|channel|symmetric"
    r"|sym|asym|g\d{2,3}|group\d{2,3}|kv|kvcache|calibrated|imatrix|ud|unsloth|safetensors|speculators?)",
    re.ASCII,
)
_TUNED = frozenset("instruct it chat base pt hf sft dpo rl meta nvidia latest main model".split())
_ACTIVE = regex(r"a\d+(?:\.\d+)?b", re.ASCII)
_SIZE = regex(r"[ae]?\d+(?:\.\d+)?[bm]|\d+x\d+b", re.ASCII)
_OF_NO_WEIGHT = regex(
    r"v?\d+(?:\.\d+)*|\d{4,8}|ckpt\d*|checkpoint\d*|step\d*|epoch\d*|r\d+|lora\d*", re.ASCII
)
OWN_LAYERS = ("TransformersFor", "TransformersMoEFor", "TransformersMultiModal")
"""Classes that say nothing of the model: vLLM runs it through transformers."""


@lru_cache(maxsize=64)
def cards_alike(name: str, architecture: str | None = None) -> tuple[Model, ...]:
    """The models of the cards that a name may mean, the likeliest kind only; () where none is alike.

    In this order: the same words but for weight formats; but for tuning too; a card's words among those of
    the name, where the engine's class is the card's (a fine-tune). architecture: the class that the engine
    runs.
    """
    asked = _words(name)
    if not asked:
        return ()
    tiers: tuple[list[Target], list[Target], list[tuple[int, Target]]] = ([], [], [])
    for key, text in packaged_index()["names"].items():
        own, target = _words(key), Target.parse(text)
        if own == asked:
            tiers[0].append(target)
        elif _untuned(own, asked) == asked - _TUNED:
            tiers[1].append(target)
        elif architecture is not None and _tuned_from(asked - _TUNED, own - _TUNED):
            tiers[2].append((len(own - _TUNED), target))
    most = max((count for count, _ in tiers[2]), default=0)
    for tier in (tiers[0], tiers[1], [target for count, target in tiers[2] if count == most]):
        found = of_class(tier, architecture)
        if found:
            return found
    return ()


def cards_of_class(architecture: str) -> tuple[Model, ...]:
    """The models of all cards that an engine would run with a class, what is built on others last."""
    names = packaged_index()["names"]
    targets = [Target.parse(text) for text in dict.fromkeys(names.values())]
    return of_class(sorted(targets, key=lambda target: target.variant is not None), architecture)


def of_class(targets: list[Target], architecture: str | None) -> tuple[Model, ...]:
    """The models of these targets, each once, without those of another class."""
    ids = dict.fromkeys(target_id(target) for target in targets)
    models = (load_card(name) for name in ids if len(find_targets(name)) == 1)
    return tuple(model for model in models if runs_as(model, architecture))


def runs_as(model: Model, architecture: str | None) -> bool:
    """Whether an engine that says this class may run the model; True where either is not told."""
    if architecture is None or model.architecture is None or architecture.startswith(OWN_LAYERS):
        return True
    return model.architecture == architecture


@lru_cache(maxsize=4096)
def _words(name: str) -> frozenset[str]:
    """The words of a name without organisation, folders and weight formats."""
    key = (
        key_of(name.replace("--", "/").replace("\\", "/").rstrip("/"))
        .rpartition("/")[2]
        .removesuffix(".gguf")
    )
    words = re.sub(rf"(?<![a-z0-9.])(?:{_FORMAT.pattern})(?![a-z0-9.])", "", key).split("-")
    return frozenset(word for word in words if word)


def _untuned(own: frozenset[str], asked: frozenset[str]) -> frozenset[str]:
    """A card's words without those of tuning, and without the active parameters of an MoE (a4b) where the
    name leaves them out."""
    active = frozenset(word for word in own if _ACTIVE.fullmatch(word))
    return own - _TUNED if asked & active else own - _TUNED - active


def _tuned_from(asked: frozenset[str], own: frozenset[str]) -> bool:
    """Whether a name may be that of a fine-tune: the card's words, its size among them, and others that are
    no sizes."""
    if not own or not own < asked or not any(_SIZE.fullmatch(word) for word in own):
        return False
    more = asked - own
    return not any(_SIZE.fullmatch(word) for word in more) and all(
        word.isalpha() or _OF_NO_WEIGHT.fullmatch(word) or not word[0].isdigit() for word in more
    )
