"""Speed of a deployment under a load: TTFT, TPOT, tokens per second and cost, with intervals.

It ranks and filters deployments; it is no benchmark. How far published measurements lie from it is in
docs/speed.md.
"""

from __future__ import annotations

from math import ceil, inf

from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.planning.speed.figures import Figure, Spread
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.planning.speed.steps import Contexts, mixed_seconds, prefill_seconds, step_seconds
from kvplan.record import record


@record()
class Load:
    """The load of a replica: ``requests`` running at a time, each of ``prompt`` tokens of which ``cached``
    are in the prefix cache, answered with ``output`` tokens.

    contexts: the mix of lengths while decoding, where it is not prompt + output / 2.
    """

    requests: int
    prompt: int
    output: int
    cached: int = 0
    contexts: Contexts = ()
    encoder_tokens: int = 0

    def __post_init__(self) -> None:
        if self.requests < 1 or self.prompt < 1 or self.output < 1:
            raise KvplanError("bad-load", "a load has at least one request, prompt token and output token")
        if not 0 <= self.cached < self.prompt:
            raise KvplanError(
                "bad-load",
                f"{self.cached:,} of {self.prompt:,} prompt tokens are cached",
                help="at least the last token of a prompt is computed",
            )
        shares = sum(share for _, share in self.contexts)
        if self.contexts and (abs(shares - 1) > 1e-6 or min(share for _, share in self.contexts) < 0):
            raise KvplanError("bad-load", f"the shares of the context lengths sum to {shares:g}, not 1")

    @property
    def mix(self) -> Contexts:
        return self.contexts or ((self.prompt + self.output // 2, 1.0),)

    def with_requests(self, requests: int) -> Load:
        """The same load with another number of running requests."""
        return Load(requests, self.prompt, self.output, self.cached, self.contexts, self.encoder_tokens)


@record()
class Estimate:
    """Speed of one replica. Times are seconds.

    step: one decode step without prompts. tpot: time per output token of a request, prompts of others
    included. ttft: from arrival to first token. request_tokens_per_second: of one request while it decodes;
    tokens_per_second: output of the whole replica; requests_per_second: finished by it.
    """

    step: Figure
    tpot: Figure
    ttft: Figure
    request_tokens_per_second: Figure
    tokens_per_second: Figure
    requests_per_second: Figure


def estimate(profile: SpeedProfile, load: Load) -> Estimate:
    """All figures of one load. TPOT and TTFT never fall as requests rise, nor as prompts lengthen."""
    step, tpot, ttft, total = _times(profile, load)
    decode, first = spread(profile, "decode"), spread(profile, "prefill")
    finished = load.requests / total
    limit = _limits(profile, load)
    return Estimate(
        decode.around(step, "s").no_less_than(limit.step),
        decode.around(tpot, "s").no_less_than(limit.step),
        first.around(ttft, "s").no_less_than(limit.prompt),
        decode.around_rate(1.0 / tpot, "tokens/s").no_more_than(limit.rate),
        decode.around_rate(finished * load.output, "tokens/s").no_more_than(limit.finished * load.output),
        decode.around_rate(finished, "requests/s").no_more_than(limit.finished),
    )


class _Limits(NamedTuple):
    """Bounds of a machine with the GPU's peaks: seconds of a decode step and of a prompt alone, requests that
    finish a second."""

    step: float
    prompt: float
    finished: float

    @property
    def rate(self) -> float:
        """Tokens a second of one request."""
        return 1.0 / self.step if self.step else inf


def _limits(profile: SpeedProfile, load: Load) -> _Limits:
    """Weights and cache read once a step at the memory's rate, operations at the arithmetic's peak.

    A step of ``requests`` takes at least s, a prompt alone p: so many finish requests / (p + answer · s) a
    second at most, p of each request at least.
    """
    limits = profile.limits
    if limits is None:
        return _Limits(0.0, 0.0, inf)
    own = ceil(load.requests / profile.deployment.data_parallel_size)
    step = step_seconds(limits, own, load.mix, encoder_tokens=load.encoder_tokens)
    prompt = prefill_seconds(limits, load.prompt, load.cached, encoder_tokens=load.encoder_tokens)
    return _Limits(step, prompt, load.requests / (prompt + (load.output - 1) * step))


def spread(profile: SpeedProfile, phase: str) -> Spread:
    """The interval of ``decode`` or ``prefill`` figures, as shares of the value: that of the narrowest class
    of which there are enough published rows, else that of all."""
    table = profile.table
    known = (f".{name}" for name in profile.classes if f"spread.{phase}.{name}.low" in table)
    own = next(known, "")
    low, high = table[f"spread.{phase}{own}.low"], table[f"spread.{phase}{own}.high"]
    return Spread(low.value, high.value, (*profile.assumptions, low, high))


def _times(profile: SpeedProfile, load: Load) -> tuple[float, float, float, float]:
    """(decode step, TPOT, TTFT, time in flight), seconds."""
    own = ceil(load.requests / profile.deployment.data_parallel_size)
    mix, encoder = load.mix, load.encoder_tokens
    step = step_seconds(profile, own, mix, encoder_tokens=encoder)
    tpot = mixed_seconds(profile, own, mix, load.prompt, load.cached, load.output, encoder)
    alone = prefill_seconds(profile, load.prompt, load.cached, encoder_tokens=encoder)
    ttft = alone
    if own > 1:
        beside = prefill_seconds(
            profile, load.prompt, load.cached, beside=own - 1, contexts=mix, encoder_tokens=encoder
        )
        # One step is under way, and those of the others that are at their prompts come before: half of
        # them on average. A request's turns are counted in tokens, a step as so many prompt tokens.
        new = load.prompt - load.cached
        turn = profile.table["prompt_tokens_per_step"].value
        ttft = beside * (1 + (own - 1) * new / (new + turn * load.output) / 2) + step / 2
    ttft += profile.frontend_seconds
    return step, tpot, ttft, profile.frontend_seconds + alone + (load.output - 1) * tpot


def most_requests(
    profile: SpeedProfile, load: Load, *, tpot: float = inf, ttft: float = inf, limit: int = 4096
) -> int:
    """The most running requests, up to ``limit``, whose TPOT and TTFT stay within the targets; 0 for none."""

    def holds(requests: int) -> bool:
        _, each, first, _ = _times(profile, load.with_requests(requests))
        return each <= tpot and first <= ttft

    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
