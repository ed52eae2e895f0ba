"""Commands of programs that start an engine by themselves: ``ollama run``, ``lms load``, a Modelfile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from kvplan.engines.doors import Wish
from kvplan.errors import KvplanError
from kvplan.files.cards.ollama_names import HEADS, named_in
from kvplan.files.launch.launch import Launch, devices_seen
from kvplan.files.launch.models import model_of
from kvplan.files.launch.starts import Start
from kvplan.files.launch.words import Option, take_apart
from kvplan.later import regex
from kvplan.record import replace

MODELFILE = "Modelfile"
_OF_THE_SERVER = regex(r"OLLAMA_\w+|LLAMA_ARG_\w+", re.ASCII)
_NO_MEMORY = frozenset(
    """DEBUG DEBUG_LOG_REQUESTS GO_TEMPLATE HOST KEEP_ALIVE LLM_LIBRARY LOAD_TIMEOUT MAX_TRANSFER_STREAMS
    MAX_QUEUE MODELS NO_CLOUD NOHISTORY NOPRUNE ORIGINS EDITOR REMOTES AUTH VULKAN IGPU_ENABLE
    TMPDIR""".split()
)
"""Ollama's variables that change no byte of a loaded model (envconfig/config.go)."""
_UNREAD = ("MAX_LOADED_MODELS", "NEW_ENGINE", "NUM_THREAD", "MULTIUSER_CACHE")


def launch_of_program(start: Start, *, name: str, engine: str | None = None) -> Launch:
    """The model that a program loads, and what its user told it; one that nothing names is no error yet:
    `Launch.unnamed`. Raises KvplanError(bad-flag)."""
    program = start.server.door
    assert program is not None
    words = take_apart(start.server, start.words)
    read = {"ollama": _ollama, "lmstudio": _lmstudio}[program]
    wish, unread, notes = read(words.options, dict(start.environment))
    unnamed = None
    if not words.rest:
        title = start.server.title
        unnamed = KvplanError(
            "no-model-named",
            f"{title} loads models as they are asked for, and {name} names none",
            help=("kvplan import FILE --model qwen3:8b, with what the file sets",
                  f"kvplan size MODEL -e {program} --gpu rtx-3090"),
        )  # fmt: skip
    gpus = start.gpus or len(devices_seen(dict(start.environment))) or None
    return Launch(
        name, engine or program, "" if unnamed else model_of_program(program, words.rest[0]), {}, gpus=gpus,
        unread=unread, notes=notes, wish=wish, unnamed=unnamed,
    )  # fmt: skip


def launch_of_modelfile(text: str, *, name: str) -> Launch:
    """The model that ``ollama create -f Modelfile`` makes (ollama/ollama docs/modelfile.mdx).

    Raises KvplanError(no-model-named | bad-flag)."""
    plain = re.sub(r'"""(?:.|\n)*?"""', "", text)
    model, wish, unread = None, Wish(), []
    for row in plain.splitlines():
        key, _, rest = row.strip().partition(" ")
        rest = rest.strip()
        if key.upper() == "FROM":
            model = rest
        elif key.upper() == "PARAMETER":
            parameter, _, value = rest.partition(" ")
            if parameter == "num_ctx":
                wish = wish._replace(context=_number(value.strip(), parameter))
            elif parameter == "num_gpu":
                wish = wish._replace(gpu_layers=_number(value.strip(), parameter))
            elif parameter == "num_batch":
                wish = wish._replace(batch=_number(value.strip(), parameter))
            elif parameter in ("main_gpu", "draft_num_predict"):
                unread.append(f"PARAMETER {rest}")
        elif key.upper() in ("ADAPTER", "DRAFT"):
            unread.append(f"{key} {rest}")
    if model is None:
        raise KvplanError("no-model-named", f"{name} has no FROM", help="FROM qwen3:8b")
    named, read_as = model_of(model_of_program("ollama", model), Path(), "FROM")
    notes = () if read_as is None else (read_as,)
    return Launch(name, "ollama", named, {}, unread=tuple(unread), wish=wish, notes=notes)


def model_of_program(program: str, word: str) -> str:
    """The model that a program means by a name, as kvplan names it."""
    if program == "lmstudio":
        base, at, build = word.partition("@")
        # The catalogue's name of a model has both kinds of builds; one of MLX says so.
        gguf = "" if re.search("gguf|mlx", base, re.IGNORECASE) else "-GGUF"
        return word if base.endswith(".gguf") else f"{base}{gguf}{at}{build}"
    named = named_in("ollama:", word)
    hub = word.removeprefix("https://")
    if hub.startswith(("hf.co/", "huggingface.co/")):
        return hub.partition("/")[2]
    if word.startswith(HEADS) or named != word or word.endswith(".gguf"):
        return named
    return f"ollama:{word}" if ":" in word or "/" not in word else word


def _ollama(
    options: Iterable[Option], environment: Mapping[str, str]
) -> tuple[Wish, tuple[str, ...], tuple[str, ...]]:
    unread = [option.spelled for option in options if option.flag is None]
    notes: list[str] = []
    wish = Wish()
    for variable, value in environment.items():
        if not _OF_THE_SERVER.fullmatch(variable):
            continue
        value = value.strip().strip("\"'")
        short = variable.removeprefix("OLLAMA_")
        if variable in _VARIABLES:
            wish = _VARIABLES[variable](wish, value)
        elif variable.startswith("LLAMA_ARG_") or short in _UNREAD:
            unread.append(f"{variable}={value}")
        elif short not in _NO_MEMORY:
            notes.append(f"Ollama reads no variable {variable}")
    return wish, tuple(unread), tuple(notes)


def _said(value: str) -> bool:
    """strconv.ParseBool; what is none counts as yes (envconfig/config.go, BoolWithDefault)."""
    return value.lower() not in ("0", "f", "false")


_VARIABLES: Mapping[str, Callable[[Wish, str], Wish]] = {
    "OLLAMA_CONTEXT_LENGTH": lambda wish, text: wish._replace(
        context=_number(text, "OLLAMA_CONTEXT_LENGTH") or None
    ),
    "OLLAMA_NUM_PARALLEL": lambda wish, text: wish._replace(
        parallel=max(_number(text, "OLLAMA_NUM_PARALLEL"), 1)
    ),
    "OLLAMA_KV_CACHE_TYPE": lambda wish, text: wish._replace(cache_type=text.lower() or None),
    "OLLAMA_FLASH_ATTENTION": lambda wish, text: wish._replace(flash_attn=_said(text) if text else None),
    "OLLAMA_GPU_OVERHEAD": lambda wish, text: wish._replace(overhead=_number(text, "OLLAMA_GPU_OVERHEAD")),
    "OLLAMA_SCHED_SPREAD": lambda wish, text: wish._replace(spread=_said(text) if text else False),
}


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII):
        raise KvplanError("bad-flag", f"{what} takes another value than {text!r}")
    return int(text)


def _lmstudio(
    options: Iterable[Option], environment: Mapping[str, str]
) -> tuple[Wish, tuple[str, ...], tuple[str, ...]]:
    del environment
    wish, unread = Wish(), []
    for option in options:
        name = option.flag.names[0] if option.flag is not None else option.spelled
        if name == "--context-length":
            wish = wish._replace(context=_number(str(option.value), name))
        elif name == "--parallel":
            wish = wish._replace(parallel=_number(str(option.value), name))
        elif name == "--gpu":
            part = _gpu_part(str(option.value))
            wish = wish._replace(gpu_part=part, gpu_layers=None if part else 0)
        elif option.flag is None or not option.flag.memoryless:
            unread.append(option.spelled)
    return wish, tuple(unread), ()


def _gpu_part(text: str) -> Fraction:
    """``off``, ``max`` or a part of 1 (lmstudio-ai/lms src/subcommands/load.ts, gpuOptionParser)."""
    words = {"off": Fraction(0), "max": Fraction(1)}
    try:
        part = words[text] if text in words else Fraction(text)
    except (ValueError, ZeroDivisionError):
        part = Fraction(-1)
    if not 0 <= part <= 1:
        raise KvplanError("bad-flag", f"--gpu takes another value than {text!r}", help="off, max, 0.5")
    return part


def gathered(starts: Sequence[Start]) -> list[Start]:
    """The starts without those of a program's server that name no model, where another command of it does:
    what its environment says counts for that one."""
    kept: list[Start] = []
    environment: dict[str, str] = {}
    for start in starts:
        if start.server.door is None:
            kept.append(start)
            continue
        environment.update(start.environment)
        twice = any(one.server is start.server and one.words == start.words for one in kept)
        if start.words and not twice:
            kept.append(start)
    if not any(start.server.door for start in kept):
        return list(starts)
    both = tuple(environment.items())
    return [replace(start, environment=both) if start.server.door else start for start in kept]
