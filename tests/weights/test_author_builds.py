"""Builds whose author chooses the types: their sizes beside published files."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api import load_model
from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.budget import file_bytes
from kvplan.engines.llamacpp.gguf_file.authors import TABLE, WHOLE, build_of, kind_of, named_build
from kvplan.engines.llamacpp.gguf_file.converted import converted
from kvplan.engines.llamacpp.gguf_file.ggml_types import BLOCKS
from kvplan.settings import Settings
from scripts.gguf_builds import bands, ends, rows, share, table

PLAIN = {
    # unsloth's files: bytes, as programs that download them pin them by revision and hash (2026).
    "Qwen3.5-4B-GGUF:Q4_K_M": 2_740_937_888,
    "Qwen3.5-4B-GGUF:Q6_K": 3_525_956_768,
    "Qwen3.5-9B-GGUF:Q4_K_M": 5_680_522_464,
    "Qwen3.6-27B-GGUF:Q4_K_M": 16_817_244_384,
    "Qwen3.6-27B-GGUF:Q6_K": 22_523_238_624,
    "gemma-4-E2B-it-GGUF:Q4_K_M": 3_106_738_272,
    "gemma-4-E4B-it-GGUF:Q4_K_M": 4_977_171_584,
    "gemma-4-12b-it-GGUF:Q4_K_M": 7_121_861_440,
    "gemma-4-12b-it-GGUF:Q6_K": 9_786_021_280,
    "gemma-4-31B-it-GGUF:Q4_K_M": 18_323_733_440,
    # as listed, in millions
    "gemma-4-31B-it-GGUF:Q3_K_M": 14_737_000_000,
    "gemma-4-31B-it-GGUF:Q5_K_M": 21_658_000_000,
    "gemma-4-31B-it-GGUF:Q6_K": 25_201_000_000,
    "gemma-4-31B-it-GGUF:Q8_0": 32_636_000_000,
    # llama-quantize's own
    "Qwen3-8B-GGUF:Q4_K_M": 5_027_783_296,
    "Qwen3-14B-GGUF:Q4_K_M": 9_001_752_960,
    "gemma-3-4b-it-GGUF:Q4_K_M": 2_489_894_016,
    "gemma-3-12b-it-GGUF:Q4_K_M": 7_300_778_336,
    "granite-4.1-8b-GGUF:Q4_K_M": 5_347_915_136,
    "granite-4.1-30b-GGUF:Q4_K_M": 17_490_241_472,
}
KEYS = {"Qwen3.5": 10_990_000, "Qwen3.6": 10_990_000, "gemma-4": 15_840_000, "Qwen3-": 5_960_000,
        "gemma-3": 6_545_000, "granite": 3_575_000}  # fmt: skip
"""Bytes of a file's keys, of which the words of its vocabulary are most."""


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_build_is_the_published_file(name: str) -> None:
    """What is left of the file beside its tensors are its keys, as many bytes in all of a family."""
    found = load_model(f"unsloth/{name}")
    tensors = file_bytes(found, Settings())
    assert tensors is not None
    keys = next(size for family, size in KEYS.items() if name.startswith(family))
    assert abs(PLAIN[name] - tensors - keys) <= (600_000 if PLAIN[name] % 1_000_000 == 0 else 300_000)


def test_another_publishers_build_is_llama_quantizes() -> None:
    own, other = (
        load_model(f"{who}/gemma-4-12b-it-GGUF:Q4_K_M") for who in ("unsloth", "lmstudio-community")
    )
    assert file_bytes(own, Settings()) != file_bytes(other, Settings())
    assert build_of(other, "q4_k_m") == named_build("q4_k_m")


def test_the_table_is_that_of_the_published_files() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "python -m scripts.gguf_builds"
    assert len(rows()) >= 100


def test_every_published_file_is_inside_and_most_are_without_their_own_model() -> None:
    """The band of a file whose model gave no row holds seven of eight of them."""
    shares = [(row, share(row)) for row in rows()]
    inside = 0
    for row, one in shares:
        build = named_build(row.build)
        assert build.least <= one <= build.most, row
        others = dict(bands((other.build, found) for other, found in shares if other.model != row.model))
        found = others.get(row.build) or others.get(kind_of(row.build))
        assert found is not None
        least, _, most = ends(found)
        inside += least <= one <= most
    assert inside * 8 >= len(shares) * 7


@pytest.mark.parametrize("word", ["Q4_K_L", "q6_k_l", "Q3_K_XL"])
def test_embedding_and_output_of_the_l_builds_are_q8_0(word: str) -> None:
    model = load_model("qwen3-8b")
    inventory = sources_of(model).inventory
    assert inventory is not None
    build = named_build(word)
    assert (build.least, build.most, build.files) == (WHOLE, WHOLE, 0)
    with_ends = converted(model, inventory, build.mixture, told=build.told).bytes_by_name
    plain = converted(model, inventory, build.mixture).bytes_by_name
    assert {name for name in plain if plain[name] != with_ends[name]} == {
        "token_embd.weight",
        "output.weight",
    }
    numbers, size = BLOCKS["q8_0"]
    assert with_ends["output.weight"] == 151_936 * 4096 * size // numbers


def test_a_dynamic_build_has_a_pool_with_an_interval() -> None:
    found = kvplan.size(
        "unsloth/Qwen3-14B-GGUF:UD-Q4_K_XL", engine="llamacpp", gpu="rtx-3090-24gb", tokens=8192
    )
    assert found.budget is not None
    weights = found.budget.lines[0]
    assert weights.low_bytes < weights.bytes < weights.high_bytes
    assert found.budget.kv_pool_low_bytes < found.budget.kv_pool_bytes
    assert any("published files" in line for line in found.warnings)
