"""Which model and GPU an observation is of."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from kvplan.errors import KvplanError
from kvplan.observation import Observation, Row, Setting
from kvplan.readers.cards import load_card
from kvplan.readers.printed import parse_count
from kvplan.readers.sightings import gpu_of, model_named, other_model


def _named(name: str | None, key: str = "model") -> Observation:
    return Observation("vllm", settings=MappingProxyType({key: Setting(name)}))


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Llama-3.1-8B",
        "/models/meta-llama/Llama-3.1-8B/",
        "C:\\models\\Llama-3.1-8B",
        "/root/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B/snapshots/0123abc",
        "/models/llama-3.1-8b.gguf",
    ],
)
def test_names_as_servers_write_them(name: str) -> None:
    assert model_named(_named(name)).id == "meta-llama/Llama-3.1-8B"


def test_a_served_name_counts_where_the_model_is_not_said() -> None:
    assert model_named(_named("qwen3-32b", "served_model_name")).id == "Qwen/Qwen3-32B"


@pytest.mark.parametrize("name", [None, "", "   "])
def test_no_name(name: str | None) -> None:
    with pytest.raises(KvplanError, match="does not name its model"):
        model_named(_named(name))


def test_a_path_in_a_log_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(KvplanError) as caught:
        model_named(_named(str(tmp_path)))
    assert caught.value.code == "unknown-model"


def test_another_model_than_the_one_compared() -> None:
    llama = load_card("llama-3.1-8b")
    assert other_model(_named("Qwen/Qwen3-32B"), llama) == "Qwen/Qwen3-32B"
    assert other_model(_named("meta-llama/Llama-3.1-8B"), llama) is None
    assert other_model(_named("nobody/nothing"), llama) is None


@pytest.mark.parametrize(
    ("memory", "slug"),
    [("139.80", "h200-sxm-141gb"), ("121.69", "gb10-128gb"), ("79.19", "h100-pcie-80gb"), ("22.06", None)],
)
def test_gpus_by_their_memory(memory: str, slug: str | None) -> None:
    observation = Observation("vllm", rows=(Row(total_memory_bytes=parse_count(memory, "GiB")),))
    found = gpu_of(observation)
    assert (None if found is None else found.slug) == slug
    assert gpu_of(Observation("vllm")) is None
