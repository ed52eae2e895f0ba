"""Names of GGUF builds are doors to llama.cpp's rules: Hugging Face, LM Studio, ollama."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.engines.llamacpp.gguf_file.authors import named_build
from kvplan.errors import KvplanError
from kvplan.files.cards.gguf_names import gguf_name
from kvplan.files.cards.index import packaged_index
from kvplan.files.cards.ollama_names import OLLAMA
from kvplan.model import GGUF_MIXTURE
from tests.laws.sampling import for_each

NAMES: dict[str, tuple[str, str | None] | None] = {
    "bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M": ("meta-llama/Llama-3.3-70B-Instruct", "q4_k_m"),
    "bartowski/meta-llama_Llama-3.3-70B-Instruct-GGUF:IQ4_XS": (
        "meta-llama/Llama-3.3-70B-Instruct",
        "iq4_xs",
    ),
    "lmstudio-community/Qwen3-32B-GGUF@q8_0": ("Qwen/Qwen3-32B", "q8_0"),
    "unsloth/gpt-oss-20b-GGUF:F16": ("openai/gpt-oss-20b", "f16"),
    "mradermacher/Qwen3-32B-i1-GGUF": ("Qwen/Qwen3-32B", "q4_k_m"),
    "ollama:llama3.3:70b-instruct-q4_K_M": ("meta-llama/Llama-3.3-70B-Instruct", "q4_k_m"),
    "ollama:llama3.3": ("meta-llama/Llama-3.3-70B-Instruct", "q4_k_m"),
    "ollama:qwen3:30b-a3b-q8_0": ("Qwen/Qwen3-30B-A3B-Thinking-2507", "q8_0"),
    "ollama:gpt-oss": ("openai/gpt-oss-20b", "bf16"),
    "gpt-oss:120b": ("openai/gpt-oss-120b", "bf16"),
    "deepseek-r1:32b": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "q4_k_m"),
    "deepseek-r1": ("deepseek-ai/DeepSeek-R1", None),
    "llama3.1:8b": ("meta-llama/Llama-3.1-8B-Instruct", "q4_k_m"),
    "qwen3:8b-q4_K_M": ("Qwen/Qwen3-8B", "q4_k_m"),
    "llama3.2:1b": ("meta-llama/Llama-3.2-1B-Instruct", "q8_0"),
    "gemma2:9b": ("google/gemma-2-9b-it", "q4_0"),
    "registry.ollama.ai/library/phi4:14b-fp16": ("microsoft/phi-4", "f16"),
    "lmstudio-community/gpt-oss-20b-GGUF": ("openai/gpt-oss-20b", "mxfp4_moe"),
    "gpt-oss:120b-cloud": None,
    "deepseek-r1:99b": None,
    "ollama:nobody": None,
    "ollama:gemma3:27b-it-qat": None,
}


@pytest.mark.parametrize(("name", "said"), NAMES.items())
def test_a_name_says_a_card_and_a_mixture(name: str, said: tuple[str, str] | None) -> None:
    if said is None:
        with pytest.raises(KvplanError):
            kvplan.load_model(name)
        return
    model, base = kvplan.load_model(name), kvplan.load_model(said[0])
    assert (model.facts.get(GGUF_MIXTURE), model.runs) == (said[1], base.runs)
    assert said[1] is None or f"the layers of {base.id}" in model.warnings[0]


@for_each("family", OLLAMA)
def test_the_library_names_cards(family: str) -> None:
    one = OLLAMA[family]
    assert one.usual in one.sizes
    assert set(one.own) <= set(one.sizes)
    assert set(one.sizes.values()) <= set(packaged_index()["names"])


def test_the_answer_is_that_of_the_mixture_by_name() -> None:
    """The same bytes as ``-q q4_k_m`` of the card, and no other engine takes them for its own."""
    gpu: dict[str, Any] = {
        "gpu": "rtx-3090-24gb",
        "pipeline_parallel_size": 2,
        "tokens": 8192,
        "engine": "llamacpp",
    }
    named = kvplan.size("ollama:llama3.3:70b-instruct-q4_K_M", **gpu)
    asked = kvplan.size("llama-3.3-70b", quantization="q4_k_m", **gpu)
    assert named.budget is not None
    assert asked.budget is not None
    assert named.budget.lines[0] == asked.budget.lines[0]
    other = kvplan.size("ollama:llama3.3", engine="vllm", gpu="h200-sxm-141gb", tokens=8192)
    assert other.pool is None
    assert any("is a GGUF file" in line for line in other.warnings)


def test_a_mixture_is_not_said_twice() -> None:
    with pytest.raises(KvplanError, match="names a file of q"):
        kvplan.size(
            "bartowski/Qwen3-32B-GGUF:Q4_K_M",
            engine="llamacpp",
            gpu="rtx-3090-24gb",
            quantization="q8_0",
            tokens=4096,
        )


@pytest.mark.parametrize("word", ["UD-TQ1_0", "ud_nvfp4", "Q4_K_XXL"])
def test_a_mixture_of_an_author_s_own_is_not_taken_for_one_of_llama_cpp(word: str) -> None:
    """Which type each tensor has is no public rule, and no published file tells its size."""
    with pytest.raises(KvplanError) as caught:
        named_build(word)
    assert caught.value.code == "bad-setting"


def test_unsloth_s_mxfp4_is_one_of_its_own() -> None:
    assert gguf_name("unsloth/qwen3.6-35b-a3b-gguf:mxfp4_moe") == ("unsloth/qwen3.6-35b-a3b", "ud_mxfp4_moe")
    assert gguf_name("unsloth/gpt-oss-20b-gguf:mxfp4_moe") == ("unsloth/gpt-oss-20b", "mxfp4_moe")


def test_the_mixture_that_a_name_says_may_be_said_again() -> None:
    name = "bartowski/Llama-3.3-70B-Instruct-GGUF"
    asked = kvplan.size(name, engine="llamacpp", gpu="h200", tokens=4096, quantization="Q4_K_M")
    assert asked.weights == kvplan.size(name, engine="llamacpp", gpu="h200", tokens=4096).weights


PUBLISHED = {
    "gemma3:1b": "815MB", "gemma3:27b": "17GB", "qwq": "20GB", "deepseek-r1:7b": "4.7GB",
    "deepseek-r1:671b": "404GB", "llama3.3": "43GB", "llama3.2": "2.0GB", "llama3.2:1b": "1.3GB",
    "phi4": "9.1GB", "phi4-mini": "2.5GB", "granite3.3": "4.9GB", "llama4:scout": "67GB",
    "llama4:maverick": "245GB", "gemma2:9b": "5.5GB", "codellama": "3.8GB", "gemma2:27b": "16GB",
    "magistral": "14GB", "devstral": "14GB", "starcoder2": "1.7GB", "deepseek-coder:6.7b": "3.8GB",
    "dolphin3": "4.9GB", "hermes3": "4.7GB", "granite4": "2.1GB", "falcon3": "4.6GB", "cogito": "4.9GB",
    "command-r7b": "5.1GB", "exaone3.5": "4.8GB", "deepseek-coder-v2": "8.9GB",
}  # fmt: skip
"""What `ollama run` fetches: ollama/ollama README.md of 2024-08 and 2025-09, from "magistral" on lines of
`ollama list` that were published. With vision the file has the encoder too, which is left out here."""


HEADS = {
    "ollama:deepseek-coder-v2": (27, 16, 276_480),
    "deepseek-v2:16b": (27, 16, 276_480),
    "bartowski/DeepSeek-Coder-V2-Lite-Instruct-GGUF:Q4_K_M": (27, 16, 276_480),
    "deepseek-v3:671b": (61, 128, 4_997_120),
    "deepseek-v3.1:671b": (61, 1, 70_272),
    "unsloth/DeepSeek-V3-0324-GGUF:Q4_K_M": (61, 1, 70_272),
}
"""Layers, heads that are cached, bytes of a token in f16: K of 128 + 64 and V of 128 of each head in files
that are older than llama.cpp's cache of latents, else 576 numbers."""


@pytest.mark.parametrize(("name", "said"), HEADS.items())
def test_older_files_cache_every_head(name: str, said: tuple[int, int, int]) -> None:
    """486 MiB were said of what printed 4,320: deepseek-coder-v2:16b, 16,384 cells."""
    layers, heads, each = said
    model = kvplan.load_model(name)
    assert model.num_layers == layers
    found = kvplan.size(model, engine="llamacpp", tokens=16384)
    assert found.per_gpu.bytes_per_token == each
    assert found.per_gpu.kv_bytes == each * 16384
    assert each == layers * (heads * 320 if heads > 1 else 576) * 2
    whole = any("K and V of every head" in line for line in model.warnings)
    assert whole is (heads > 1 or "0324" in name)


@pytest.mark.parametrize(("name", "said"), PUBLISHED.items())
def test_the_library_s_files_have_the_published_sizes(name: str, said: str) -> None:
    """In the figures that the page has; a file's vocabulary is beside its tensors."""
    found = kvplan.size(f"ollama:{name}", engine="llamacpp", gpu="8xmi300x", tokens=1024).weights
    assert found is not None
    number, unit = float(said[:-2]), {"MB": 10**6, "GB": 10**9}[said[-2:]]
    last = 10 ** -len(said[:-2].partition(".")[2])
    assert abs(found.total_bytes / unit - number) <= 1.5 * last + 0.02 * number
