"""Write docs/data/architectures.md: every class that vLLM generates text with, sized or refused, by engine.

    python -m scripts.record_architectures          needs transformers 5.24

A class is asked with a case's config (tests/engines/vllm_own_cases.py), by a card, with a config that is
made up of the keys that vLLM's class reads (tests/engines/vllm_class_cases.py), or with the defaults of its
transformers class. One of which none of them is at hand is named at the end.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kvplan
from kvplan.engines import ENGINES
from kvplan.engines.release_rules import through
from kvplan.engines.supported import Row, classes
from kvplan.errors import KvplanError
from kvplan.files.cards.index import read_cards
from kvplan.files.datafiles import data_dir

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "data" / "architectures.md"
RELEASE = "0.33"
COLUMNS = ("generic", "vllm", "sglang", "trtllm", "llamacpp")
SIZED = "sized"
TOKENS = 256
Config = Mapping[str, Any]
REASONS = (
    ("has no class for", "no class"),
    ("unknown architecture", "no class"),
    ("converter does not know", "no converter"),
    ("encoder-decoder model", "not served"),
    ("transformers backend", "not through transformers"),
)
"""Part of a refusal's message → what the table says; others stand below it."""


def served() -> list[Row]:
    """The classes of the release that generate text."""
    rows = classes("vllm", "generates").values()
    return [row for row in rows if through(RELEASE, "", row.until)]


def samples(defaults: Iterable[tuple[str, Config]]) -> dict[str, tuple[str, str | Config]]:
    """Class → (where its model is from, a card's slug or a config). defaults: transformers' classes' own."""
    from tests.engines.vllm_class_cases import MADE, STEP5
    from tests.engines.vllm_own_cases import OWN

    found: dict[str, tuple[str, str | Config]] = {}
    for name, config in OWN.items():
        found.setdefault(config["architectures"][0], (f"case {name}", config))
    for card in read_cards(data_dir("model_cards")):
        if card.model.architecture:
            found.setdefault(card.model.architecture, (f"card {card.slug}", card.slug))
    for name, made in MADE.items():
        found.setdefault(made.config["architectures"][0], (f"made up: {name}", made.config))
    found.setdefault(STEP5["architectures"][0], ("made up: step-5", STEP5))
    for name, default in defaults:
        found.setdefault(name, ("class defaults", default))
    return found


def class_defaults() -> Iterator[tuple[str, Config]]:
    """The default config of every model class of transformers, by the class's name."""
    import transformers
    from transformers.models.auto import modeling_auto

    maps = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM")
    for which in (*maps, "SPEECH_SEQ_2_SEQ"):
        listed = getattr(modeling_auto, f"MODEL_FOR_{which}_MAPPING_NAMES", {})
        for model_type, names in listed.items():
            for name in (names,) if isinstance(names, str) else names:
                try:
                    config = transformers.AutoConfig.for_model(model_type).to_dict()
                except Exception:  # a class without defaults has none to show
                    continue
                yield name, json.loads(json.dumps({**config, "architectures": [name]}, default=str))


def of_label(where: str) -> str | Config | None:
    """The model that the page names: a case's, a card's or one made up; None for the defaults of a class."""
    from tests.engines.vllm_class_cases import MADE, STEP5
    from tests.engines.vllm_own_cases import OWN

    kind, _, name = where.rpartition(" ")
    made = {**{key: case.config for key, case in MADE.items()}, "step-5": STEP5}
    return {"case": OWN.get(name), "card": name, "made up:": made.get(name)}.get(kind)


def verdict(model: str | Config, engine: str) -> str:
    """``sized``, or why not."""
    version = RELEASE if engine == "vllm" else ENGINES[engine].versions[-1]
    try:
        asked = model if isinstance(model, str) else dict(model)
        result = kvplan.size(asked, engine=f"{engine}@{version}", tokens=TOKENS)
    except KvplanError as error:
        return str(error)
    return SIZED if result.refusal is None else result.refusal.message


def verdicts(model: str | Config) -> dict[str, str]:
    """By engine."""
    return {engine: verdict(model, engine) for engine in COLUMNS}


def short(words: str) -> str:
    if words == SIZED:
        return SIZED
    return next((said for part, said in REASONS if part in words), "refused")


def line(name: str, where: str, row: Mapping[str, str]) -> str:
    """A class in the table."""
    return f"| {name} | {where} | {' | '.join(short(row[engine]) for engine in COLUMNS)} |\n"


def page(rows: dict[str, tuple[str, dict[str, str]]], missing: list[str]) -> str:
    """The whole page."""
    counts = Counter(short(row["vllm"]) for _, row in rows.values())
    said = ", ".join(f"{number} {word}" for word, number in counts.most_common())
    text = (
        "# Architectures by engine\n\n"
        f"The {len(rows) + len(missing)} classes with which vLLM {RELEASE} generates text, each asked with a"
        " model of its own: a test's, a card's, one made up of the keys that vLLM's class reads (nobody's"
        " model; its planner's answers are recorded), or the defaults of its transformers class. Of"
        f" {len(rows)} vLLM's column says: {said}. `no class`, `no converter`: the newest release of the"
        " engine that kvplan mirrors does not build it; every other refusal stands below. Written by"
        " `python -m scripts.record_architectures`.\n\n"
    )
    text += f"| class | config | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}\n"
    for name, (where, row) in rows.items():
        text += line(name, where, row)
    text += "\n## Refused, and why\n\n| class | engine | why |\n|---|---|---|\n"
    for name, (_, row) in rows.items():
        for engine in COLUMNS:
            if short(row[engine]) not in (SIZED, "no class", "no converter"):
                text += f"| {name} | {engine} | {row[engine]} |\n"
    text += (
        f"\n## No public config at hand\n\n{len(missing)} classes whose config class lies next to a"
        " checkpoint or in vLLM, and of whose checkpoints no config is packaged. `kvplan size"
        " PATH/config.json` reads the plain ones by their keys and refuses the others by the key that it"
        " does not know.\n\n"
    )
    return text + "".join(f"- {name}\n" for name in missing)


def main() -> None:
    warnings.filterwarnings("ignore")
    known = samples(class_defaults())
    rows, missing = {}, []
    for row in sorted(served(), key=lambda row: row.name.casefold()):
        if row.name not in known:
            missing.append(row.name)
            continue
        where, model = known[row.name]
        rows[row.name] = (where, verdicts(model))
    PAGE.write_text(page(rows, missing), encoding="utf-8")
    print(f"{PAGE.name}: {len(rows)} classes, {len(missing)} without a config")


if __name__ == "__main__":
    main()
