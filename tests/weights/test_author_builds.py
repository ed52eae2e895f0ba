"""Builds whose author chooses the types: their sizes beside published files."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api import load_model
from kvplan.architectures.weights import sources_of
from kvplan.engines.llamacpp.gguf_file.authors import TABLE, WHOLE, kind_of, named_build
from kvplan.engines.llamacpp.gguf_file.converted import converted
from kvplan.engines.llamacpp.gguf_file.ggml_types import BLOCKS
from scripts.gguf_builds import bands, ends, rows, share, table


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
    with_ends = converted(model, inventory, build.mixture, ends=build.ends).bytes_by_name
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
