"""What a fit of the releases from 0.20 on found, as rows of budget.json."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.engines.vllm.memory.coefficients import (
    OTHER,
    UNIFIED,
    parts,
)
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.units import GIB, MIB
from scripts.fitting.late_classes import (
    BLACKWELLS,
    CONSUMED,
    LONE,
    ONE_CARD,
    ONE_CARD_V2,
    PRIORS,
    READ,
    SLOTS,
    UNREAD_HIGH,
    UNREAD_KEPT,
    Class,
    Prior,
    by_ranks,
)


class Late(NamedTuple):
    """What the rows say: constants with margins by class, and what one graph and one draft take."""

    classes: dict[Class, Prior]
    multiprocessor: int
    graph_v1: int
    graph_ranks: int
    graph_v2: int
    graph_latent: int
    graph_split: int
    draft_copies: int
    compile_copies: int
    own: dict[str, int]

    def own_rows(self) -> list[dict[str, Any]]:
        """Model types with buffers that no line describes: what their starts keep, half of it either way."""
        amounts = [[name, amount] for name, amount in sorted(self.own.items())]
        return [
            {"since": "0.8", "source": "no start was read"},
            {"since": "0.20", "own_copies_milli": amounts, "source": "left beside the other lines"},
            {
                "since": "0.23",
                "own_copies_milli": [],
                "source": "not compiled any more: its pass is counted (compressed_pass.py)",
            },
        ]

    def non_torch_rows(self) -> list[dict[str, Any]]:
        """Rows of the coefficient file: one GPU first, then several by board."""
        found: list[dict[str, Any]] = []
        for release, before, runner in LONE:
            one, since = self.classes[release], release.since
            for entry in (entry for entry in PRIORS if entry.several and entry.since == since):
                board, slot = self.classes[entry], entry.board in SLOTS
                # The class of cards in slots has rows of every release: nothing comes on top.
                later = 0 if slot else one.amount - self.classes[before].amount
                card = self.classes[ONE_CARD_V2 if runner == V2 else ONE_CARD]
                alone = card if slot else self.classes[before]
                if entry.board == OTHER:
                    alone = alone._replace(low=board.low, high=UNREAD_HIGH)
                    if parts(since) >= CONSUMED:
                        alone, later = Prior(UNREAD_KEPT, UNREAD_KEPT, UNREAD_KEPT), 0
                found.append(
                    {
                        "since": release.since,
                        "runner": runner,
                        "board": entry.board,
                        "calibrated": entry.board in READ or entry.board == UNIFIED,
                        "non_torch_by_ranks": [
                            [ways, max(amount, alone.amount + later)]
                            for ways, amount in by_ranks(entry, alone.amount + later, board.amount)
                        ],
                        "non_torch_pipeline": alone.amount + later,
                        "multiprocessor_bytes": self.multiprocessor,
                        "one_low": max(alone.low, one.low),
                        "one_high": max(alone.high, one.high),
                        "several_low": board.low,
                        "several_high": board.high,
                        "fusion": True,
                        "fusion_stages": parts(release.since) >= CONSUMED,
                        "source": "what start-ups left beside the other lines",
                    }
                )
        return found

    def graph_rows(self) -> list[dict[str, Any]]:
        """Rows of the coefficient file."""
        wide = {"graph_margin": 64 * MIB, "graph_margin_milli": 400, "graph_low_milli": 650}
        unread = {"board": OTHER, "graph_margin": GIB, "source": "no estimate of such cards was read"}
        return [
            {
                "since": "0.20",
                "runner": V1,
                "graph_layer_bytes": self.graph_v1,
                "graph_indexed_layer_bytes": self.graph_latent,
                **wide,
                "source": "estimated and taken off: the first of each kind, and the second for every other",
            },
            *(
                {
                    "since": "0.20",
                    "board": board,
                    "graph_ranks_milli": self.graph_ranks,
                    "source": "estimates of four ranks of one rack; eight of an NVSwitch board had none more",
                }
                for board in BLACKWELLS
            ),
            {"since": "0.20", **unread},
            {"since": "0.28", "graphs_wide": True, "source": "1,024 tokens on data-centre Blackwell"},
            {
                "since": "0.29",
                "runner": V2,
                "graph_layer_bytes": self.graph_v2,
                "graph_latent_layer_bytes": self.graph_latent,
                "graph_split_layer_bytes": self.graph_split,
                **wide,
                "graph_margin_milli": 250,
                "graphs_apart": True,
                "source": "measured piecewise graphs, extrapolated full ones",
            },
            {
                "since": "0.29",
                "board": UNIFIED,
                "graph_latent_layer_bytes": 0,
                "graph_margin_milli": 400,
                "source": "measured in memory that the host shares",
            },
            {"since": "0.29", "graphs_by_request": True, "source": "decode batches have sizes of their own"},
            {"since": "0.29", **unread},
        ]
