"""A server's load from one moment to the next, and when it is worth a warning."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.engines.observed.page import LiveSample
from kvplan.record import record

USAGE_ABOVE = Fraction(90, 100)
HIT_RATE_BELOW = Fraction(50, 100)


@record()
class Moment:
    """One sample beside the one before. hit_rate: of the tokens asked in between (of all, for the first one).

    preempted: requests thrown out in between; 0 for the first sample. flags: what is past a threshold.
    """

    sample: LiveSample
    hit_rate: Fraction | None
    preempted: int | None
    flags: tuple[str, ...]

    def model_dump(self, elapsed: int) -> dict[str, Any]:
        """One line of ``--watch --json``."""
        sample = self.sample
        return {
            "seconds": elapsed,
            "engine": sample.engine,
            "cache_usage": _float(sample.usage),
            "hit_rate": _float(self.hit_rate),
            "preemptions": sample.preemptions,
            "new_preemptions": self.preempted,
            "running": sample.running,
            "waiting": sample.waiting,
            "flags": list(self.flags),
        }


class Watcher:
    """Takes one sample after another."""

    def __init__(self) -> None:
        self._before: LiveSample | None = None

    def take(self, sample: LiveSample) -> Moment:
        """The sample as a moment: rates since the one before, and flags."""
        before, self._before = self._before, sample
        if before is None:
            hit_rate, preempted = sample.hit_rate, 0 if sample.preemptions is not None else None
        else:
            hit_rate, preempted = sample.hit_rate_since(before), sample.preemptions_since(before)
        return Moment(sample, hit_rate, preempted, _flags(sample, hit_rate, preempted))


def _flags(sample: LiveSample, hit_rate: Fraction | None, preempted: int | None) -> tuple[str, ...]:
    flags = []
    for share, name in (
        (sample.usage, "cache"),
        (sample.swa_usage, "window cache"),
        (sample.mamba_usage, "state cache"),
    ):
        if share is not None and share > USAGE_ABOVE:
            flags.append(f"{name} above {int(USAGE_ABOVE * 100)} %")
    if hit_rate is not None and hit_rate < HIT_RATE_BELOW:
        flags.append(f"prefix cache hits below {int(HIT_RATE_BELOW * 100)} %")
    if preempted:
        flags.append("preemptions rise")
    return tuple(flags)


def _float(share: Fraction | None) -> float | None:
    return None if share is None else float(share)
