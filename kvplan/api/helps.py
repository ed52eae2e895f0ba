"""The ways out of a refusal, as far as they are: each is asked again before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvplan.api.options import SHORT, changed_settings
from kvplan.engines import OWN_OPTIONS
from kvplan.engines.base import Choice
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.questions import ask, verdict
from kvplan.results import SizeResult
from kvplan.settings import Settings, media_tokens

_NAMES = {
    **SHORT,
    **{flag.lstrip("-"): name for name, option in OWN_OPTIONS.items() for flag in option.flags},
    "speculative": "speculative_config",
}
_NEWER = "use engine "
_ENGINE = "engine"
Options = dict[str, "str | None"]


def with_ways_out(model: Model, choice: Choice, settings: Settings, result: SizeResult) -> SizeResult:
    """The answer with the helps of its refusal that are one: with each the answer is yes."""
    refusal = result.refusal
    if refusal is None or not refusal.help:
        return result
    helps = tuple(tried(model, choice, settings, refusal.help))
    return result if helps == refusal.help else replace(result, refusal=replace(refusal, help=helps))


def tried(model: Model, choice: Choice, settings: Settings, helps: Sequence[str]) -> Iterator[str]:
    """Those of the helps that lead to a yes, with what else has to change for it. Prose is left as it is."""
    seen = set()
    for text in helps:
        options = options_of(text)
        if options is None:
            yield text
            continue
        found = _enough(model, choice, settings, text, more=1)
        if found is None or (words := _words(found[0])) in seen:
            continue
        seen.add(words)
        yield text if found[0] == options else f"{words}{found[1]}"


def options_of(text: str) -> Options | None:
    """``--max-model-len 4096 --enforce-eager: why`` by flags; None for words that are no options."""
    if text.startswith(_NEWER):
        text = f"--{_ENGINE} {text.removeprefix(_NEWER)}"
    options: Options = {}
    flag = ""
    for word in text.partition(": ")[0].split():
        if word.startswith("--"):
            flag = word.removeprefix("--")
            options[flag] = None
        elif flag and options[flag] is None:
            options[flag] = word
        else:
            return None
    return options or None


def _enough(
    model: Model, choice: Choice, settings: Settings, text: str, *, more: int
) -> tuple[Options, str] | None:
    """The options, and at most so many helps of the next refusal, with which the answer is yes, and what is
    said of the last of them."""
    options = options_of(text)
    if options is None:
        return None
    try:
        options, choice, asked = _changed(choice, settings, options)
        result = ask(model, choice, asked)
        found = verdict(model, choice, asked, result)
    except KvplanError:
        return None
    if result.refusal is None:
        return (options, "".join(text.partition(": ")[1:])) if found is None or found.fits else None
    for further in result.refusal.help if more else ():
        ways = _enough(model, choice, asked, further, more=more - 1)
        if ways is not None:
            return {**options, **ways[0]}, ways[1]
    return None


def _changed(choice: Choice, settings: Settings, options: Options) -> tuple[Options, Choice, Settings]:
    """The options as they are typed, and the question with them. Raises KvplanError."""
    named = dict(options)
    if (engine := named.pop(_ENGINE, None)) is not None:
        choice = replace(choice, engine=choose(engine).engine, version=choose(engine).version)
    changes: dict[str, object] = {}
    for flag, value in named.items():
        off = value is None and flag.startswith("no-")
        name = flag.removeprefix("no-") if off else flag
        changes[_NAMES.get(name, name.replace("-", "_"))] = (not off) if value is None else _value(value)
    asked = changed_settings(settings, changes)
    beside = media_tokens(settings.media)
    if beside and "tokens" in changes and asked.tokens is not None:
        # An engine counts what a request carries beside its text; who asks names the text.
        text = asked.tokens - beside
        if text < 1:
            raise KvplanError("bad-setting", "images, video and audio alone are longer")
        options = {**options, "tokens": str(text)}
        asked = replace(asked, media=tuple({**dict(asked.media), "text_tokens": text}.items()))
    return options, choice, asked


def _value(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text


def _words(options: Options) -> str:
    return " ".join(f"--{flag}" if value is None else f"--{flag} {value}" for flag, value in options.items())
