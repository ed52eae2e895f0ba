"""Speculative decoding in the scheduler: what a draft takes of a step, and how much of it is accepted.

vllm-project/vllm 0.32, 0.33 vllm/v1/core/sched/scheduler.py, vllm/config/vllm.py, config/speculative.py. A
request that makes answers brings drafted tokens into each step beside its own; the step makes one token and
as many more as were right in a row; the rest is rolled back.

Which are right is drawn from the request's number and the token's place in it alone, so that a request takes
the same steps under every scheduler, pool and rate.
"""

from __future__ import annotations

from kvplan.record import record

_WORD = (1 << 64) - 1
_SCALE = 1 << 32


@record()
class Drafts:
    """tokens: num_speculative_tokens; chances: of each place of a draft the probability that it is right
    where those before it are, in 2^32nds; ahead: slots that a request has beyond what a step computes
    (num_lookahead_tokens); slots: of the step's budget that each request takes besides; drops: a prefix hit
    gives up its last block (EAGLE, MTP); seed: of the draws."""

    tokens: int
    chances: tuple[int, ...]
    ahead: int = 0
    slots: int = 0
    drops: bool = False
    seed: int = 1

    def accepted(self, number: int, place: int, drafted: int) -> int:
        """How many are right of the ``drafted`` tokens of request ``number`` from its token ``place`` on."""
        for guess, chance in enumerate(self.chances[:drafted]):
            if drawn(self.seed, number, place + guess) >= chance:
                return guess
        return drafted


def drawn(seed: int, number: int, place: int) -> int:
    """A number below 2^32 for a token of a request: the mixing function of SplitMix64 over all three."""
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + place * 0x94D049BB133111EB) & _WORD
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _WORD
    return (mixed ^ (mixed >> 31)) >> 32


def scaled(shares: tuple[float, ...]) -> tuple[int, ...]:
    """Probabilities as `Drafts.chances`."""
    return tuple(round(share * _SCALE) for share in shares)
