"""Finding cards by name, and what the index and the list say."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kvplan.errors import KvplanError
from kvplan.files.cards import find as cards
from kvplan.files.cards import index as card_index
from kvplan.files.cards.find import (
    build_index,
    lint_cards,
    list_cards,
    list_names,
    load_card,
    load_weights,
    read_card_file,
)
from kvplan.files.cards.index import key_of, names_of, squeezed
from kvplan.files.cards.new import card_from_config
from kvplan.files.datafiles import data_dir, read_packaged


@pytest.fixture
def fresh() -> None:
    """Nothing remembered from earlier tests."""
    card_index.shipped_index.cache_clear()
    cards._packaged.cache_clear()
    cards._model.cache_clear()


@pytest.mark.parametrize(
    ("query", "model_id", "slug"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        (" Llama 3.1 8B ", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/llama-3.1-8b-i", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama-3.1-70B", "meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("qwen3-32b", "Qwen/Qwen3-32B", "qwen3-32b"),
        ("qwen3-32", "Qwen/Qwen3-32B", "qwen3-32b"),
        ("nvidia/Qwen3-32B-NVFP4", "nvidia/Qwen3-32B-NVFP4", "qwen3-32b"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("mixtral-8x7", "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("gemma-3-27b", "google/gemma-3-27b-it", "gemma-3-27b"),
        ("gemma-3-27b-it", "google/gemma-3-27b-it", "gemma-3-27b"),
        ("gpt-oss-120b", "openai/gpt-oss-120b", "gpt-oss-120b"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("DeepSeek-V3.2", "deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("kimi-k2", "moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("Kimi-K2-Instruct", "moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("falcon-7b", "tiiuae/falcon-7b", "falcon-7b"),
        ("Qwen3.5-27B", "Qwen/Qwen3.5-27B", "qwen3.5-27b"),
        ("Nemotron-H-56B-Base-8K", "nvidia/Nemotron-H-56B-Base-8K", "nemotron-h-56b"),
        ("AI21-Jamba-1.5-Mini", "ai21labs/AI21-Jamba-1.5-Mini", "jamba-1.5-mini"),
        ("Llama-3_3-Nemotron-Super-49B-v1", "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "nemotron-super-49b"),
        ("MiMo-V2-Flash", "XiaomiMiMo/MiMo-V2-Flash", "mimo-v2-flash"),
        ("whisper-large-v3", "openai/whisper-large-v3", "whisper-large-v3"),
        ("gemma-4-26B-A4B", "google/gemma-4-26B-A4B", "gemma-4-26b-a4b"),
        ("gpt2", "openai-community/gpt2", "gpt2"),
        ("command-r", "CohereForAI/c4ai-command-r-v01", "command-r"),
        ("CohereLabs/c4ai-command-r-v01", "CohereForAI/c4ai-command-r-v01", "command-r"),
    ],
)
def test_a_name_means_one_model(query: str, model_id: str, slug: str) -> None:
    model = load_card(query)
    assert (model.id, model.source) == (model_id, f"card:{slug}")


def test_a_prefix_of_several_cards_lists_them() -> None:
    with pytest.raises(KvplanError) as caught:
        load_card("mistral-7b")
    assert caught.value.code == "ambiguous-model"
    assert caught.value.exit_code == 2
    assert "mistralai/Mistral-7B-v0.1" in caught.value.detail
    assert "write more of the name" in caught.value.help[0]


def test_a_long_list_of_candidates_is_cut() -> None:
    with pytest.raises(KvplanError) as caught:
        load_card("qwen")
    assert len(caught.value.detail) == 13
    assert caught.value.detail[-1].startswith("and ")


@pytest.mark.parametrize(("query", "near"), [("lama-3.1-8b", "llama-3.1-8b"), ("quen3-32b", "qwen3-32b")])
def test_an_unknown_name_suggests_the_nearest(query: str, near: str) -> None:
    with pytest.raises(KvplanError) as caught:
        load_card(query)
    assert caught.value.code == "unknown-model"
    assert f"did you mean {near}?" in caught.value.help


@pytest.mark.parametrize(
    "query", ["", "   ", "/", "-", "x" * 10_000, "../../etc/passwd", "llama\x00", "#", "a#9"]
)
def test_strange_names_are_unknown(query: str) -> None:
    with pytest.raises(KvplanError) as caught:
        load_card(query)
    assert caught.value.code in ("unknown-model", "ambiguous-model")


def test_a_variant_changes_only_what_it_states() -> None:
    base, variant = load_card("qwen2.5-7b"), load_card("Qwen/Qwen2.5-7B-Instruct")
    assert (base.max_model_len, variant.max_model_len) == (131072, 32768)
    assert variant.runs == base.runs
    assert variant.id == "Qwen/Qwen2.5-7B-Instruct"


def test_a_quantised_variant_says_so_and_has_no_guessed_weights() -> None:
    variant = load_card("nvidia/Llama-3.1-8B-Instruct-FP8")
    assert variant.kv_cache_scheme == "fp8"
    assert load_card("llama-3.1-8b").kv_cache_scheme is None
    weights = load_weights("nvidia/Llama-3.1-8B-Instruct-FP8")
    assert (weights.how, weights.total_bytes) == ("unknown", None)


def test_weights_of_a_counted_checkpoint() -> None:
    weights = load_weights("qwen3-32b")
    assert weights.how == "parameter count"
    assert weights.total_bytes == 2 * 32_762_123_264


def test_a_model_from_memory_warns_and_a_verified_one_does_not() -> None:
    assert load_card("llama-3.1-8b").warnings == ()
    assert load_card("codestral-22b").warnings == (
        "the card of mistralai/Codestral-22B-v0.1 is unverified (typed from memory)",
    )
    # The variant's own provenance counts, not its card's.
    assert load_card("deepseek-ai/DeepSeek-R1-Distill-Llama-8B").warnings == (
        "the card of deepseek-ai/DeepSeek-R1-Distill-Llama-8B is unverified (typed from memory)",
    )


def test_loading_twice_gives_the_same_object() -> None:
    assert load_card("llama-3.1-8b") is load_card("meta-llama/Llama-3.1-8B")
    assert load_card("Llama-3.1-8B-Instruct") is load_card("meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.usefixtures("fresh")
def test_one_card_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(folder: str, slug: str) -> bytes:
        read.append(slug)
        return read_packaged(folder, slug)

    monkeypatch.setattr(cards, "read_packaged", counted)
    load_card("meta-llama/Llama-3.1-8B-Instruct")
    assert read == ["llama-3.1-8b"]


def test_a_name_is_found_in_the_text_of_the_index() -> None:
    """As in the parsed one: every name, and none that only a card's line has."""
    index = card_index.shipped_index()
    for key, target in index["names"].items():
        assert card_index._named(key) == target
    for other in (*index["cards"], *index, "", '"', "id", 'qwen3-32b": ', "\n", "é"):
        assert card_index._named(other) == index["names"].get(other)


@pytest.mark.usefixtures("fresh")
def test_a_list_reads_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "read_packaged", None)
    entries = {entry.slug: entry for entry in list_cards()}
    llama = entries["llama-3.1-8b"]
    assert (llama.id, llama.num_layers, llama.max_model_len) == ("meta-llama/Llama-3.1-8B", 32, 131072)
    assert llama.families == {"full_attention": 32}
    assert llama.parameters == 8_030_261_248
    assert llama.verified
    assert "meta-llama/Llama-3.1-8B-Instruct" in llama.variants


@pytest.mark.usefixtures("fresh")
def test_a_card_is_loaded_quickly() -> None:
    load_card("gpt2")  # the index and the families are imported and read
    best = 1.0
    for slug in ("gemma-3-27b", "llama-3.1-8b", "qwen3-32b"):
        cards._packaged.cache_clear()
        cards._model.cache_clear()
        start = time.process_time()
        load_card(slug)
        best = min(best, time.process_time() - start)
    assert best < 0.004


def test_the_index_fits_the_cards() -> None:
    folder = data_dir(card_index.FOLDER)
    stored = (folder / card_index.INDEX).read_text(encoding="utf-8")
    assert stored == card_index.index_text(build_index(folder)), "run python -m scripts.make_cards --index"
    assert json.loads(stored)["names"]


def test_every_name_finds_its_card() -> None:
    folder = data_dir(card_index.FOLDER)
    for name in list_names():
        (target,) = card_index.find_targets(name)
        assert (folder / f"{target.slug}.yaml").is_file(), name


def test_two_cards_cannot_claim_one_name(tmp_path: Path) -> None:
    text = (data_dir(card_index.FOLDER) / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(KvplanError) as caught:
        build_index(tmp_path)
    assert caught.value.code == "duplicate-model-name"


def test_names() -> None:
    assert key_of(" Meta-Llama/Llama_3.1 8B ") == "meta-llama/llama-3.1-8b"
    assert squeezed("llama3.1:8b") == squeezed("llama-3.1-8b")
    assert names_of("a/B", ["c/D", "e"]) == ["a/b", "b", "c/d", "d", "e"]


def test_a_card_from_a_config_reads_back(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "vocab_size": 100,
        "dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = card_from_config(str(tmp_path))
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    model = read_card_file(tmp_path / "mine.yaml")
    assert model.num_layers == 3
    assert model.source == str(tmp_path / "mine.yaml")
    assert [text for text in model.warnings if "unverified" not in text] == [], (
        "a local file may be anybody's"
    )
    assert model.provenance.keys["full_attention"]["num_kv_heads"] == "num_key_value_heads"


@pytest.mark.parametrize("source", ["llama-3.1-8b", "mine.yaml"])
def test_no_card_from_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    text = (data_dir(card_index.FOLDER) / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(KvplanError) as caught:
        card_from_config(source)
    assert caught.value.code == "has-card"


def test_a_folder_with_a_strange_name_makes_a_valid_id(tmp_path: Path) -> None:
    folder = tmp_path / "my model: (v1) é"
    folder.mkdir()
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(card_from_config(str(folder)), encoding="utf-8")
    assert read_card_file(tmp_path / "mine.yaml").id == "my-model-v1"
    assert lint_cards([tmp_path / "mine.yaml"]) == []


def test_no_card_from_a_bad_config(tmp_path: Path) -> None:
    with pytest.raises(KvplanError):
        card_from_config(str(tmp_path / "nothing.json"))
