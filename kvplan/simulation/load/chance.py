"""Numbers that loads are drawn from: gaps between arrivals, and what they are made of.

All of them come from one source of uniform numbers, which Python keeps the same between versions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, gamma, log, pi, sqrt

BLOCK = 16
"""Tokens of one identity of a load that is drawn."""


def gaps(kind: str, cv: float, chance: Callable[[], float]) -> Callable[[], float]:
    """Gaps with a mean of 1: Gamma of shape 1/cv², Weibull of the shape that has this cv."""
    if kind == "even":
        return lambda: 1.0
    if kind == "gamma":
        shape = 1 / cv**2
        return lambda: gamma_number(shape, chance) / shape
    if kind == "weibull":
        shape = weibull_shape(cv)
        scale = 1 / gamma(1 + 1 / shape)
        return lambda: scale * (-log(1 - chance())) ** (1 / shape)
    return lambda: -log(1 - chance())


def weibull_shape(cv: float) -> float:
    """The shape k with Γ(1 + 2/k) / Γ(1 + 1/k)² − 1 = cv²."""
    low, high = 0.12, 40.0
    for _ in range(80):
        middle = sqrt(low * high)
        if gamma(1 + 2 / middle) / gamma(1 + 1 / middle) ** 2 - 1 > cv**2:
            low = middle
        else:
            high = middle
    return low


def normal(chance: Callable[[], float]) -> float:
    """A standard normal number (Box and Muller)."""
    return sqrt(-2 * log(1 - chance())) * cos(2 * pi * chance())


def gamma_number(shape: float, chance: Callable[[], float]) -> float:
    """A Gamma number of scale 1 (Marsaglia and Tsang 2000; below shape 1 by the power of a uniform one)."""
    if shape < 1:
        power = float((1 - chance()) ** (1 / shape))
        return gamma_number(shape + 1, chance) * power
    reach = shape - 1 / 3
    spread = 1 / sqrt(9 * reach)
    while True:
        number = normal(chance)
        cube = (1 + spread * number) ** 3
        if cube > 0 and log(1 - chance()) < number**2 / 2 + reach * (1 - cube + log(cube)):
            return reach * cube
