"""The GPUs that may be used: which, how many, in what nodes, at what price. Prices are the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kvplan.gpu import Gpu
from kvplan.record import record, replace

FLEET_FORMAT = "fleet/v1"
PRICES_FORMAT = "prices/v1"
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
    """Offers in the file's order. currency is only shown. spare: engines of each kind that may
    be lost."""

    offers: tuple[Offer, ...]
    currency: str = ""
    source: str = ""
    spare: int = 0


@record()
class Price:
    """The price of a GPU for an hour in one place, and when it was read."""

    gpu: Gpu
    per_gpu_hour: Fraction
    where: str = ""
    date: str = ""


@record()
class Prices:
    """The lowest price of each kind, in the file's order. currency, date: only shown."""

    each: tuple[Price, ...]
    currency: str = ""
    date: str = ""
    source: str = ""

    def of(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The offers, those without a price at the price of their kind."""
        known = {one.gpu.slug: one for one in self.each}
        return tuple(self._priced(one, known.get(one.gpu.slug)) for one in offers)

    @staticmethod
    def _priced(offer: Offer, price: Price | None) -> Offer:
        if price is None or offer.price_per_gpu_hour is not None:
            return offer
        return replace(offer, price_per_gpu_hour=price.per_gpu_hour, where=offer.where or price.where)

    def words(self) -> str:
        """``prices of prices.yaml, 2026-08-01``."""
        dates = [one for one in (self.date, *(one.date for one in self.each)) if one]
        return ", ".join([f"prices of {self.source}", *dates[:1]])
