"""Write `model_cards/*.yaml`, their index and their JSON Schema from config files and `card_facts.yaml`.

    python scripts/make_cards.py CONFIGS_DIR [--out model_cards]   every card anew
    python scripts/make_cards.py --numbers                        the cards as they are, golden numbers anew
    python scripts/make_cards.py --index                          only the index and the schema

CONFIGS_DIR holds `org__name/config.json` (and `hf_quant_config.json` beside it) and `MANIFEST.yaml`, which
says of each where it was read. Golden numbers that name a source are kept; the others are what the engines say
now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from card_sources import OVERLAY, Manifest, Origin

import kvplan
from kvplan.engines import ENGINES
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.readers.card import Card, Expectation, Source, Variant, Weights
from kvplan.readers.card_file import card_from_located
from kvplan.readers.card_index import INDEX, build_index, index_text, read_cards
from kvplan.readers.card_lint import answer
from kvplan.readers.card_schema import card_json_schema
from kvplan.readers.card_writer import card_text
from kvplan.readers.config import read_config
from kvplan.readers.strict_yaml import load_yaml

ROOT = Path(__file__).resolve().parents[1]
FACTS = Path(__file__).parent / "card_facts.yaml"
SCHEMA = "card.schema.json"
NO_LENGTH = 4096
ODD = 1000
SAME = ("runs", "draft_layers", "encoder", "model_type", "num_attention_heads", "hidden_size", "facts")
MEMORY = Source("from-memory", verified=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("configs", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=ROOT / "model_cards")
    parser.add_argument(
        "--numbers", action="store_true", help="compute the golden numbers of the cards again"
    )
    parser.add_argument("--index", action="store_true", help="leave the cards alone")
    parser.add_argument("--types", default="", help="only these model types, for example llama,qwen3")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(exist_ok=True)
    refused: list[str] = []
    if options.configs is not None:
        only = set(filter(None, options.types.split(",")))
        refused = write_all(out, Manifest(options.configs), only)
    elif options.numbers:
        for card in read_cards(out):
            write(out / f"{card.slug}.yaml", text_of(card))
    elif not options.index:
        parser.error("give CONFIGS_DIR, --numbers or --index")
    write(out / SCHEMA, json.dumps(card_json_schema(), indent=1) + "\n")
    write(out / INDEX, index_text(build_index(out)))
    for line in refused:
        print(line, file=sys.stderr)
    print(f"{len(list(out.glob('*.yaml')))} cards")
    return 0


def write(path: Path, text: str) -> None:
    # Bytes, so that Windows writes the same file.
    path.write_bytes(text.encode())


def write_all(out: Path, manifest: Manifest, only: set[str]) -> list[str]:
    """Every card of the facts; returns a line for each that could not be made."""
    refused: list[str] = []
    facts: dict[str, Any] = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    written: set[str] = set()
    for slug, entry in facts.items():
        try:
            card = make_card(slug, entry, manifest, refused)
        except KvplanError as error:
            refused.append(f"{slug}: {error.message}")
            continue
        if only and card.model.model_type not in only:
            continue
        write(out / f"{slug}.yaml", text_of(card))
        written.add(slug)
    for path in out.glob("*.yaml"):
        if path.stem not in written:
            path.unlink()
    refused += [f"{name}: no card mentions this config" for name in manifest.unused()]
    return refused


def make_card(slug: str, entry: Mapping[str, Any], manifest: Manifest, refused: list[str]) -> Card:
    """One card with the variants whose layers are the same."""
    name = entry["id"]
    for alias in entry.get("aliases", ()):
        manifest.origin(alias)
    origin = manifest.origin(entry.get("config_of", name))
    if origin is None:
        model, source = model_of(entry["config"], name, MEMORY), MEMORY
    else:
        model, source = model_of(origin.config, name, origin.source, origin.quant), origin.source
    weights = origin.weights if origin is not None else Weights()
    if "weights" in entry:
        weights = Weights(**entry["weights"])
    variants: list[Variant] = []
    for item in entry.get("variants", ()):
        item = {"id": item} if isinstance(item, str) else item
        try:
            variants.append(make_variant(item, model, manifest))
        except KvplanError as error:
            refused.append(f"{slug}: {item['id']}: {error.message}")
    expect = tuple(
        Expectation(one["engine"], one["field"], one["value"], one.get("settings", {}), one["source"])
        for one in entry.get("expect", ())
    )
    aliases = tuple(entry.get("aliases", ()))
    return Card(slug, model, aliases, source, weights, tuple(variants), expect, ())


def model_of(
    config: Mapping[str, Any], name: str, source: Source, quant: Mapping[str, Any] | None = None
) -> Model:
    return read_config(config, id=name, source=source.sentence(), hf_quant_config=quant)


def make_variant(item: Mapping[str, Any], base: Model, manifest: Manifest) -> Variant:
    """What a variant changes. Raises KvplanError where its own config has other layers than the card."""
    origin: Origin | None = manifest.origin(item["id"])
    changes = {key: item[key] for key in OVERLAY if key in item}
    source, weights = MEMORY, Weights()
    if origin is not None:
        source, weights = origin.source, origin.weights
        model = model_of(origin.config, item["id"], source, origin.quant)
        for key in SAME:
            mine, theirs = getattr(model, key), getattr(base, key)
            if mine != theirs:
                raise KvplanError("not-a-variant", f"{key} differs: {mine} / {theirs}")
        own = {key: getattr(model, key) for key in OVERLAY if getattr(model, key) != getattr(base, key)}
        changes = {**own, **changes}
    if "note" in item:
        source = replace(source, note=item["note"])
    changes = {key: value for key, value in changes.items() if value != getattr(base, key)}
    return Variant(item["id"], tuple(item.get("aliases", ())), changes, source, weights)


def text_of(card: Card) -> str:
    """The card's text with golden numbers."""
    kept = tuple(entry for entry in card.expect if entry.source)
    parts: dict[str, Any] = {
        "source": card.source,
        "aliases": card.aliases,
        "weights": card.weights,
        "variants": card.variants,
        "evidence": card.evidence,
    }
    # The numbers are those of the model as the card's readers will see it.
    text = card_text(card.model, expect=kept, **parts)
    again = card_from_located(load_yaml(text, name=f"{card.slug}.yaml"))
    return card_text(card.model, expect=(*kept, *golden(again)), **parts)


def golden(card: Card) -> list[Expectation]:
    """One odd length and the longest one under `generic`, the odd one under every other engine."""
    longest = card.model.max_model_len or NO_LENGTH
    asked = [("generic", ODD), ("generic", longest)]
    asked += [(f"{name}@{engine.versions[-1]}", ODD) for name, engine in ENGINES.items() if name != "generic"]
    numbers: list[Expectation] = []
    for engine, tokens in asked:
        field = "total.kv_bytes_per_request"
        entry = Expectation(engine, field, 0, {"tokens": min(tokens, longest)})
        try:
            result = kvplan.size(card.model, engine=engine, tokens=min(tokens, longest))
        except KvplanError:
            continue
        if result.ok:
            value = answer(card, entry, kvplan.size)
            numbers.append(Expectation(engine, field, value, entry.settings))
    return numbers


if __name__ == "__main__":
    raise SystemExit(main())
