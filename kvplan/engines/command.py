"""How an engine is started, as data: each engine's is in its folder (``command.TABLE``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

from kvplan.engines.release_rules import reached
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.record import record
from kvplan.settings import LONGEST, Settings

INSIDE = (".json", ".safetensors")
FILES = (*INSIDE, ".gguf")


def _by_place(checkpoint: Checkpoint, path: str) -> list[str]:
    del checkpoint
    return [path]


@record()
class Image:
    """An engine's own image for NVIDIA GPUs, and the one for AMD's where its tags are the same.

    tag: with the version's three numbers at ``{}``; without, the tag follows no version. entry: replaces the
    image's entry point, whose form differs between releases. probe: a command that succeeds once the server
    answers, with tools that the image has.
    """

    name: str
    tag: str
    entry: tuple[str, ...]
    probe: tuple[str, ...]
    amd: str = ""
    amd_since: str = ""
    """The release with which it began."""

    def name_for(self, vendor: str, version: str) -> str | None:
        """The repository of images for a maker's GPUs; None where none has tags that follow from versions."""
        if vendor == "nvidia":
            return self.name
        return self.amd or None if vendor == "amd" and reached(version, self.amd_since) else None


_ASK = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{}/health', timeout=5)"
PYTHON_PROBE = ("CMD", "python3", "-c", _ASK)


@record()
class Asked:
    """Facts, next to its value, on which an argument's words may depend."""

    settings: Settings
    version: str

    def since(self, release: str | None) -> bool:
        """Whether the engine's version is that release or newer, as far as it is written out."""
        return reached(self.version, release or "")

    def option(self, name: str) -> object | None:
        """An own option's value."""
        value: object | None = self.settings.own.get(name)
        return value


@record()
class Argument:
    """How an engine takes one setting."""

    flag: str
    """the command line's word, ``--max-model-len``; a path of keys, ``kv_cache_config.dtype``, in its
    options file"""
    off: str | None = None
    """the word that says no; only a setting with three states (yes, no, the engine's choice) needs one"""
    words: Mapping[str, object] | None = None
    """our word → the engine's; others are refused"""
    write: Callable[[Any, Asked], object] | None = None
    """makes the argument's words (a value in the options file) of the value and the settings"""
    since: str | None = None
    """first release with it"""
    env: str | None = None
    """the environment variable of older ones, and with no flag of every one (`variable`)"""
    before: str | None = None
    """the word of older ones"""

    @property
    def in_file(self) -> bool:
        return not self.flag.startswith("-")

    @property
    def in_environment(self) -> bool:
        """No release has a flag for it."""
        return not self.flag


def variable(name: str, words: Mapping[str, object]) -> Argument:
    """A setting that an environment variable says in every release. words: None says nothing."""
    return Argument("", words=words, env=name)


SWITCH: Mapping[str, object] = {"True": 1, "False": None}
"""The words of a variable that is set or not."""


@record()
class Across:
    """The words that make one engine of the processes on several nodes, ``{nodes}``, ``{rank}`` and
    ``{leader}`` put in. leader: of rank 0. worker: of the others, which answer no requests."""

    leader: tuple[str, ...]
    worker: tuple[str, ...]
    since: str | None = None

    def words(self, nodes: int, rank: str, leader: str, *, worker: bool) -> tuple[str, ...]:
        """The words of one node's process."""
        chosen = self.worker if worker else self.leader
        return tuple(word.format(nodes=nodes, rank=rank, leader=leader) for word in chosen)


@record()
class EngineTable:
    """One engine's arguments. settings: by field of Settings or own option. kept: by the flag's name in
    ``serve``, for flags that change no memory. none: setting → why it has no argument. names: other names of
    a flag in ``serve``. required: settings without which the engine would do something that no
    plan says."""

    engine: str
    start: tuple[str, ...]
    settings: Mapping[str, Argument]
    kept: Mapping[str, Argument]
    none: Mapping[str, str]
    names: Mapping[str, str]
    required: tuple[str, ...] = ()
    port: int = 8000
    """Where the server listens by itself."""
    image: Image | None = None
    model: Callable[[Checkpoint, str], list[str]] = _by_place
    """The words that name the checkpoint, which the process sees at a path."""
    random: tuple[str, ...] = ()
    """The words that load the model of a folder, ``{}``, with random weights; none: nobody drives it."""
    across: Across | None = None
    """None: the engine starts its processes on several nodes by other programs (MPI, Ray)."""
    build: Callable[[Checkpoint, str], Checkpoint] | None = None
    """The file of the build that the setting ``quantization`` names; None: the setting is an argument."""


def longest(word: str | None = None, since: str | None = None) -> Callable[[Any, Asked], object]:
    """A length; LONGEST as the engine's word for it, where it has one."""

    def write(value: Any, asked: Asked) -> object:
        if value != LONGEST:
            return value
        if word is None or not asked.since(since):
            raise KvplanError(
                "bad-argument",
                "max_model_len is auto, which this engine does not take",
                help="write the length",
            )
        return word

    return write


def whole(value: Any, asked: Asked) -> object:
    """A number that the engine takes only as a whole one."""
    if Fraction(value).denominator != 1:
        raise KvplanError(
            "bad-argument", f"{word_of(value)} is not whole, and the engine takes whole numbers"
        )
    return int(value)


def length_override(value: Any, asked: Asked) -> object:
    """The config's length, in the object that overrides keys of config.json."""
    del asked
    return compact({"max_position_embeddings": value})


def compact(entry: Mapping[str, object]) -> str:
    """JSON as one word."""
    return json.dumps(entry, separators=(", ", ": "))


def word_of(value: object) -> str:
    """A value as a word of a command line."""
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else repr(float(value))
    return str(value)


def drafting(engine: str, method: str, asked: Asked, *, own: bool) -> tuple[int, str | None]:
    """(draft tokens, the draft's checkpoint). own: the method needs no model beside the target."""
    settings = asked.settings
    if not settings.num_speculative_tokens:
        raise KvplanError("bad-argument", f"how many tokens {method} drafts is not said", help="mtp:1, say")
    if settings.speculative_model is not None:
        return settings.num_speculative_tokens, loaded(settings.speculative_model).name
    if not own:
        raise KvplanError(
            "no-such-argument",
            f"{engine} needs to know where the draft model of {method!r} is, and the plan names none",
            help="name it as the model of speculative_config, or use mtp",
        )
    return settings.num_speculative_tokens, None


def experts(value: Any, asked: Asked) -> object:
    """Whole experts on each GPU of the tensor-parallel group, unless an option of its own says how many."""
    if any(asked.option(name) for name in ("ep_size", "moe_expert_parallel_size")):
        return ()
    return asked.settings.tensor_parallel_size if value else ()


def words(*same: str, **renamed: str) -> dict[str, object]:
    """Our words → the engine's."""
    return {**{word: word for word in same}, **renamed}


@record()
class Checkpoint:
    """A name on the Hub, perhaps at a revision, or a path (as the plan's reader resolved it)."""

    name: str
    is_path: bool
    revision: str | None = None

    @property
    def is_gguf(self) -> bool:
        return self.name.lower().endswith(".gguf")


def loaded(model: Model) -> Checkpoint:
    """A card stands for the model that it describes; a config.json for its folder; a GGUF file for itself."""
    source = model.source.replace("\\", "/")
    if source.startswith(("card:", "hf:")) or source.lower().endswith((".yaml", ".yml")):
        return Checkpoint(model.id, False)
    return path_of(source)


def path_of(text: str) -> Checkpoint:
    """The checkpoint at a path; of a file inside it, its folder."""
    path = PurePosixPath(text)
    return Checkpoint(str(path.parent if path.name.lower().endswith(INSIDE) else path), True)
