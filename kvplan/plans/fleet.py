"""The GPUs that may be used: which, how many, in what nodes, at what price. Prices come from here alone."""

from __future__ import annotations

from fractions import Fraction

from kvplan.gpu import Gpu
from kvplan.record import record

FLEET_FORMAT = "fleet/v1"
Kind = tuple[str, str]
"""A GPU's slug, and where it is offered."""


@record()
class Offer:
    """One kind of GPU that one place offers.

    available: None = as many as asked for. gpus_per_node: GPUs that share the fast interconnect.
    node_bytes_per_second: between nodes, one direction, one GPU's share; None = not known.
    price_per_gpu_hour: None = not stated (then it cannot be ranked by cost).
    """

    gpu: Gpu
    where: str = ""
    available: int | None = None
    gpus_per_node: int | None = None
    node_bytes_per_second: int | None = None
    price_per_gpu_hour: Fraction | None = None

    @property
    def kind(self) -> Kind:
        """The subject of one row in a plan's table."""
        return self.gpu.slug, self.where


@record()
class Fleet:
    """Offers in the file's order. currency is only shown."""

    offers: tuple[Offer, ...]
    currency: str = ""
    source: str = ""
