"""The linter, on the packaged cards and on broken ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.families import FAMILIES
from kvplan.files.cards.card import Card
from kvplan.files.cards.file import card_from_located
from kvplan.files.cards.find import lint_cards, list_cards
from kvplan.files.cards.index import FOLDER
from kvplan.files.cards.lint import Finding
from kvplan.files.cards.schema import card_json_schema
from kvplan.files.cards.writer import card_text
from kvplan.files.datafiles import data_dir
from kvplan.files.yaml.strict import load_yaml
from kvplan.model import Model
from tests.laws.sampling import for_each
from tests.packaged import packaged_cards
from tests.recorded import config_names, model_of

CARDS = packaged_cards()
IDS = [card.slug for card in CARDS]
UNIFORM = [
    card
    for card in CARDS
    if {part.family for layer in card.model.distinct() for part in layer.parts} == {"full_attention"}
]

MINE = """\
# yaml-language-server: $schema=card.schema.json
kvplan: card/v1
id: me/mine
source: {how: verbatim, verified: true, repository: me/mine}
model_type: llama
layers:
  kinds: {full: [{family: full_attention, num_kv_heads: 8, head_dim: 128}]}
  pattern: 4 full
weights: {how: unknown}
expect:
  - {engine: generic, tokens: 10, field: total.kv_bytes, value: 163840}
"""

# Models and families that the project promises; a slug may begin with the word.
PROMISED = [
    "llama-2", "llama-3-8b", "llama-3.1", "llama-3.2-1b", "llama-3.2-11b-vision", "llama-3.3",
    "llama-4", "mistral-7b", "mixtral", "mistral-nemo", "mistral-small", "ministral", "qwen2.5",
    "qwen3-32b", "qwen3-30b-a3b", "qwen3-next", "qwen3.5", "gemma-2-", "gemma-3-", "gemma-3n",
    "gemma-4", "gpt-oss", "deepseek-v2-lite", "deepseek-v3", "deepseek-r1", "deepseek-v3.2",
    "deepseek-v4", "kimi-k2", "kimi-linear", "glm-4.5", "glm-4.6", "glm-5", "minimax", "phi",
    "falcon-7b", "falcon-40b", "falcon-h1", "falcon-mamba", "jamba", "granite-4", "nemotron-h",
    "nemotron-nano", "nemotron-super", "nemotron-3", "zamba2", "mamba", "recurrentgemma", "olmo",
    "command", "yi", "starcoder", "gpt2", "gpt-neox", "gpt-j", "opt", "bloom", "mpt", "t5", "flan-t5",
    "whisper", "llava", "qwen2.5-vl", "lfm2", "mimo-v2", "smollm3", "seed-oss",
]  # fmt: skip

SHAPES = {
    "deepseek-v3": {"mla": 61},
    "deepseek-v3.2": {"mla": 61, "sparse_indexer": 61},
    "gemma-2-27b": {"sliding_window": 23, "full_attention": 23},
    "gemma-3-27b": {"sliding_window": 52, "full_attention": 10},
    "gemma-3n-e4b": {"sliding_window": 16, "full_attention": 4, "shared_kv": 15},
    "gemma-4-26b-a4b": {"sliding_window": 25, "full_attention": 5},
    "gpt-oss-120b": {"sliding_window": 18, "full_attention": 18},
    "llama-4-scout": {"chunked_attention": 36, "full_attention": 12},
    "llama-3.2-11b-vision": {"full_attention": 32, "cross_attention": 8},
    "llama-3.2-90b-vision": {"full_attention": 80, "cross_attention": 20},
    "command-r7b": {"sliding_window": 24, "full_attention": 8},
    "olmo-3-7b": {"sliding_window": 24, "full_attention": 8},
    "mimo-v2-flash": {"sliding_window": 39, "full_attention": 9},
    "jamba-1.5-mini": {"mamba1": 28, "full_attention": 4},
    "granite-4.0-h-small": {"mamba2": 36, "full_attention": 4},
    "zamba2-2.7b": {"mamba2": 54, "full_attention": 9},
    "falcon-h1-34b": {"mamba2": 72, "full_attention": 72},
    "nemotron-h-8b": {"mamba2": 24, "no_cache": 24, "full_attention": 4},
    "nemotron-nano-9b-v2": {"mamba2": 27, "no_cache": 25, "full_attention": 4},
    "nemotron-super-49b": {"full_attention": 49, "no_cache": 31},
    "qwen3-next-80b-a3b": {"gated_delta_net": 36, "full_attention": 12},
    "qwen3.5-27b": {"gated_delta_net": 48, "full_attention": 16},
    "kimi-linear-48b-a3b": {"kda": 20, "mla": 7},
    "minimax-text-01": {"lightning_attention": 70, "full_attention": 10},
    "recurrentgemma-2b": {"rg_lru": 18, "sliding_window": 8},
    "lfm2-1.2b": {"short_convolution": 10, "full_attention": 6},
    "whisper-large-v3": {"full_attention": 32, "cross_attention": 32},
    "t5-small": {"full_attention": 6, "cross_attention": 6},
}


AS_NOTED = ("top_model_type",)
"""What a card states against its copy of the config, with a note in its source."""
READ_AGAIN = ("runs", "draft_layers", "encoder", "kv_cache_scheme", "quantization", "no_cache_reason")
# Left out of a card where a partial copy of the config does not state them.
MAY_BE_ABSENT = {"intermediate_size", "moe_intermediate_size", "num_experts"}


def checked_facts(model: Model) -> dict[str, object]:
    return {key: value for key, value in model.facts.items() if key not in MAY_BE_ABSENT}


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_the_packaged_cards_are_right() -> None:
    """Layout, names, provenance, index, and every golden number computed anew."""
    findings = lint_cards(size=kvplan.size)
    assert findings == [], "\n".join(f"{one.path}: {one.code}: {one.message}" for one in findings[:20])


def test_there_are_enough_cards_and_each_promised_model() -> None:
    slugs = [entry.slug for entry in list_cards()]
    assert len(slugs) >= 120
    missing = [word for word in PROMISED if not any(slug.startswith(word) for slug in slugs)]
    assert missing == []


def test_every_card_has_golden_numbers() -> None:
    assert [card.slug for card in CARDS if not card.expect and not card.model.no_cache_reason] == []


def test_the_cards_cover_the_families() -> None:
    used = Counter(
        part.family
        for card in CARDS
        for layer in (*card.model.distinct(), *card.model.draft_layers)
        for part in layer.parts
    )
    # No released model of these is packaged; the conformance tests build them. An engine makes the last.
    rare = {"kv_convolution", "compressed_convolution", "prompt_tokens", "hidden_memory", "ngram_embedding"}
    rare |= {"windowed_convolution"}
    assert set(FAMILIES) - set(used) <= rare


@for_each("card", CARDS, ids=IDS)
def test_a_card_round_trips(card: Card) -> None:
    path = data_dir(FOLDER) / f"{card.slug}.yaml"
    text = card_text(
        card.model,
        source=card.source,
        aliases=card.aliases,
        weights=card.weights,
        variants=card.variants,
        expect=card.expect,
        evidence=card.evidence,
    )
    assert text == path.read_text(encoding="utf-8")
    again = card_from_located(load_yaml(text, name=path.name))
    assert again.model.runs == card.model.runs
    assert again.model.facts == card.model.facts
    assert again.model.provenance == card.model.provenance


@for_each("card", UNIFORM, ids=lambda card: str(card.slug))
def test_uniform_attention_by_hand(card: Card) -> None:
    """layers * 2 * num_kv_heads * head_dim * 2 bytes * tokens, without any of the core's terms."""
    by_hand = 0
    for layer, count in card.model.distinct().items():
        for part in layer.parts:
            heads, width = part.num_kv_heads, part.head_dim  # type: ignore[union-attr]
            by_hand += count * heads * (width + (part.v_head_dim or width)) * 2  # type: ignore[union-attr]
    for entry in card.expect:
        if (entry.engine, entry.field, entry.source) == ("generic", "total.kv_bytes_per_request", None):
            assert entry.value == by_hand * entry.settings["tokens"]


@pytest.mark.parametrize(("slug", "families"), SHAPES.items())
def test_shapes_as_published(slug: str, families: dict[str, int]) -> None:
    """Layers of each family, counted from the models' own reports and cards."""
    (entry,) = (one for one in list_cards() if one.slug == slug)
    assert entry.families == families


ADDED = ("zamba2-2.7b",)
"""Cards with keys of the published file that the copy at hand, a class's defaults, has otherwise."""


def test_cards_say_what_their_configs_say() -> None:
    """A card whose config is recorded has the layers that the reader's rules give today."""
    stale, compared = [], 0
    for card in CARDS:
        for at in (None, *range(len(card.variants))):
            model = card.model_of(at)
            name = model.id.replace("/", "__")
            if name not in config_names():
                continue
            now = model_of(name)
            if at is None and (card.source.how == "assembled" or card.slug in ADDED):
                continue  # the card says more than the copy at hand
            if model.quantization and not now.quantization:
                continue  # the copy at hand leaves out what the card has from the published file
            compared += 1
            pairs = [(getattr(model, name), getattr(now, name)) for name in READ_AGAIN]
            if at is None:
                mine, theirs = checked_facts(model), checked_facts(now)
                noted = AS_NOTED if "its class is" in (card.source.note or "") else ()
                pairs.append((mine, {**theirs, **{key: mine[key] for key in noted}}))
            if any(mine != theirs for mine, theirs in pairs):
                stale.append(model.id)
    assert stale == [], "run python -m scripts.make_cards with the folder of configs"
    assert compared > 150


def test_no_weights_are_guessed() -> None:
    """Bytes are stated only for unquantised checkpoints, and fit the parameter count."""
    for card in CARDS:
        everything = [(card.model, card.weights)]
        everything += [(card.model_of(at), one.weights) for at, one in enumerate(card.variants)]
        for model, weights in everything:
            if weights.how == "parameter count":
                assert model.quantization is None, model.id
                assert weights.parameters is not None
                assert weights.total_bytes == 2 * weights.parameters


def test_provenance_is_honest() -> None:
    for card in CARDS:
        for source in (card.source, *(one.source for one in card.variants if one.source)):
            assert not (source.verified and source.how in ("from-memory", "library-default", "assembled"))
            assert not (source.path or "").startswith(("/", "..")), card.slug


def test_the_committed_schema_is_fresh() -> None:
    stored = (data_dir(FOLDER) / "card.schema.json").read_text(encoding="utf-8")
    assert json.loads(stored) == card_json_schema(), "run python -m scripts.make_cards --index"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("", "", None),
        ("value: 163840", "value: 163841", "wrong-number"),
        ("engine: generic", "engine: genric", "no-answer"),
        ("field: total.kv_bytes,", "field: total.kv_bites,", "wrong-number"),
        ("how: verbatim", "how: from-memory", "bad-provenance"),
        (", repository: me/mine", "", "missing-provenance"),
        ("id: me/mine", "id: meta-llama/Llama-3.1-8B", "duplicate-model-name"),
        ("pattern: 4 full", "pattern: 4 fool", "invalid-card"),
        ("head_dim: 128", "head_dim: wide", "invalid-card"),
        ("model_type", "modeltype", "missing-key"),
        ("  pattern", "    other: [{family: no_cache}]\n  pattern", "yaml-syntax"),
        ("}]}\n", "}], other: [{family: no_cache}]}\n", "unused-kind"),
        ("weights", "config_keys: {mla: {a: b}}\nweights", "unused-keys"),
        ("kvplan: card/v1", "kvplan: [card/v1", "yaml-syntax"),
    ],
)
def test_findings(tmp_path: Path, old: str, new: str, code: str | None) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.replace(old, new, 1), encoding="utf-8")
    findings = lint_cards([path], size=kvplan.size)
    if code is None:
        assert findings == []
    else:
        assert code in codes(findings)
        assert findings[0].path == str(path)


def test_a_slug_is_lower_case(tmp_path: Path) -> None:
    path = tmp_path / "Mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    assert codes(lint_cards([path])) == ["bad-slug"]


def test_numbers_are_not_checked_without_an_engine(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.replace("163840", "1"), encoding="utf-8")
    assert lint_cards([path]) == []


def test_two_cards_of_one_name(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(MINE, encoding="utf-8")
    findings = lint_cards(sorted(tmp_path.glob("*.yaml")))
    assert set(codes(findings)) == {"duplicate-model-name"}
    assert findings[0].path.endswith("two.yaml")


def test_a_missing_file() -> None:
    with pytest.raises(KvplanError, match="there is no file") as raised:
        lint_cards(["/nowhere/mine.yaml"])
    assert raised.value.code == "unreadable-file"
