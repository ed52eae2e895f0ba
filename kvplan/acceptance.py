"""How many of a draft's tokens are right: the one fact of speculative decoding that only a measurement has.

vLLM prints it as ``Mean acceptance length``, ``Avg Draft acceptance rate`` and ``Per-position acceptance
rate`` (vllm-project/vllm 0.32 vllm/v1/spec_decode/metrics.py), SGLang as ``accept len``.
"""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.record import record

WAYS = (
    "--acceptance 70%: vLLM's Avg Draft acceptance rate",
    "--acceptance 2.4: the mean acceptance length, the step's own token with it",
    "--acceptance 0.8,0.6,0.4: the per-position acceptance rates",
)
_EXACT = 60
"""Halvings that find a probability to the last bit."""


@record()
class Acceptance:
    """shares: of each place of a draft the probability that its token is right where those before it are."""

    shares: tuple[float, ...]

    @property
    def length(self) -> float:
        """Tokens that a step makes of a request: 1 + Σ over places of the product of the shares up to it."""
        total = reached = 1.0
        for share in self.shares:
            reached *= share
            total += reached
        return total


def acceptance_of(text: str, drafted: int) -> Acceptance:
    """The acceptance of ``drafted`` tokens a step, in one of the `WAYS`.

    Of a mean alone every place is taken to have the same probability. Raises KvplanError(bad-acceptance).
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) > 1:
        return _by_place([_share(word, text) for word in words], drafted, text)
    word = words[0]
    if word == "1":
        raise KvplanError(
            "bad-acceptance", "1 is a rate of 100 % and a length of one token",
            help=("--acceptance 100%: every drafted token is right", "--acceptance 0%: none is"),
        )  # fmt: skip
    if word.endswith("%") or _number(word, text) < 1:
        return Acceptance((_even(1 + drafted * _share(word, text), drafted),) * drafted)
    length = _number(word, text)
    if length > drafted + 1:
        raise KvplanError(
            "bad-acceptance", f"a step that drafts {drafted} makes at most {drafted + 1} tokens, not {word}",
            help=WAYS[1:2],
        )  # fmt: skip
    return Acceptance((_even(length, drafted),) * drafted)


def _by_place(rates: list[float], drafted: int, text: str) -> Acceptance:
    if len(rates) != drafted:
        raise KvplanError(
            "bad-acceptance", f"{text}: {len(rates)} rates, and {drafted} tokens are drafted", help=WAYS
        )
    if rates != sorted(rates, reverse=True):
        raise KvplanError(
            "bad-acceptance", f"{text}: a later place is reached less often than an earlier one", help=WAYS
        )
    before, shares = 1.0, []
    for rate in rates:
        shares.append(rate / before if before else 0.0)
        before = rate
    return Acceptance(tuple(shares))


def _even(length: float, drafted: int) -> float:
    """The share with which 1 + share + … + share^drafted is ``length``."""
    low, high = 0.0, 1.0
    for _ in range(_EXACT):
        middle = (low + high) / 2
        if Acceptance((middle,) * drafted).length < length:
            low = middle
        else:
            high = middle
    return high if length >= drafted + 1 else low


def _share(word: str, text: str) -> float:
    percent = word.endswith("%")
    share = _number(word.removesuffix("%"), text) / (100 if percent else 1)
    if share > 1:
        raise KvplanError("bad-acceptance", f"{text}: {word} is more than all", help=WAYS)
    return share


def _number(word: str, text: str) -> float:
    plain = word.strip()
    if not plain.isascii() or not plain.replace(".", "", 1).isdigit():
        raise KvplanError("bad-acceptance", f"{text!r} is no acceptance of drafted tokens", help=WAYS)
    return float(plain)
