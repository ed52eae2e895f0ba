"""How many experts a batch of tokens touches."""

from __future__ import annotations


def expected_share(experts: int, per_token: int, tokens: float) -> float:
    """Share of the experts that at least one of the tokens chooses, in expectation.

    Each token chooses ``per_token`` different experts of ``experts``, every choice equally likely and
    independent of the other tokens: 1 − (1 − k/E)^tokens. A trained router is less even, so the real
    share is at most this one.

    >>> expected_share(8, 2, 1)
    0.25
    """
    if per_token >= experts:
        return 1.0
    missed: float = (1.0 - per_token / experts) ** tokens
    return 1.0 - missed
