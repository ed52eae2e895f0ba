"""A lever: something that changes what fits or how fast it comes, with its effect on this very plan."""

from __future__ import annotations

from kvplan.record import record


@record()
class Effect:
    """One figure. unit: requests, bytes, tokens, share (0 … 1), seconds or bytes_per_second.

    Bytes, tokens and requests are ints. low and high enclose an estimate; equal to value where it is exact.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float


def exactly(name: str, value: float, unit: str) -> Effect:
    """A figure that follows from the engine's rules."""
    return Effect(name, value, unit, value, value)


@record()
class Lever:
    """The effect of one lever here. applies: False where it would do nothing, and ``summary`` says why.

    setting: the engine's flag that pulls it, where there is one.
    """

    name: str
    summary: str
    effects: tuple[Effect, ...] = ()
    assumptions: tuple[str, ...] = ()
    applies: bool = True
    setting: str | None = None

    _JSON = ("name", "summary", "applies", "setting", "effects", "assumptions")

    def effect(self, name: str) -> float | None:
        """The value of the effect of that name."""
        return next((one.value for one in self.effects if one.name == name), None)
