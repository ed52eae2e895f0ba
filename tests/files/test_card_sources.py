"""Cards whose sizes were read in public projects (scripts/card_read.yaml) have those sizes, and say where."""

from __future__ import annotations

from scripts.card_read import Reading, differences, readings, sizes_of
from tests.laws.sampling import for_each
from tests.packaged import packaged_cards

CARDS = {card.slug: card for card in packaged_cards()}


@for_each(("slug", "reading"), readings().items(), ids=str)
def test_the_card_has_the_sizes_that_were_read(slug: str, reading: Reading) -> None:
    card = CARDS[slug]
    assert not differences(card.model, reading)
    assert len(reading.sizes.keys() & sizes_of(card.model).keys()) >= 2
    assert card.source.verified
    assert card.source.repository


def test_another_size_is_found() -> None:
    reading = readings()["opt-13b"]
    assert differences(CARDS["opt-6.7b"].model, reading)["layers"] == (32, 40)
