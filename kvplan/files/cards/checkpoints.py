"""The quantised checkpoints of a model that are known: those of the cards, and published ones by their names.

Which model a checkpoint belongs to follows from its name: without its format it is the model's, to the word
(`base_words`). A build of another model (instruct for base, a distilled or an altered one) has other words.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.architectures.checkpoint_names import model_words
from kvplan.errors import KvplanError
from kvplan.files.cards.builds import named_build
from kvplan.files.cards.find import load_card
from kvplan.files.cards.formats import readings
from kvplan.files.cards.index import Target, is_name, key_of, newer_cards, packaged_index, target_id
from kvplan.files.cards.listed import listed, listed_ids
from kvplan.files.datafiles import data_dir
from kvplan.model import Model
from kvplan.weights.stored import FOREIGN

FILE = "published.txt"
Words = tuple[str, ...]
_CHAT = "it"
"""A word that other makers' builds of a chat model leave out (nvidia/Gemma-4-26B-A4B-NVFP4)."""
_AS_TRAINED = ("whole", "less")
_VALIDATED = ("nvidia", "amd", "redhatai", "neuralmagic", "intel")
"""Makers of GPUs and engines who publish what they measured of their builds."""
OTHERS = 2
"""The rank of the others."""


def known_ids() -> list[str]:
    """Ids of published checkpoints that have no card, as their makers write them."""
    text = (data_dir("model_cards") / FILE).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def words_of(name: str) -> Words:
    """The words that say which model a name means."""
    return tuple(model_words(key_of(name)))


def base_words(name: str) -> Words:
    """The words of the model that a checkpoint is made of: its own without the format at their end."""
    maker, _, rest = key_of(name).rpartition("/")
    base = min((one for one, _ in readings(rest, maker)), key=len, default=rest)
    return words_of(f"{maker}/{base}")


def is_quantised_name(name: str) -> bool:
    """Whether a name ends with a weight format that is packed and that engines load."""
    maker, _, rest = key_of(name).rpartition("/")
    form = next((form for _, form in readings(rest, maker)), None)
    return form is not None and form not in FOREIGN and form not in _AS_TRAINED


def checkpoints_of(name: str) -> list[Model]:
    """The quantised checkpoints of a model: its own maker's first, then those whose makers build GPUs and
    engines, then others; of those that store everything alike the first. Empty for a name that says a format
    itself: whoever names a checkpoint means that one."""
    return list(_checkpoints(name, _set()))


def rank_of(checkpoint: Model, name: str) -> int:
    """0 for a checkpoint of the named model's own maker, 1 of one who builds GPUs or engines, `OTHERS`."""
    return _rank(checkpoint.id, key_of(name).partition("/")[0])[0]


def _set() -> str:
    """The set of cards in use: what follows from it is remembered by it."""
    newer = newer_cards()
    return "" if newer is None else newer.made


@lru_cache(maxsize=512)
def _checkpoints(name: str, _made: str) -> tuple[Model, ...]:
    if is_quantised_name(name):
        return ()
    own = key_of(name).partition("/")[0]
    candidates = [one for one in _named(words_of(name)) if is_of(name, one)]
    ranked = sorted(candidates, key=lambda one: _rank(one, own))
    found: dict[object, Model] = {}
    forms: set[tuple[str, object]] = set()
    for one in ranked:
        form = _form(one)
        build = None if form in forms else _loaded(one)
        if form is not None:
            forms.add(form)
        if build is not None and build.id != name:
            found.setdefault(_storage(build), build)
    return tuple(found.values())


def _form(name: str) -> tuple[str, object] | None:
    """How a build by its name stores the model, before it is made; None for what has a card."""
    if is_name(name):
        return None
    build = named_build(name)
    return None if build is None else (build.form, build.layout)


def is_of(name: str, checkpoint: str) -> bool:
    """Whether a checkpoint is the model of that name, stored otherwise.

    ``it`` may be left out by other makers; a name without it is then the chat model's, where there is one.
    """
    asked, words = words_of(name), base_words(checkpoint)
    foreign = key_of(name).partition("/")[0] != key_of(checkpoint).partition("/")[0]
    if asked == words:
        return not (foreign and _CHAT not in asked and is_name(f"{name}-{_CHAT}"))
    return foreign and _CHAT in asked and words == tuple(word for word in asked if word != _CHAT)


def _named(words: Words) -> list[str]:
    by_words = _by_words(_set())
    bare = tuple(word for word in words if word != _CHAT)
    return [*by_words.get(words, ()), *(by_words.get(bare, ()) if bare != words else ())]


@lru_cache(maxsize=2)
def _by_words(_made: str) -> dict[Words, list[str]]:
    """The words of models → names of checkpoints: those of cards, published ones, listed ones."""
    packaged = packaged_index()
    targets = [Target.parse(text) for text in dict.fromkeys(packaged["names"].values())]
    unpacked = {*_AS_TRAINED, *FOREIGN}
    of_list = (one for one in listed_ids() if (entry := listed(one)) and entry.form not in unpacked)
    found: dict[Words, list[str]] = {}
    for name in (*map(target_id, targets), *known_ids(), *of_list):
        found.setdefault(base_words(name), []).append(name)
    return found


def _rank(name: str, own: str) -> tuple[int, int]:
    """The model's own maker first, then the validated ones in their order."""
    maker = key_of(name).partition("/")[0]
    if maker == own:
        return 0, 0
    return (1, _VALIDATED.index(maker)) if maker in _VALIDATED else (OTHERS, 0)


def _loaded(name: str) -> Model | None:
    """The checkpoint; None where it is stored as it was trained, or kvplan has no rule for it."""
    try:
        build = load_card(name)
    except KvplanError:
        return None
    return build if build.quantization else None


def _storage(build: Model) -> object:
    """How a checkpoint stores weights and cache, by which those of one model are told apart."""
    scheme = build.facts.get("serving_kv_scheme", build.kv_cache_scheme)
    keys = ("quantization_config", "hf_quant_config")
    config = None if build.config is None else [build.config.get(key) for key in keys]
    return build.quantization, scheme, repr(config)
