"""The suggestions of a refusal, as far as they help: each is asked again before it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.api.options import SHORT, changed_settings
from kvplan.deployment.answer import Answer, answer, answered
from kvplan.deployment.question import Question
from kvplan.deployment.resolve import Deployment
from kvplan.engines import OWN_OPTIONS
from kvplan.engines.base import SAFE
from kvplan.engines.budget import choose
from kvplan.engines.traits import traits_of, usual_build, usual_for
from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.record import changed, replace
from kvplan.results import Refusal, Verdict
from kvplan.settings import Settings, media_tokens

if TYPE_CHECKING:
    from kvplan.deployment import alone
    from kvplan.deployment import gains as headroom
    from kvplan.deployment import gpus as dealing
else:
    alone = later("kvplan.deployment", "alone")
    dealing = later("kvplan.deployment", "gpus")
    headroom = later("kvplan.deployment", "gains")

_NAMES = {
    **SHORT,
    **{flag.lstrip("-"): name for name, option in OWN_OPTIONS.items() for flag in option.flags},
    "speculative": "speculative_config",
}
_TOO_LITTLE = ("no-memory-for-cache", "not-enough-memory", "weights")
"""Codes of refusals for which a GPU's memory is too little."""
_OF_ANY = {"gpu", "tokens", "requests", "answer_tokens", "tensor_parallel_size"}
"""Settings that every engine takes alike, and the GPUs as this one divides its weights over them."""
_NEWER = "use engine "
_ENGINE = "engine"
Options = dict[str, "str | None"]


def with_suggestions(found: Answer) -> Answer:
    """The answer with those suggestions of its refusals that help: with each the answer is yes or likely, and
    with those of the safe pool's, where the likely one starts, it is yes. Where max_num_seqs is the limit:
    with how many requests memory holds."""
    found = _in_safe_pool(found)
    if found.result.capacity is not None and found.result.capacity.capped:
        found = headroom.with_headroom(found)
    refusal = found.result.refusal
    if refusal is None:
        return found
    helps = (*_at_a_desk(found.deployment, refusal), *tried(found.deployment, refusal.help))
    if helps == refusal.help:
        return found
    return replace(found, result=changed(found.result, refusal=replace(refusal, help=helps)))


def _at_a_desk(deployment: Deployment, refusal: Refusal) -> Iterator[str]:
    """The build of the model that people run on such a GPU, where its memory is too little for the engine and
    nothing was said that only this one takes."""
    settings = deployment.settings
    gpu, usual = settings.gpu, None if settings.gpu is None else usual_for(settings.gpu)
    if refusal.code not in _TOO_LITTLE or usual is None or usual == deployment.choice.engine.name:
        return
    build = usual_build(usual, deployment.model)
    if not traits_of(usual).at_desk or build is None or not set(deployment.typed) <= _OF_ANY:
        return
    dealt: dict[str, Any] = {traits_of(usual).spread or "tensor_parallel_size": deployment.gpus}
    asked = Settings(
        gpu=gpu, tokens=settings.tokens, requests=deployment.requests, answer_tokens=settings.answer_tokens,
        quantization=build, gpus=deployment.gpus,
    )  # fmt: skip
    try:
        found = answer(Question(deployment.model, choose(usual), replace(asked, **dealt)))
    except KvplanError:
        return
    if found.result.refusal is None and found.holds:
        several = f" --tp 1 --pp {deployment.gpus}" if deployment.gpus > 1 else ""
        yield f"-e {usual} -q {build}{several}: a GGUF build, as people run models on such a GPU"


def with_ways(found: Answer) -> Answer:
    """The answer with the ways in which one request at a time is served, of an engine that people run at a
    desk (`kvplan.deployment.alone`)."""
    return alone.with_ways(found) if traits_of(found.deployment.choice.engine.name).at_desk else found


def _in_safe_pool(found: Answer) -> Answer:
    safe, deployment = found.safe, found.deployment
    if found.verdict is not Verdict.LIKELY or safe is None or safe.refusal is None or not safe.refusal.help:
        return found
    surely = replace(deployment, choice=replace(deployment.choice, pool=SAFE))
    refusal = replace(safe.refusal, help=tuple(tried(surely, safe.refusal.help)))
    return replace(found, safe=safe._replace(refusal=refusal))


def tried(deployment: Deployment, helps: Sequence[str]) -> Iterator[str]:
    """Those of the suggestions that lead to a yes, with what else has to change for it. Prose is left as it
    is."""
    seen = set()
    for text in helps:
        options = options_of(text)
        if options is None:
            yield text
            continue
        found = _enough(deployment, text, more=1)
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


def _enough(deployment: Deployment, text: str, *, more: int) -> tuple[Options, str] | None:
    """The options, and at most so many of the suggestions of the next refusal, with which the answer is yes,
    and what is said of the last of them."""
    options = options_of(text)
    if options is None:
        return None
    try:
        options, asked = _changed(deployment, options)
        found = answered(asked)
    except KvplanError:
        return None
    refusal = found.result.refusal
    if refusal is None:
        # On a GPU whose pool is not known nothing is a yes; without one nothing is counted.
        counts = asked.choice.pool is not None and asked.settings.gpu is not None
        helps = found.holds or (found.holds is None and not counts)
        return (options, "".join(text.partition(": ")[1:])) if helps else None
    for further in refusal.help if more else ():
        ways = _enough(asked, further, more=more - 1)
        if ways is not None:
            return {**options, **ways[0]}, ways[1]
    return None


def _changed(deployment: Deployment, options: Options) -> tuple[Options, Deployment]:
    """The options as they are typed, and the deployment with them. Raises KvplanError."""
    named, choice = dict(options), deployment.choice
    if (engine := named.pop(_ENGINE, None)) is not None:
        choice = replace(choice, engine=choose(engine).engine, version=choose(engine).version)
    length = named.get("max-model-len")
    if length is not None and deployment.follows_requests and list(named) == ["max-model-len"]:
        # The server is started for the requests: a shorter one is one for shorter requests.
        options, named = {"tokens": length}, {"tokens": length, "max-model-len": length}
    changes: dict[str, object] = {}
    for flag, value in named.items():
        off = value is None and flag.startswith("no-")
        name = flag.removeprefix("no-") if off else flag
        changes[_NAMES.get(name, name.replace("-", "_"))] = (not off) if value is None else _value(value)
    asked = changed_settings(deployment.settings, changes)
    if choice.door is not None:
        from kvplan.engines.door_settings import check_taken

        check_taken(deployment.model, choice, asked)
    beside = media_tokens(asked.media)
    if beside and "tokens" in changes and asked.tokens is not None:
        # An engine counts what a request carries beside its text; who asks names the text.
        text = asked.tokens - beside
        if text < 1:
            raise KvplanError("bad-setting", "images, video and audio alone are longer")
        options = {**options, "tokens": str(text)}
        asked = replace(asked, media=tuple({**dict(asked.media), "text_tokens": text}.items()))
    dealt = dealing.redealt(replace(deployment, choice=choice, settings=asked), deployment.gpus)
    if asked.gpus is not None and dealt.gpus > asked.gpus and asked.gpu is not None:
        options = {"gpu": f"{dealt.gpus}x{asked.gpu.slug}", **options}
    return options, dealt


def _value(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text


def _words(options: Options) -> str:
    return " ".join(f"--{flag}" if value is None else f"--{flag} {value}" for flag, value in options.items())
