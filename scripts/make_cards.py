"""Write the model cards, their index and their JSON Schema from config files and `card_*.yaml` beside this.

    python -m scripts.make_cards CONFIGS_DIR... [--out model_cards]   every card anew
    python -m scripts.make_cards CONFIGS_DIR... --only SLUG...         these cards, the rest as it is
    python -m scripts.make_cards --numbers                            golden numbers anew, the rest as it is
    python -m scripts.make_cards --index                              only the index and the schema

Each CONFIGS_DIR holds `org__name/config.json` (`hf_quant_config.json` beside it) and `MANIFEST.yaml`, which
says of each where it was read; a later folder's wins. What a card has is not given up for a config that is
further from the published file: the card keeps it. Golden numbers with a source are kept, the others are what
engines say now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import kvplan
from kvplan.architectures.builds import build_config
from kvplan.architectures.config.activation_shape import activation_shape
from kvplan.architectures.config.read import read_config
from kvplan.architectures.config.view import QUANT_KEY, split_quant
from kvplan.architectures.inventory import inventory_of
from kvplan.architectures.lineages import lineage_of
from kvplan.engines import ENGINES
from kvplan.engines.vllm.encoder_profile.multimodal import encoder_run
from kvplan.engines.vllm.memory.compressed_pass import compressed_passes
from kvplan.errors import KvplanError
from kvplan.files.cards.card import HOW, OVERLAY, WHOLE, Card, Expectation, Source, Variant, Weights
from kvplan.files.cards.file import card_from_located
from kvplan.files.cards.index import INDEX, build_index, index_text, read_cards
from kvplan.files.cards.schema import card_json_schema
from kvplan.files.cards.writer import card_text
from kvplan.files.gpus.find import load_gpu
from kvplan.files.weight_formats import FILE, formats_text
from kvplan.files.yaml.strict import load_yaml, load_yaml_file
from kvplan.model import Model
from kvplan.settings import Serving
from scripts.card_read import differences, readings
from scripts.card_sources import QUANTISED, Manifest, Origin
from scripts.config_subset import size_relevant

ROOT = Path(__file__).resolve().parents[1]
FACTS, NUMBERS, EVIDENCE = (
    Path(__file__).with_name(f"card_{name}.yaml") for name in ("facts", "numbers", "evidence")
)
MEDIA_KEYS = (
    "image_grid_pinpoints",
    "vision_feature_select_strategy",
    "vision_config.pixel_shuffle_ratio",
    "vision_config.model_type",
)
SCHEMA = "card.schema.json"
NO_LENGTH, ODD = 4096, 1000
MEASURED = {"transformers": "5.24", "vllm": "0.32"}  # the releases that conformance tests ask
SAME = ("runs", "draft_layers", "encoder", "model_type", "num_attention_heads", "hidden_size")
CONFIG_KEYS = {"max_model_len": "max_position_embeddings", "vocab_size": "vocab_size"}
TEXT_PARTS = ("text_config", "llm_config", "language_config")
NEEDED = (
    {"hidden_size", "n_embd", "d_model", "dim"},
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"},
    {"vocab_size", "padded_vocab_size"},
    {
        "intermediate_size",
        "ffn_hidden_size",
        "ffn_dim",
        "n_inner",
        "d_ff",
        "moe_intermediate_size",
        "ffn_config",
    },
)
"""A config without one of each would be sized with its class's defaults."""
FOUR_WIDE = frozenset({"bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "mpt"})
"""Classes whose feed-forward width is four times the hidden size."""
MEMORY = Source("from-memory", verified=False)
USUAL: dict[str, Any] = {
    "how": "assembled",
    "verified": False,
    "note": "the copy leaves out which modules are quantised: as builds of the format usually have it",
}
WIDTHS = {
    "intermediate_size": {"intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff"},
    "moe_intermediate_size": {"moe_intermediate_size"},
    "num_experts": {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"},
}


def main() -> int:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("configs", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "model_cards")
    parser.add_argument("--only", nargs="+", default=(), metavar="SLUG")
    parser.add_argument("--numbers", action="store_true", help="leave all but golden numbers")
    parser.add_argument("--index", action="store_true", help="leave the cards alone")
    options = parser.parse_args()
    out: Path = options.out
    refused: list[str] = []
    if options.configs:
        refused = write_all(out, Manifest(*options.configs), options.only)
    elif options.numbers:
        for card in read_cards(out):
            write(out / f"{card.slug}.yaml", text_of(card))
    elif not options.index:
        parser.error("give CONFIGS_DIR, --numbers or --index")
    write(out / SCHEMA, json.dumps(card_json_schema(), indent=2) + "\n")
    try:
        write(out / INDEX, index_text(build_index(out)))
    except KvplanError as error:
        parser.exit(2, f"{error.format()}\n")
    if out == ROOT / "model_cards":
        write(out / FILE, formats_text(asked_names()))
    for line in refused:
        print(line, file=sys.stderr)
    print(f"{len(list(out.glob('*.yaml')))} cards")
    return 0


def asked_names() -> list[str]:
    """Ids of the cards and their variants."""
    index = json.loads((ROOT / "model_cards" / INDEX).read_text(encoding="utf-8"))
    return [name for entry in index["cards"].values() for name in (entry["id"], *entry["variants"])]


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())  # bytes, so that Windows writes the same file


def write_all(out: Path, manifest: Manifest, only: Sequence[str] = ()) -> list[str]:
    """Every card of the facts, or only some; returns a line for each that could not be made."""
    refused: list[str] = []
    facts: dict[str, Any] = load_yaml_file(FACTS).data
    numbers: dict[str, Any] = load_yaml_file(NUMBERS).data
    evidence: dict[str, Any] = load_yaml_file(EVIDENCE).data
    written: set[str] = set()
    for slug, entry in facts.items():
        if only and slug not in only:
            continue
        try:
            known = {"expect": numbers.get(slug, ()), "evidence": evidence.get(slug, ())}
            path = out / f"{slug}.yaml"
            old = card_from_located(load_yaml_file(path)) if path.is_file() else None
            card = make_card(slug, {**entry, **known}, manifest, refused, old)
        except KvplanError as error:
            refused.append(f"{slug}: {error.message}")
            continue
        write(out / f"{slug}.yaml", text_of(card))
        written.add(slug)
    if only:
        return refused
    for path in out.glob("*.yaml"):
        if path.stem not in written:
            path.unlink()
    refused += [f"{name}: no card mentions this config" for name in manifest.unused()]
    return refused


def make_card(
    slug: str, entry: Mapping[str, Any], manifest: Manifest, refused: list[str], old: Card | None = None
) -> Card:
    """One card with the variants whose layers are the same."""
    name = entry["id"]
    for alias in entry.get("aliases", ()):
        manifest.origin(alias)
    origin, keeps = origin_of(entry, manifest, old)
    base = model_of(origin, name)
    weights = Weights(**entry["weights"]) if "weights" in entry else origin.weights
    known = {one.id: one for one in old.variants} if old else {}
    variants: list[Variant] = []
    for item in entry.get("variants", ()):
        item = {"id": item} if isinstance(item, str) else item
        kept = known.get(item["id"])
        try:
            made = make_variant(item, base, origin, manifest)
        except KvplanError as error:
            if kept is None or not kept.source or not kept.source.verified:
                refused.append(f"{slug}: {item['id']}: {error.message}")
                continue
            made = kept
        nearer = kept is not None and kept.source and made.source and is_better(kept.source, made.source)
        if kept is not None and nearer and "build" not in item:
            made = kept
        variants.append(made)
    expect = tuple(Expectation(engine="generic", **one) for one in entry["expect"])
    aliases = tuple(entry.get("aliases", ()))
    evidence = tuple(Expectation(**one) for one in entry["evidence"])
    model = old.model if keeps and old else base
    source = source_read(slug, model, origin.source, refused)
    return Card(slug, model, aliases, source, weights, tuple(variants), expect, evidence)


def source_read(slug: str, model: Model, source: Source, refused: list[str]) -> Source:
    """Of an unverified card whose sizes a public project states: that project, where all of them agree."""
    reading = readings().get(slug)
    if source.verified or reading is None:
        return source
    wrong = differences(model, reading)
    if wrong:
        refused.append(f"{slug}: {reading.source.repository} says otherwise: {wrong}")
    return source if wrong else reading.source


def origin_of(entry: Mapping[str, Any], manifest: Manifest, old: Card | None) -> tuple[Origin, bool]:
    """The config at hand, or the card's own where that is nearer to the published file (and then True)."""
    origin = manifest.origin(entry.get("config_of", entry["id"]))
    if origin is None and "config" in entry:
        source = Source(**entry["source"]) if "source" in entry else MEMORY
        origin = Origin(entry["config"], None, source, Weights())
    if origin and "adds" in entry:
        adds = entry["adds"]
        source = replace(origin.source, note=adds["note"], **adds.get("source", {}))
        return replace(origin, config={**origin.config, **adds["config"]}, source=source), False
    if origin and "build" in entry:
        made = built(origin.config, origin.quant, entry["build"])
        return Origin(made, None, replace(origin.source, **USUAL), Weights()), False
    if old and old.model.config and (origin is None or is_better(old.source, origin.source)):
        return Origin(*split_quant(old.model.config), old.source, old.weights), True
    if origin is None:
        raise KvplanError("no-config", "neither a folder nor a card has its config")
    return origin, False


def is_better(old: Source, new: Source) -> bool:
    """Whether what a card says is nearer to the published file than the config at hand."""
    order = list(HOW)
    return order.index(old.how) < order.index(new.how)


def model_of(origin: Origin, name: str) -> Model:
    model = read_config(origin.config, id=name, source=name, hf_quant_config=origin.quant)
    config = card_config(model, is_whole=origin.source.how in WHOLE)
    model = replace(model, config=config)
    if origin.source.how in WHOLE:
        return model
    # A partial copy: what it leaves out would be the class's default, not the model's own.
    given = {key for level in (origin.config, origin.config.get("text_config") or {}) for key in level}
    absent = {key for key, spellings in WIDTHS.items() if not given & spellings}
    return replace(model, facts={key: value for key, value in model.facts.items() if key not in absent})


def card_config(model: Model, *, is_whole: bool) -> Mapping[str, Any] | None:
    """The keys that decide sizes. None for a partial copy that leaves out what would be guessed then."""
    assert model.config is not None
    raw, quant = split_quant(model.config)
    if not is_whole:
        levels = (raw, *(raw.get(key) or {} for key in TEXT_PARTS))
        given = {key for level in levels for key in level}
        needed = NEEDED[:-1] if model.model_type in FOUR_WIDE else NEEDED
        if not all(given & spellings for spellings in needed):
            return None
    kept = size_relevant(
        raw,
        (
            lambda config: inventory_of(config, hf_quant_config=quant),
            lambda config: activation_shape(config, model, 2),
            media_keys,
            lambda config: profiled_encoder(replace(model, config=config)),
            lambda config: profiled_pass(replace(model, config=config)),
            lambda config: read_config(config, id=model.id, source="the card's config"),
        ),
    )
    return kept if quant is None else {**kept, QUANT_KEY: quant}


def media_keys(config: Mapping[str, Any]) -> None:
    """Ask a config for every key that its rule reads, so that a card keeps them."""
    rule = lineage_of(str(config.get("model_type", ""))).media
    if rule is None:
        return
    read = [
        key for key, _ in (rule.patch, rule.merge, rule.temporal, rule.tokens, rule.audio_tokens, rule.tile)
    ]
    for path in (*read, *MEDIA_KEYS):
        found: Any = config
        for step in path.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None


def profiled_encoder(model: Model) -> object:
    """What vLLM's profile run of the model's encoder is computed from."""
    settings = Serving(gpu=load_gpu("h100-sxm-80gb"))
    return encoder_run(model, settings, "0.33", seqs=256, tokens=8192, length=4096, element=2, v2=True)


def profiled_pass(model: Model) -> object:
    """What vLLM's profile run of compressed attention is computed from."""
    return compressed_passes(model, ranks=1, capability=(9, 0), release=(0, 33), element=2)


def make_variant(item: Mapping[str, Any], base: Model, parent: Origin, manifest: Manifest) -> Variant:
    """What a variant changes. Raises KvplanError where its own config has other layers than the card."""
    own = manifest.origin(item["id"])
    if (
        own is None
        and QUANTISED.search(item["id"])
        and not item.keys() & {"quantization", "config", "kv_cache_scheme", "build"}
    ):
        raise KvplanError("not-a-variant", "its quantisation is not known")
    origin = own or parent
    model = model_of(altered(origin, item), item["id"])
    for key in SAME:
        mine, theirs = getattr(model, key), getattr(base, key)
        if mine != theirs:
            raise KvplanError("not-a-variant", f"{key} differs: {mine} / {theirs}")
    changes = {key: getattr(model, key) for key in OVERLAY if getattr(model, key) != getattr(base, key)}
    if (model.config or {}) != (base.config or {}):
        changes["config"] = model.config or {}
    for key in item.keys() & set(OVERLAY):
        if item[key] != getattr(model, key):
            raise KvplanError("not-a-variant", f"{key} reads as {getattr(model, key)}, not {item[key]}")
    source = Source(**item["source"]) if "source" in item else own.source if own else MEMORY
    if "build" in item and own:
        source = replace(source, **USUAL)
    if "note" in item:
        source = replace(source, note=item["note"])
    return Variant(
        item["id"], tuple(item.get("aliases", ())), changes, source, own.weights if own else Weights()
    )


def altered(origin: Origin, item: Mapping[str, Any]) -> Origin:
    """The config with what is known of a variant written into it: all its values are then read as one."""
    whole = {**origin.config, **item.get("config", {})}
    if whole.get("quantization_config", whole) is None:
        whole.pop("quantization_config")
    if "build" in item:
        return replace(origin, config=built(whole, origin.quant, item["build"]), quant=None)
    level = whole
    if "text_config" in whole:
        level = whole["text_config"] = {**whole["text_config"]}
    level |= {CONFIG_KEYS[key]: item[key] for key in CONFIG_KEYS if key in item}
    quant = origin.quant
    if "kv_cache_scheme" in item:  # as ModelOpt writes it, in a file of its own
        algorithm = item.get("quant_algo", "FP8")
        schemes = {
            "quant_algo": algorithm,
            "kv_cache_quant_algo": item["kv_cache_scheme"].upper(),
            "exclude_modules": ["lm_head"],
        }
        quant = {"producer": {"name": "modelopt"}, "quantization": schemes}
    elif "quantization" in item:
        method = item["quantization"]
        if (whole.get("quantization_config") or {}).get("quant_method") != method:
            whole["quantization_config"] = {"quant_method": method}
    return replace(origin, config=whole, quant=quant)


def built(config: Mapping[str, Any], quant: Mapping[str, Any] | None, form: str) -> dict[str, Any]:
    """The config as builds of that format have it, where the copy leaves out which modules are quantised."""
    made = build_config(config, form)
    stated = quant.get("quantization", quant) if quant else config.get("quantization_config") or {}
    kept = {key: stated[key] for key in ("kv_cache_quant_algo", "kv_cache_scheme") if stated.get(key)}
    return {**made, "quantization_config": {**made["quantization_config"], **kept}}


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
    """An odd length and the longest under `generic`, the odd one under every other engine."""
    longest = card.model.max_model_len or NO_LENGTH
    asked = [("generic", ODD), ("generic", longest)]
    for name, engine in ENGINES.items():
        if name != "generic":
            asked.append((f"{name}@{MEASURED.get(name, engine.versions[-1])}", ODD))
    numbers: list[Expectation] = []
    for spec, tokens in asked:
        settings = {"tokens": min(tokens, longest)}
        with suppress(KvplanError):
            result = kvplan.size(card.model, engine=spec, tokens=settings["tokens"])
            if result.ok:
                value = result.total.kv_bytes_per_request
                numbers.append(Expectation(spec, "total.kv_bytes_per_request", value, settings))
    return numbers


if __name__ == "__main__":
    raise SystemExit(main())
