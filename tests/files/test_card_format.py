"""The card's text: what is read, what is refused and where it points, and the way back."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.families import FAMILIES, FullAttention, Mamba2, NoCache, SlidingWindow
from kvplan.files.cards.card import Card, Expectation, Source, Variant, Weights
from kvplan.files.cards.file import card_from_located
from kvplan.files.cards.pattern import MAX_LAYERS, expand, shorten
from kvplan.files.cards.schema import card_json_schema, schema_errors
from kvplan.files.cards.writer import card_text
from kvplan.files.yaml.strict import load_yaml
from kvplan.model import Encoder, EncoderInput, Layer, Model, Provenance, runs_of
from kvplan.record import field_names

SMALL = """\
kvplan: card/v1
id: me/mine
source: {how: from-memory, verified: false}
model_type: llama
max_model_len: 4096
layers:
  kinds:
    full: [{family: full_attention, num_kv_heads: 8, head_dim: 128}]
    window: [{family: sliding_window, num_kv_heads: 8, head_dim: 128, sliding_window: 512}]
  pattern: 2 (3 window, full), 2 window
weights: {how: unknown}
"""


def read(text: str) -> Card:
    return card_from_located(load_yaml(text, name="mine.yaml"))


def error_of(text: str) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        read(text)
    return caught.value


def test_a_small_card() -> None:
    card = read(SMALL)
    window = Layer((SlidingWindow(8, 128, 512),))
    full = Layer((FullAttention(8, 128),))
    assert card.slug == "mine"
    assert card.model.layers() == [window, window, window, full] * 2 + [window] * 2
    assert (card.model.id, card.model.max_model_len, card.model.dtype) == ("me/mine", 4096, None)
    assert schema_errors(load_yaml(SMALL, name="mine.yaml")) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "place", "words"),
    [
        ("card/v1", "card/v2", "invalid-card", "1:9", "begins with `kvplan: card/v1`"),
        ("id: me/mine\n", "", "missing-key", "1:1", "`id` is missing"),
        ("id: me/mine", "id: 7", "invalid-card", "2:5", "must be text"),
        ("model_type", "modeltype", "unknown-key", "4:1", "unknown key `modeltype`"),
        ("full_attention", "fullattention", "unknown-family", "8:21", "unknown family"),
        ("head_dim: 128}]\n    window", "headdim: 128}]\n    window", "unknown-key", "8:54", "`headdim`"),
        (", head_dim: 128}]\n    w", "}]\n    w", "missing-key", "8:12", "head_dim` is missing"),
        ("sliding_window: 512", "sliding_window: 0", "invalid-card", "9:87", "at least 1"),
        ("sliding_window: 512", "sliding_window: true", "invalid-card", "9:87", "a whole number"),
        ("2 window\n", "2 widow\n", "invalid-card", "10:12", "names the kind `widow`"),
        ("(3 window, full)", "(3 window, full", "bad-pattern", "10:12", "bracket is not closed"),
        ("how: unknown", "how: known", "invalid-card", "11:16", "must be 'headers', "),
        ("how: unknown", "how: headers", "invalid-card", "11:16", "exactly where"),
        ("verified: false", "verified: maybe", "invalid-card", "3:38", "true or false"),
        ("how: from-memory", "how: from-memroy", "invalid-card", "3:15", "did you mean `from-memory`"),
        ("max_model_len: 4096", "max_model_len: -1", "invalid-card", "5:16", "at least 1"),
        ("model_type: llama", "model_type: llama\nencoder: {input: smell}", "invalid-card", "5:18", "text"),
        (
            "model_type: llama",
            "model_type: llama\nfacts: {a: [1]}",
            "invalid-card",
            "5:12",
            "must be a whole number or text or true or false",
        ),
        ("model_type: llama", "model_type: llama\naliases: mine", "invalid-card", "5:10", "a list"),
        (
            "[{family: full_attention, num_kv_heads: 8, head_dim: 128}]",
            "[]",
            "invalid-card",
            "8:11",
            "at least 1",
        ),
    ],
)
def test_a_mistake_is_shown_where_it_is(old: str, new: str, code: str, place: str, words: str) -> None:
    assert old in SMALL
    error = error_of(SMALL.replace(old, new, 1))
    assert error.code == code
    assert error.where is not None
    assert error.where.startswith(f"mine.yaml:{place}\n")
    assert words in error.message + " ".join(error.help)


def test_an_unknown_family_suggests_one() -> None:
    error = error_of(SMALL.replace("full_attention", "full_atention", 1))
    assert error.help == ("did you mean full_attention?",)


def full_model(**changes: Any) -> Model:
    window, full = Layer((SlidingWindow(4, 64, 128, sink_tokens=4),)), Layer((FullAttention(4, 64, 32),))
    both = Layer((FullAttention(4, 64), Mamba2(8, 64, 16, 1, 4, ssm_dtype="float32")))
    values: dict[str, Any] = {
        "id": "me/mine",
        "source": "dict",
        "model_type": "mine",
        "architecture": "MineForCausalLM",
        "runs": runs_of([window, window, full] * 3 + [both, Layer((NoCache(),))]),
        "dtype": "bfloat16",
        "max_model_len": 8192,
        "num_attention_heads": 8,
        "hidden_size": 512,
        "vocab_size": 1000,
        "kv_cache_scheme": "fp8_e4m3",
        "quantization": "fp8",
        "encoder": Encoder(EncoderInput.AUDIO, 1500),
        "draft_layers": (full, full),
        "facts": {"a": 1, "b": "x: y", "c": True, "d": "no", "e": "1.0"},
        "provenance": Provenance("config", None, {"full_attention": {"head_dim": "a // b (default of x)"}}),
        "warnings": ("taken as a plain decoder",),
    }
    return Model(**{**values, **changes})


def test_a_model_survives_the_way_to_a_card_and_back() -> None:
    model = full_model()
    source = Source("verbatim", True, "me/mine", "77e1234", "a b/config.json", 'says "so": {x}')
    weights = Weights("index", 10, {"bfloat16": 20, "F8_E4M3": 3}, None)
    variants = (
        Variant(
            "me/fp8", ("me/other",), {"quantization": None, "facts": {"a": 2, "z": None}}, None, Weights()
        ),
        Variant("me/two", (), {"dtype": "float16"}, Source("retyped", True, path="x"), weights),
    )
    expect = (Expectation("generic", "total.kv_bytes", [1, 3], {"requests": 2, "tokens": 10}, "by hand"),)
    text = card_text(
        model, source=source, aliases=["me/three"], weights=weights, variants=variants, expect=expect
    )
    card = read(text)
    for name in set(field_names(Model)) - {"source", "provenance", "weights"}:
        assert getattr(card.model, name) == getattr(model, name), name
    assert card.model.provenance.keys == model.provenance.keys
    assert (card.source, card.weights, card.variants, card.expect) == (source, weights, variants, expect)
    assert card.aliases == ("me/three",)
    assert schema_errors(load_yaml(text, name="mine.yaml")) == []
    again = card_text(
        card.model, source=source, aliases=["me/three"], weights=weights, variants=variants, expect=expect
    )
    assert again == text


def test_a_variant_as_a_model() -> None:
    changes = {"quantization": None, "max_model_len": 7, "facts": {"a": 2}}
    variants = (Variant("me/fp8", (), changes, None, Weights()),)
    card = read(card_text(full_model(), source=Source("from-memory", False), variants=variants))
    model = card.model_of(0)
    assert (model.id, model.quantization, model.max_model_len) == ("me/fp8", None, 7)
    assert model.facts == {"a": 2}
    assert model.warnings[0] == "the card of me/mine is unverified (typed from memory)"
    assert card.model_of(None) is card.model
    assert card.weights_of(0) == Weights()


def test_a_model_without_layers_that_store_anything() -> None:
    model = full_model(runs=(), encoder=None, draft_layers=(), no_cache_reason="encoder only", facts={})
    card = read(card_text(model, source=Source("verbatim", True, "me/mine")))
    assert card.model.runs == ()
    assert card.model.no_cache_reason == "encoder only"


WHOLE = yaml.safe_load(
    card_text(
        full_model(),
        source=Source("verbatim", True, "me/mine"),
        weights=Weights("index", 10, {"bfloat16": 20}),
        variants=(Variant("me/two", ("me/x",), {"dtype": "float16"}, Source("retyped", True), Weights()),),
        expect=(Expectation("generic", "total.kv_bytes", [1, 3], {"requests": 2, "tokens": 10}, "by hand"),),
    )
)
NAMES = st.sampled_from(["a", "b", "full_attention", "mla+sparse_indexer", "window-2", "v1.5"])


@settings(deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=60), st.integers(1, 5))
def test_a_pattern_reads_back_as_the_same_layers(names: list[str], times: int) -> None:
    layers = names * times
    text = shorten(layers)
    assert [name for name, count in expand(text) for _ in range(count)] == layers


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        (["a"] * 32, "32 a"),
        (["a"], "a"),
        ((["a"] * 5 + ["b"]) * 10 + ["a", "a"], "10 (5 a, b), 2 a"),
        (["a", "b"] * 18, "18 (a, b)"),
        (["c"] + ["a", "b", "b"] * 4, "c, 4 (a, 2 b)"),
    ],
)
def test_patterns_are_short(layers: list[str], text: str) -> None:
    assert shorten(layers) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "3", "a b", "a,", ",a", "(a", "a)", "3 (a))", "0 a", "99999999 a", "64 (64 (64 a))",
     "((((((((((a))))))))))", "4096 a, a", "é", "a; b", "9 9 a", "10000000000 a", "(" * 100_000,
     "4000 (1000 (a, b))", "a," * 50_000],
)  # fmt: skip
def test_a_bad_pattern_is_refused_quickly(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        expand(text)
    assert caught.value.code == "bad-pattern"
    assert len(caught.value.message) < 300


def test_the_largest_pattern() -> None:
    assert expand(f"{MAX_LAYERS} a") == [("a", MAX_LAYERS)]
    assert len(expand(f"{MAX_LAYERS // 2} (a, b)")) == MAX_LAYERS


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="ab ,()0123456789", max_size=40))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    try:
        runs = expand(text)
    except KvplanError as error:
        runs = [(error.code, 1)]
    assert runs == [("bad-pattern", 1)] or 1 <= sum(count for _, count in runs) <= MAX_LAYERS


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_card_breaks_the_reader(data: st.DataObject) -> None:
    """One value anywhere in a card is replaced by junk: a card or an error of kvplan, from both readers."""
    whole = copy.deepcopy(WHOLE)
    holder: Any = whole
    while True:
        key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        if not isinstance(holder[key], (dict, list)) or not holder[key] or data.draw(st.booleans()):
            break
        holder = holder[key]
    holder[key] = data.draw(JUNK)
    text = yaml.safe_dump(whole, allow_unicode=True, sort_keys=False)
    with contextlib.suppress(KvplanError):
        schema_errors(load_yaml(text, name="mine.yaml"))
        read(text)


def test_the_schema_knows_every_family() -> None:
    schema = card_json_schema()
    parts = [entry for name, entry in schema["$defs"].items() if name.endswith("Part")]
    families = {entry["properties"]["family"]["const"] for entry in parts}
    assert families == set(FAMILIES)
    assert schema["additionalProperties"] is False


def test_the_schema_finds_what_the_reader_finds() -> None:
    text = SMALL.replace("head_dim: 128", "headdim: 128", 1).replace("4096", "many")
    errors = schema_errors(load_yaml(text, name="mine.yaml"))
    assert {error.code for error in errors} == {"unknown-key", "missing-key", "invalid-card"}
    assert all(error.where and error.where.startswith("mine.yaml:") for error in errors)
