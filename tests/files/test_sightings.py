"""Which model and GPU an observation is of."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from kvplan.engines.observed import Observation, Row, Setting
from kvplan.engines.observed.printed import parse_count
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card
from kvplan.files.logs import parse_log
from kvplan.files.servers.sightings import gpu_of, model_named, other_model


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
    ("memory", "words"),
    [
        ("139.80", "h200-sxm-141gb (its memory)"),
        ("121.69", "gb10-128gb (its memory)"),
        ("79.19", "h100-sxm-80gb or h100-pcie-80gb (their memory)"),
        ("22.06", None),
    ],
)
def test_gpus_by_their_memory(memory: str, words: str | None) -> None:
    """Those that cannot be told apart are all named; several architectures are nobody."""
    found = gpu_of(Observation("vllm", rows=(Row(total_memory_bytes=parse_count(memory, "GiB")),)))
    assert (None if found is None else found.words) == words
    assert gpu_of(Observation("vllm")) is None


@pytest.mark.parametrize(
    ("engine", "text", "slug"),
    [
        ("vllm", "Config file not found at /x/E=8,N=96,device_name=NVIDIA_H100_PCIe.json", "h100-pcie-80gb"),
        ("sglang", "default MoE kernel config: E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json",
         "h200-sxm-141gb"),
        ("llamacpp", "using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23843 MiB free",
         "rtx-3090-24gb"),
        ("vllm", "device_name=../../etc/passwd.yaml", None),
        ("vllm", "device_name=Nobody_Knows_This.json", None),
    ],
)  # fmt: skip
def test_gpus_by_their_name(engine: str, text: str, slug: str | None) -> None:
    lines = {
        "vllm": "# GPU blocks: 100, # CPU blocks: 10",
        "sglang": "max_total_num_tokens=1000, context_len=2048",
        "llamacpp": "CUDA0 KV buffer size = 1.00 MiB",
    }
    found = gpu_of(parse_log([f"{text}\n{lines[engine]}\n".encode()], engine=engine))
    assert (None if found is None else found.gpu.slug) == slug


def test_a_name_with_another_memory_is_not_believed() -> None:
    """A slice of a card has the card's name in its kernels' files, and less memory."""
    row = Row(total_memory_bytes=parse_count("79.19", "GiB"))
    h200 = {"gpu_name": Setting("NVIDIA_H200")}
    found = gpu_of(Observation("vllm", rows=(row,), settings=h200))
    assert found is not None
    assert found.gpu.slug == "h100-sxm-80gb"
    pcie = gpu_of(Observation("vllm", rows=(row,), settings={"gpu_name": Setting("NVIDIA_H100_PCIe")}))
    assert pcie is not None
    assert pcie.words == "h100-pcie-80gb (its name)"
