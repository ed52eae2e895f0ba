"""Write model_cards/published.txt: hub ids of quantised checkpoints that public sources name.

    python -m scripts.make_published HF_MODELS_JSON CHECKOUT …

HF_MODELS_JSON is llmfit-core/data/hf_models.json of AlexsJones/llmfit, read from the hub; a CHECKOUT is a git
directory, of vllm-project/recipes, sgl-project/sgl-cookbook, SemiAnalysisAI/InferenceX and others. An id is
taken where its name ends with a weight format that engines load, the rest of it is that of a model which has
a card (or is listed) to the word, kvplan has a rule for it, and enough names it: LEAST downloads of it, one
of CURATED, or two checkouts. Which model each belongs to is not written down:
`kvplan.files.cards.checkpoints` reads it from the name.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.cards.checkpoints import FILE, base_words, is_quantised_name, words_of
from kvplan.files.cards.find import list_cards, load_card
from kvplan.files.cards.index import is_name, key_of
from kvplan.files.cards.listed import listed_ids

OUT = Path(__file__).resolve().parents[1] / "model_cards" / FILE
LEAST = 300
"""Downloads of an id of that list."""
CURATED = ("recipes", "sgl-cookbook", "InferenceX", "dgx-spark-playbooks")
"""Repositories whose ids were run."""
OTHER_HARDWARE = frozenset("eco-tech vllm-ascend furiosa-ai rebellions amazon-neuron".split())
"""Makers whose builds run on hardware that kvplan does not cover."""
_ID = re.compile(r"(?<![\w./-])([A-Za-z0-9][\w.-]{1,38})/([A-Za-z0-9][\w.-]{2,95}\w)(?![\w/])", re.ASCII)
_TEXTS = (
    "*.md",
    "*.yaml",
    "*.yml",
    "*.sh",
    "*.py",
    "*.jsx",
    "*.js",
    "*.ts",
    "*.tsx",
    "*.mdx",
    "*.rst",
    "*.toml",
)
_FEW = r"(fp8|fp4|int4|int8|awq|gptq|w4a16|w8a8|w8a16|mxfp|nf4|bnb|4bit|8bit|INC|AutoRound)"
HEAD = """# Hub ids of quantised checkpoints that public sources name. Made by scripts/make_published.py from
# AlexsJones/llmfit 1.1.17, vllm-project/recipes 8959cf64189c, sgl-project/sgl-cookbook 7b5bd9c05e3d,
# SemiAnalysisAI/InferenceX 843c6254ff69, NVIDIA/dgx-spark-playbooks 0db7c141da60 and others.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("checkouts", type=Path, nargs="+")
    given = parser.parse_args()
    bases = {words_of(one) for card in list_cards() for one in (card.id, *card.variants, *card.aliases)}
    bases |= {words_of(one) for one in listed_ids()}
    entries = json.loads(given.models.read_text(encoding="utf-8"))
    enough = {one["name"] for one in entries if (one["hf_downloads"] or 0) >= LEAST}
    counted: Counter[str] = Counter()
    for place in given.checkouts:
        names = set(named_in(place))
        counted.update(names)
        if any(one in str(place) for one in CURATED):
            enough |= names
    enough |= {name for name, count in counted.items() if count > 1}
    found: dict[str, str] = {}
    for name in sorted(enough):
        if key_of(name) not in found and is_published(name, bases):
            found[key_of(name)] = name
    OUT.write_bytes((HEAD + "".join(f"{name}\n" for _, name in sorted(found.items()))).encode())
    print(f"{len(found)} ids")
    return 0


def named_in(checkout: Path) -> Iterator[str]:
    """Ids that the texts of a checkout name, in lines that name a weight format."""
    lines = subprocess.run(
        ["git", "-C", str(checkout), "grep", "-hiIE", _FEW, "HEAD", "--", *_TEXTS],
        capture_output=True,
        check=False,
    ).stdout.decode("utf-8", "replace")
    for match in _ID.finditer(lines):
        yield match[0]


def is_published(name: str, bases: set[tuple[str, ...]]) -> bool:
    """Whether it is a quantised checkpoint of a known model, and kvplan has a rule for its format."""
    maker = key_of(name).partition("/")[0]
    if maker in OTHER_HARDWARE or is_name(name) or not is_quantised_name(name):
        return False
    words = base_words(name)
    if words not in bases and (*words, "it") not in bases:
        return False
    try:
        return load_card(name).quantization is not None
    except KvplanError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
