"""The questions of an agent as command lines: tools as data, the command's own screen or JSON out.

A tool takes the everyday options of its command by their long names, every other one in ``options``. Options
that write files are not among them: a tool only answers. An answer is the screen, at most `SHORT` characters
of it, as an agent pays for each one it reads; ``detail: full`` is the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvplan.cli.commands import COMMANDS
from kvplan.cli.everyday import EVERYDAY
from kvplan.cli.options import OUTPUT, Option
from kvplan.cli.terminal import Answer
from kvplan.errors import KvplanError, did_you_mean
from kvplan.named import NamedTuple
from kvplan.record import Json

MORE = "options"
LONGEST = 200_000
"""Characters of a plan that is sent as text."""
DETAIL = "detail"
DETAILS = ("short", "full")
SHORT = 2000
"""Characters of an answer, unless all of it was asked for."""
_SCREEN = ("verbose", "json", "set")
_QUIET = ("json", "color")


class Tool(NamedTuple):
    """One tool. asked: the command's positional word, as the tool calls it, and its meaning; optional: the
    command answers without it."""

    name: str
    description: str
    asked: str
    meaning: str
    optional: bool = False


_MODEL = "A card's name (qwen3-32b), a Hugging Face id, a path of a config.json or GGUF file, or a plan file."
TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "size",
            "How much KV cache a model takes, and how many requests of how many tokens fit a GPU: likely and"
            " safely. Without gpu: the bytes of one request.",
            "model", _MODEL,
        ),
        Tool(
            "plan",
            "Which GPUs, how many, and with which flags serve a load: every candidate judged by the engine's"
            " own rules; best first, with why others were rejected.",
            "model", _MODEL,
        ),
        Tool(
            "fits",
            "Which models a GPU or a Mac holds: the best build of each, requests at once, longest length.",
            "model", "A part of the models' names (qwen3); all without it.", optional=True,
        ),
        Tool(
            "check",
            "Whether a plan file (or a vllm serve line, a manifest, a Compose file) holds what it requires:"
            " findings with place and suggested fixes that were computed. Give path or text.",
            "path", "A file or folder, as the server of this tool sees it.",
        ),
        Tool(
            "compare",
            "Whether a server did as predicted: the figures of its start-up log beside kvplan's, one by one.",
            "path", "A start-up log, as the server of this tool sees it.",
        ),
        Tool(
            "explain",
            "Where the bytes come from: layers, terms, factors, config keys, with the paper or source file"
            " behind each rule.",
            "model", _MODEL,
        ),
    )
}  # fmt: skip
INSTRUCTIONS = """\
kvplan sizes the KV cache of language models as each serving engine allocates it. Ask it instead of a formula:
windows, MLA, hybrids, block rounding and tensor parallelism are counted as the engine does. A count has a
likely and a safe figure: plan with the safe one. A refusal says why the engine would not start and what would
help. An unknown model or GPU is an error with the nearest names; kvplan never guesses. Bytes are whole
numbers."""


class Answered(NamedTuple):
    """text: the screen, or the JSON, which is then in data too; code: 1 where the answer is no."""

    text: str
    code: int
    data: dict[str, Any] | None = None


def options_of(tool: Tool) -> dict[str, Option]:
    """The options that a tool may give, by name: those of its command that write nothing."""
    return {
        option.name: option
        for option in COMMANDS[tool.name].options
        if option.panel != OUTPUT and option.name not in _SCREEN
    }


def input_schema(tool: Tool) -> dict[str, object]:
    """JSON Schema of a tool's arguments."""
    known = options_of(tool)
    listed = [name for name, _ in EVERYDAY[tool.name].options] if tool.name in EVERYDAY else list(known)
    properties: dict[str, object] = {tool.asked: {"type": "string", "description": tool.meaning}}
    if tool.name == "check":
        properties["text"] = {"type": "string", "description": "The plan itself, as YAML, in place of path."}
    for name in listed:
        if name in known:
            properties[name] = _property(known[name])
    properties[DETAIL] = {
        "enum": list(DETAILS),
        "description": f"short (default): the screen, at most {SHORT:,} characters; full: its JSON.",
    }
    more = f"Any other option of kvplan {tool.name}, by its long name (kvplan {tool.name} --help-all)."
    properties[MORE] = {"type": "object", "description": more}
    required = [] if tool.optional or tool.name == "check" else [tool.asked]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _property(option: Option) -> dict[str, object]:
    if option.is_switch:
        return {"type": "boolean", "description": option.help}
    return {"type": ["string", "number"], "description": f"{option.metavar}: {option.help}"}


def answered(name: str, arguments: Json) -> Answered:
    """The answer to one call. Raises KvplanError: what the command line would say."""
    if name not in TOOLS:
        raise KvplanError("unknown-tool", f"there is no tool {name!r}", help=", ".join(TOOLS))
    tool, rest = TOOLS[name], dict(arguments)
    text = rest.pop("text", None) if name == "check" else None
    asked, detail = rest.pop(tool.asked, None), rest.pop(DETAIL, DETAILS[0])
    if detail not in DETAILS:
        raise KvplanError("bad-usage", f"{DETAIL} is one of {', '.join(DETAILS)}")
    if not tool.optional and (asked is None) == (text is None):
        what = f"{tool.asked} or text: one of them" if name == "check" else f"which {tool.asked}?"
        raise KvplanError("bad-usage", what)
    full = detail == "full"
    given = _given(tool, {**rest, **_object(rest.pop(MORE, {}))})
    if text is not None:
        return _checked(text, given, full=full)
    if asked is not None and (not isinstance(asked, str) or asked.strip().startswith("-")):
        raise KvplanError("bad-usage", f"{asked!r} is no {tool.asked}", help=tool.meaning)
    words = [] if asked is None else [asked]
    return _as_asked(COMMANDS[name].call(words, {**given, **({"json": True} if full else {})}), full=full)


def _as_asked(found: Answer, *, full: bool) -> Answered:
    """The JSON of a command's answer, or as much of its screen as is read at a glance."""
    if full:
        data = found.data if found.text is None else json.loads(found.text)
        return Answered(json.dumps(data), found.code, data)
    return Answered(shortened(found.plainly()), found.code)


def shortened(text: str) -> str:
    """A screen's first paragraphs as far as `SHORT` characters go, and how many lines were left out."""
    if len(text) <= SHORT:
        return text
    lines, room = text.splitlines(keepends=True), SHORT - 60
    ends = [at for at, line in enumerate(lines) if not line.strip()]
    most = max(at for at in range(len(lines) + 1) if sum(map(len, lines[:at])) <= room)
    kept = max((at for at in ends if 0 < at <= most), default=most)
    return "".join(lines[:kept]) + f"\n({len(lines) - kept} more lines: {DETAIL}: full)\n"


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise KvplanError("bad-usage", f"{MORE} is an object of options and values")
    return value


def _given(tool: Tool, values: Mapping[str, object]) -> dict[str, str | bool | None]:
    """Options as a command takes them: texts and switches. Raises KvplanError(bad-usage)."""
    known, given = options_of(tool), dict[str, "str | bool | None"]()
    known |= {
        flag.lstrip("-").replace("-", "_"): option for option in known.values() for flag in option.flags
    }
    for name, value in values.items():
        if name == MORE:
            continue
        option = known.get(name.lstrip("-").replace("-", "_"))
        if option is None:
            near = did_you_mean(name, known)
            raise KvplanError(
                "bad-usage",
                f"the tool {tool.name} has no option {name!r}",
                help=f"did you mean {near}?" if near else f"kvplan {tool.name} --help-all",
            )
        given[option.name] = _value(option, value)
    return given


def _value(option: Option, value: object) -> str | bool:
    if option.is_switch:
        if not isinstance(value, bool):
            raise KvplanError("bad-usage", f"{option.name} is true or false")
        return value
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise KvplanError("bad-usage", f"{option.name} is a text or a number")
    return str(value)


def _checked(text: object, given: Mapping[str, str | bool | None], *, full: bool) -> Answered:
    """A plan that was sent as text: nothing is read from standard input, on which the protocol runs."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise KvplanError("bad-usage", f"text is a plan of at most {LONGEST:,} characters")
    from kvplan.api.checking.paths import check_paths
    from kvplan.report.check import render

    environment, gpu = given.get("env"), given.get("gpu")
    report = check_paths(
        ["-"],
        environment=environment if isinstance(environment, str) else None,
        gpu=gpu if isinstance(gpu, str) else None,
        stdin=text.encode(),
    )
    return _as_asked(
        Answer(text=render(report, "json" if full else "text"), code=report.exit_code), full=full
    )


__all__ = [
    "INSTRUCTIONS",
    "SHORT",
    "TOOLS",
    "Answered",
    "Tool",
    "answered",
    "input_schema",
    "options_of",
    "shortened",
]
