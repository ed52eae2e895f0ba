"""Engines that only read prompts beside engines that only answer, as one deployment of both kinds.

ai-dynamo/dynamo components/src/dynamo/vllm/backend_args.py; SGLang says it by an option of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.engines.dynamo import DECODE, PREFILL, worker_of
from kvplan.files.launch.launch import Launch
from kvplan.record import replace

_MODE = "disaggregation_mode"


def with_sides(launches: Sequence[Launch]) -> list[Launch]:
    """The launches; two of one object that differ in their role alone are one, with so many of each kind."""
    found = list(launches)
    for prompts in launches:
        if _role(prompts) != PREFILL:
            continue
        plain = _plain(prompts)
        pairs = [one for one in launches if _role(one) == DECODE and _object(one) == _object(prompts)]
        if len(pairs) != 1 or replace(_plain(pairs[0]), name=plain.name, replicas=plain.replicas) != plain:
            continue
        (answers,) = pairs
        both = replace(
            plain, name=_object(prompts), replicas=prompts.replicas + answers.replicas,
            sides=(prompts.replicas, answers.replicas),
        )  # fmt: skip
        found[found.index(prompts)] = both
        found.remove(answers)
    return found


def _object(launch: Launch) -> str:
    return launch.name.rpartition("-")[0]


def _role(launch: Launch) -> str | None:
    """``prefill`` or ``decode``; None of an engine that does both."""
    said = launch.serve.get(_MODE)
    if said in (PREFILL, DECODE):
        return str(said)
    words = _words(launch)
    return next((words[one] for one in launch.unread if one in words), None)


def _words(launch: Launch) -> dict[str, str]:
    """What is left of an engine's words that says its role, and the role."""
    worker = worker_of(launch.engine.partition("@")[0])
    if worker is None:
        return {}
    legacy = {switch: role for role, switch in worker.legacy}
    return {**legacy, **{f"--disaggregation-mode {role}": role for role in (PREFILL, DECODE)}}


def _plain(launch: Launch) -> Launch:
    """The launch without the words of its role."""
    words = _words(launch)
    serve = {name: value for name, value in launch.serve.items() if name != _MODE}
    return replace(launch, serve=serve, unread=tuple(one for one in launch.unread if one not in words))
