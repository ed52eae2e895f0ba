"""The engine's own log of its steps: what each computed and how long it took.

vllm-project/vllm ``--enable-logging-iteration-details`` prints one line a step (0.15 to 0.28
vllm/v1/engine/core.py, log_iteration_details; since then vllm/v1/metrics/loggers.py, _log_iteration_details,
with the cache in use):

    Iteration(10): 1 context requests, 512 context tokens, 7 generation requests, 7 generation tokens,
    iteration elapsed time: 21.50 ms, GPU KV cache usage: 12.5%

Steps of other data-parallel ranks stand beside each other; dummy steps and steps with images are left out.
"""

from __future__ import annotations

from pathlib import Path

from kvplan.files.json_input import read_limited
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import MIB

_LIMIT = 256 * MIB
_LINE = regex(
    rb"Iteration\(\d{1,18}\): (\d{1,9}) context requests, (\d{1,12}) context tokens, "
    rb"(\d{1,9}) generation requests, (\d{1,12}) generation tokens, "
    rb"iteration elapsed time: (\d{1,9}(?:\.\d{1,9})?) ms([^\n]{0,200})"
)
_USED = regex(rb"KV cache usage: (\d{1,3}(?:\.\d{1,9})?)%")


@record()
class Iteration:
    """One step. prompts, prompt_tokens: requests whose prompts it computed, and their tokens; answers:
    requests that made a token; used: share of the cache in use, None where it is not said."""

    prompts: int
    prompt_tokens: int
    answers: int
    seconds: float
    used: float | None


def read_iterations(path: Path) -> tuple[Iteration, ...]:
    """The steps of a log, none where it has none. Drafts (more than one token a request) are left out.

    Raises KvplanError(no-such-file, file-too-large …)."""
    found = []
    for prompts, tokens, answers, made, milliseconds, rest in _LINE.findall(read_limited(path, _LIMIT)):
        if b"(dummy)" in rest or b"encoder inputs" in rest or int(made) != int(answers):
            continue
        said = _USED.search(rest)
        used = None if said is None else min(1.0, float(said[1]) / 100)
        one = Iteration(int(prompts), int(tokens), int(answers), float(milliseconds) / 1000, used)
        if one.seconds and (one.answers or one.prompt_tokens):
            found.append(one)
    return tuple(found)
