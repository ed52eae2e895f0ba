"""Whole numbers in proportion."""

from __future__ import annotations

from collections.abc import Sequence


def apportion(amount: int, weights: Sequence[int]) -> list[int]:
    """``amount`` in proportion to the weights as whole numbers that sum to it: the largest remainders get
    one more, earlier ones first. Weights are positive somewhere."""
    total = sum(weights)
    shares = [divmod(amount * weight, total) for weight in weights]
    counts = [whole for whole, _ in shares]
    order = sorted(range(len(shares)), key=lambda index: (-shares[index][1], index))
    for index in order[: amount - sum(counts)]:
        counts[index] += 1
    return counts
