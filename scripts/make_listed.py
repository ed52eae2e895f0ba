"""Write model_cards/listed.tsv: hub ids whose published config has the sizes of a card.

    python -m scripts.make_listed HF_MODELS_JSON

HF_MODELS_JSON is llmfit-core/data/hf_models.json of AlexsJones/llmfit, whose authors read each id's
config.json (layers, widths, heads, vocabulary, length) and its number of parameters. An id is taken where its
type and every size are those of a card, and, but for builds whose names say a format, its number of
parameters too (``less``: somewhat fewer). It is left out where cards with these sizes keep different layers,
where its type has a window that the list does not state, where a card or a build's name has it already, and
where fewer than LEAST downloaded it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvplan.architectures.inventory import inventory_of
from kvplan.errors import KvplanError
from kvplan.files.cards.builds import _OWN_RULES, _REPUBLISHED, _quantised, _target, meant
from kvplan.files.cards.find import load_card
from kvplan.files.cards.formats import UNKNOWN, inside, readings
from kvplan.files.cards.gguf_names import gguf_name
from kvplan.files.cards.index import is_name, key_of, packaged_index
from kvplan.files.cards.listed import FILE
from kvplan.model import Model
from kvplan.weights.inventory import Inventory
from scripts.card_read import sizes_of

OUT = Path(__file__).resolve().parents[1] / "model_cards" / FILE
LEAST = 300
WINDOWS = {"mistral": {32000}, "phi3": {32064, 32011}, "starcoder2": {49152}}
"""Types whose class has a window where a config says none, and the vocabularies of those that have one."""
SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv",
    "vocab_size": "vocabulary",
}
SOME = 0.85
"""Of the card's parameters, where an id has fewer: one without the encoder or the prediction layer."""
TYPES = {
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "internvl": "internvl_chat",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe",
}
"""Types of the list → the same decoder's type on a card."""
FOUR_BITS = ("auto-round", "awq", "gptq")
"""Formats that a name's end says of builds which mix them with another."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
HEAD = """# Hub ids whose published config has the sizes of a card: id, card, format of the weights, length.
# Made by scripts/make_listed.py from llmfit-core/data/hf_models.json of AlexsJones/llmfit 1.1.17.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    entries: list[dict[str, Any]] = json.loads(parser.parse_args().models.read_text(encoding="utf-8"))
    cards, numbers = by_sizes(), by_parameters()
    lines: dict[str, str] = {}
    for entry in sorted(entries, key=lambda one: one["name"]):
        if (entry["hf_downloads"] or 0) >= LEAST and not is_known(entry["name"]):
            line = line_of(entry, cards) or line_of_parameters(entry, numbers)
            if line is not None:
                lines[key_of(entry["name"])] = line
    text = "".join(f"{key}\t{line}\n" for key, line in sorted(lines.items()))
    OUT.write_bytes((HEAD + text).encode())
    print(f"{len(lines)} ids")
    return 0


def is_known(name: str) -> bool:
    """Whether a card, or the name of a build of a card, has the id already."""
    key = key_of(name)
    if is_name(name) or not key.isascii():
        return True
    with suppress(KvplanError):
        if gguf_name(key) is not None:
            return True
    maker, _, rest = key.rpartition("/")
    if maker in _REPUBLISHED and _target(rest, maker):
        return True
    bases = [base for base, _ in readings(rest, maker)]
    return any(_target(base, maker) or _target(f"{base}-bf16", maker) for base in bases) or bool(
        _quantised(key)
    )


def by_sizes() -> dict[tuple[int, ...], list[tuple[str, Model]]]:
    """Sizes → the cards and variants that have them, by name."""
    found: dict[tuple[int, ...], list[tuple[str, Model]]] = {}
    for summary in packaged_index()["cards"].values():
        for name in (summary["id"], *summary["variants"]):
            model = load_card(name)
            if model.quantization and name != summary["id"]:
                continue
            sizes = all_sizes(model)
            if all(size in sizes for size in SIZES.values()):
                found.setdefault(tuple(sizes[size] for size in SIZES.values()), []).append(
                    (key_of(name), model)
                )
    return found


def all_sizes(model: Model) -> dict[str, int]:
    """Its sizes; an encoder has as many heads of keys as of queries."""
    sizes = sizes_of(model)
    return {"kv": sizes["heads"], **sizes} if model.no_cache_reason and "heads" in sizes else sizes


def line_of(entry: Mapping[str, Any], cards: Mapping[tuple[int, ...], list[tuple[str, Model]]]) -> str | None:
    """What the table says of an entry of the list; None where no card has its sizes for certain."""
    kind = TYPES.get(entry["architecture"], entry["architecture"])
    if any(not entry.get(key) for key in (*SIZES, "moe_intermediate_size", "head_dim")):
        return None
    if entry["vocab_size"] in WINDOWS.get(kind, ()):
        return None
    same = [
        (name, model)
        for name, model in cards.get(tuple(entry[key] for key in SIZES), ())
        if is_of(entry, kind, model)
    ]
    if not same or any(model.runs != same[0][1].runs for _, model in same):
        return None
    key = key_of(entry["name"])
    maker, _, rest = key.rpartition("/")
    read = next(readings(rest, maker), None)
    name, model = nearest(rest, entry["context_length"], same)
    if read is not None and model.model_type not in _OWN_RULES:
        form = listed_form(rest, maker, read[1])
    elif (said := inside(rest, maker)) is not None:
        form = meant(maker, said)
    elif model.no_cache_reason or entry["parameters_raw"] in parameters(model):
        form = "whole"
    elif any(SOME * count <= entry["parameters_raw"] < count for count in parameters(model)):
        form = "less"
    else:
        return None
    if not form:
        return None
    length = entry["context_length"]
    return f"{name}\t{form}\t{'' if length == model.max_model_len else length}"


def listed_form(rest: str, maker: str, ending: str) -> str:
    """The format of a name that ends with one, `UNKNOWN` where a word before it says another."""
    said = inside(rest, maker)
    if ending == "whole":
        return ending if said is None else meant(maker, said)
    return UNKNOWN if said == UNKNOWN and ending in FOUR_BITS else meant(maker, ending)


def by_parameters() -> dict[tuple[str, int], list[tuple[str, Model]]]:
    """Type and number of parameters → the cards and variants that have them."""
    found: dict[tuple[str, int], list[tuple[str, Model]]] = {}
    for summary in packaged_index()["cards"].values():
        for name in (summary["id"], *summary["variants"]):
            model = load_card(name)
            kind = (model.config or {}).get("model_type")
            for count in () if model.quantization or kind is None else parameters(model):
                found.setdefault((str(kind), count), []).append((key_of(name), model))
    return found


def line_of_parameters(
    entry: Mapping[str, Any], numbers: Mapping[tuple[str, int], list[tuple[str, Model]]]
) -> str | None:
    """The same where the list has no sizes of an id (its maker asks for a licence): its type and its number
    of parameters are those of models with the same layers and the same length."""
    if entry.get("num_hidden_layers"):
        return None
    kind = TYPES.get(entry["architecture"], entry["architecture"])
    same = numbers.get((kind, entry["parameters_raw"]), [])
    if not same or any(
        (one.runs, one.max_model_len) != (same[0][1].runs, same[0][1].max_model_len) for _, one in same
    ):
        return None
    maker, _, rest = key_of(entry["name"]).rpartition("/")
    told = inside(rest, maker) is not None or next(readings(rest), None) is not None
    return None if told else f"{nearest(rest, 0, same)[0]}\twhole\t"


def is_of(entry: Mapping[str, Any], kind: str, model: Model) -> bool:
    """Whether the model's type, feed-forward widths and experts are those of the entry."""
    config = dict(model.config or {})
    text = next(
        (config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), Mapping)), config
    )
    widths = [
        text.get(key) for key in ("moe_intermediate_size", "intermediate_size", "block_ff_dim", "ffn_dim")
    ]
    experts = next((text[key] for key in EXPERTS if text.get(key)), None)
    types = {config.get("model_type"), model.facts.get("top_model_type")} - {None}
    return (
        kind in types
        and entry["moe_intermediate_size"] in widths
        and (entry.get("num_experts") or None) == experts
        and sizes_of(model).get("width", entry["head_dim"]) in (entry["head_dim"], 576)
    )


def parameters(model: Model) -> set[int]:
    """The numbers of parameters that a file of the model may have: with and without its prediction layers,
    and with a head stored beside an embedding that it shares."""
    try:
        inventory = inventory_of(model.config or {})
    except KvplanError:
        return set()
    number = inventory.parameters
    counts = {number, number + Inventory((), inventory.draft).parameters}
    sizes = sizes_of(model)
    return counts | {count + sizes["vocabulary"] * sizes["hidden"] for count in counts}


def nearest(rest: str, length: int, same: Iterable[tuple[str, Model]]) -> tuple[str, Model]:
    """Of cards with the same layers the one whose words the name has, then the one of the same length, then a
    card before its variants."""
    words = set(rest.split("-"))
    cards = {key_of(summary["id"]) for summary in packaged_index()["cards"].values()}

    def order(one: tuple[str, Model]) -> tuple[bool, bool, int, bool, bool, str]:
        own = set(one[0].rpartition("/")[2].split("-"))
        stored = bool(one[1].quantization)
        return (
            stored,
            not own <= words,
            -len(own & words),
            one[1].max_model_len != length,
            one[0] not in cards,
            one[0],
        )

    return min(same, key=order)


if __name__ == "__main__":
    raise SystemExit(main())
