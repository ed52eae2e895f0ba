"""Which tokens of a request stay in the cache: the first few (sinks) and the newest ones (a window).

Xiao et al., Efficient Streaming Language Models with Attention Sinks (arXiv 2309.17453), Tables 1 and 2:
perplexity on PG19 where so many first and so many newest tokens are kept.

    Llama-2-13B   0+1024  5,158.07    4+1020   5.40
    Llama-2-7B    0+4096  3,359.95    1+4095  11.88    2+4094  10.51    4+4092   9.59    8+4088   9.54
    MPT-7B        0+2048    460.29    4+2044  14.99
    Falcon-7B     0+2048     17.90    4+2044  12.12
    Pythia-12B    0+2048     21.62    4+2044  12.09
"""

from __future__ import annotations

from kvplan.engines.options import RETENTION, RetainingOptions
from kvplan.errors import KvplanError
from kvplan.record import record, replace
from kvplan.terms import Grows, Part, Term

SINKS = 4
"""First tokens from which on more of them gain little (Table 2)."""


@record()
class Retention:
    """sinks: first tokens that stay; window: the newest ones that stay."""

    sinks: int
    window: int

    @property
    def kept(self) -> int:
        """Tokens of a request that are in the cache at most."""
        return self.sinks + self.window


def retention_of(options: RetainingOptions) -> Retention | None:
    """The retention that the engine's option gives; None: every token stays."""
    return parsed(options.kv_retention)


def parsed(word: object) -> Retention | None:
    """An option's value, in the form that the option itself writes."""
    if not word:
        return None
    pairs = dict(piece.split(":") for piece in str(word).split(","))
    return Retention(int(pairs.get("sinks", 0)), int(pairs["window"]))


def accuracy(retention: Retention) -> str:
    """Published results for answers from that many first and newest tokens."""
    if retention.sinks >= SINKS:
        figures = "perplexity 9.59 with 4 + 4,092 tokens, 3,360 without the first 4 (Llama-2-7B, PG19"
        return f"what leaves the window is forgotten; {figures}; arXiv 2309.17453, table 2)"
    return (
        f"fewer than {SINKS} first tokens stay, on which models without windows of their own depend:"
        " perplexity 3,360 with 0 + 4,096 tokens, 9.59 with 4 + 4,092 (Llama-2-7B, PG19; arXiv 2309.17453,"
        " table 2)"
    )


def retained(term: Term, retention: Retention | None) -> Term:
    """The term where only so many tokens stay. Raises KvplanError(unsupported-setting)."""
    if retention is None or term.grows is not Grows.TOKEN:
        return term
    if term.stride != 1 or term.skip_last or term.part is not Part.ENTRIES:
        raise KvplanError(
            "unsupported-setting",
            f"{RETENTION.name}: {term.name} holds several tokens in one entry: single ones are not dropped",
            help=f"leave {RETENTION.name} out",
        )
    if term.keep_last is not None and term.keep_last <= retention.kept:
        return term
    return replace(term, keep_last=retention.kept)
