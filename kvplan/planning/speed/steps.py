"""How long one step of the engine takes: rooflines of its parts, collectives, kernels' own time, the host.

    step = host + Σ stages ( fixed + Σ parts roof(operations / (peak · share), bytes / (bandwidth · share))
           + tokens · collectives ) + sends
    roof(a, b) = max(a, b) + (1 − hidden) · min(a, b)
    host = a step + running requests · a request + prompts · a prompt

A step carries the next token of every running request and tokens of prompts. One with prompts that is longer
than the engine's CUDA graphs is launched kernel by kernel, beside the GPU: the longer of the two counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from kvplan.planning.speed.experts import expected_share
from kvplan.planning.speed.profile import SpeedProfile, Stage
from kvplan.record import record

Contexts = tuple[tuple[int, float], ...]
"""(tokens, share of the running requests): the mix of context lengths; shares sum to 1."""


@record()
class Chunk:
    """Prompt tokens in one step of one rank: how many, how long their prompts are in all, what was cached."""

    tokens: float = 0.0
    prompt: int = 1
    cached: int = 0


NOTHING = Chunk()


def roof(profile: SpeedProfile, read: float, work: float) -> float:
    """Seconds of a part that reads so long and computes so long: the longer hides most of the shorter."""
    rest = 1.0 - profile.hidden
    return read + rest * work if read > work else work + rest * read


def matrix_seconds(profile: SpeedProfile, stage: Stage, tokens: float, sampled: float) -> float:
    """The part of a stage's step that attention does not decide: its own times, matrices, experts, the head
    for ``sampled`` tokens."""
    total = stage.fixed_seconds + tokens * stage.token_seconds
    for part in stage.dense:
        total += roof(profile, part.read_seconds, tokens * part.token_seconds)
    for seconds in expert_seconds(profile, stage, tokens * profile.deployment.data_parallel_size):
        total += seconds
    for part in stage.head:
        total += roof(profile, part.read_seconds, sampled * part.token_seconds)
    return total


def expert_seconds(profile: SpeedProfile, stage: Stage, everyone: float) -> Iterator[float]:
    """Seconds of each of a stage's kinds of routed experts, for the tokens of all data-parallel ranks."""
    for experts in stage.experts:
        hit = expected_share(experts.count, experts.per_token, everyone)
        rows = everyone * experts.per_token / experts.count + experts.padding * hit
        yield roof(profile, experts.all.read_seconds * hit, rows * experts.all.token_seconds)


def stage_seconds(
    profile: SpeedProfile,
    stage: Stage,
    requests: int,
    contexts: Contexts,
    chunk: Chunk,
    encoder_tokens: int = 0,
) -> float:
    """One stage of a step of one data-parallel rank; without the host and the sends."""
    total = matrix_seconds(profile, stage, requests + chunk.tokens, requests + chunk.tokens / chunk.prompt)
    byte_seconds, flop_seconds = profile.byte_seconds, profile.flop_seconds
    for cache in stage.caches:
        if requests:
            moved = flops = 0.0
            for length, share in contexts:
                moved += share * cache.step_bytes(length, encoder_tokens)
                flops += share * cache.decode_flops(length, encoder_tokens)
            total += requests * roof(profile, moved * byte_seconds, flops * flop_seconds)
        if chunk.tokens:
            new = chunk.prompt - chunk.cached
            flops = cache.prefill_flops(new, chunk.cached, encoder_tokens) * chunk.tokens / new
            moved = cache.step_bytes(chunk.prompt, encoder_tokens) * chunk.tokens / new
            total += roof(profile, moved * byte_seconds, flops * flop_seconds)
    if chunk.tokens and requests + chunk.tokens > profile.graph_tokens:
        return max(total, stage.prompt_seconds)
    return total


def step_seconds(
    profile: SpeedProfile, requests: int, contexts: Contexts, chunk: Chunk = NOTHING, encoder_tokens: int = 0
) -> float:
    """One token for each of ``requests`` running requests of a rank, through all stages.

    A pipeline keeps as many batches in flight as it has stages, so each batch is a share of the requests,
    and a request's next token needs its batch to pass every stage.
    """
    pipeline = profile.deployment.pipeline_parallel_size
    if pipeline > 1:
        requests = ceil(requests / pipeline)
    total = profile.host[0] + requests * profile.host[1] + chunk.tokens / chunk.prompt * profile.host[2]
    for stage in profile.stages:
        total += stage_seconds(profile, stage, requests, contexts, chunk, encoder_tokens)
    fixed, per_token = profile.send_seconds
    return total + (pipeline - 1) * (fixed + (requests + chunk.tokens) * per_token)


def prefill_seconds(
    profile: SpeedProfile,
    prompt: int,
    cached: int = 0,
    *,
    beside: int = 0,
    contexts: Contexts = ((1, 1.0),),
    encoder_tokens: int = 0,
) -> float:
    """From the start of a prompt's first chunk to its first token, with ``beside`` requests that decode.

    Chunks of max_num_batched_tokens follow one another; in a pipeline the next one enters while the last is
    in a later stage.
    """
    new = prompt - cached
    chunks = ceil(new / profile.deployment.max_num_batched_tokens)
    chunk = Chunk(new / chunks, prompt, cached)
    first = step_seconds(profile, beside, contexts, chunk, encoder_tokens)
    if chunks == 1:
        return first
    slowest = max(
        stage_seconds(profile, stage, beside, contexts, chunk, encoder_tokens) for stage in profile.stages
    )
    between = first if len(profile.stages) == 1 else slowest + profile.host[0]
    return first + (chunks - 1) * between


def mixed_seconds(
    profile: SpeedProfile,
    requests: int,
    contexts: Contexts,
    prompt: int,
    cached: int,
    output: int,
    encoder_tokens: int = 0,
) -> float:
    """The average step of a rank whose finished requests are replaced by new ones at once.

    Each of the other requests brings prompt − cached tokens once in ``output`` steps. Where that is less
    than a chunk a step, the share of steps that carry one takes longer; where it is more, every step carries
    what arrives.
    """
    plain = step_seconds(profile, requests, contexts, NOTHING, encoder_tokens)
    if requests == 1:
        return plain
    arriving, chunk = arriving_tokens(profile, requests, prompt - cached, output)
    if arriving >= chunk:
        return step_seconds(profile, requests, contexts, Chunk(arriving, prompt, cached), encoder_tokens)
    with_chunk = step_seconds(profile, requests, contexts, Chunk(chunk, prompt, cached), encoder_tokens)
    return plain + arriving / chunk * (with_chunk - plain)


def arriving_tokens(profile: SpeedProfile, requests: int, new: int, output: int) -> tuple[float, int]:
    """(prompt tokens that come with each step, those that one step computes)."""
    arriving = (requests - 1) * new / output / profile.deployment.pipeline_parallel_size
    return arriving, min(new, profile.deployment.max_num_batched_tokens)
