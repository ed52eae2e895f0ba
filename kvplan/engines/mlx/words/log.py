"""The log lines of mlx_lm.server: ml-explore/mlx-lm 0.32.2 mlx_lm/server.py (_log_cache_stats).

They say what finished requests' caches take; of the running ones, or of the weights, nothing is logged.
"""

from __future__ import annotations

from kvplan.engines.observed import Rank
from kvplan.engines.observed.rules import Dialect, Rule, rule


def rank_of(head: str) -> Rank:
    """The one process."""
    del head
    return Rank(whole=True)


RULES: tuple[Rule, ...] = (
    rule(
        "Prompt Cache: {:n} sequences, {:n} GB",
        kind="note",
        text="mlx_lm.server logs what the caches of finished requests take",
        anchor="Prompt Cache: ",
        weight=3,
    ),
)
DIALECT = Dialect("mlx", RULES, rank_of, {})
