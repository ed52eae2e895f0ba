"""``ollama show``, ``/api/show``, ``/api/ps`` and ``lms ps`` (text and JSON): what they say of a model's
file, beside what kvplan says of it; and a model read from what Ollama says."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.weights import sources_of
from kvplan.comparison import Verdict
from kvplan.engines.llamacpp.gguf_file.converted import hyper_of, tensors_of
from kvplan.engines.llamacpp.gguf_file.quantise import types_of
from kvplan.errors import KvplanError
from kvplan.files.gguf.shown import read_show
from kvplan.files.logs.listed import listed_in
from tests.recorded import model_of, record

SHOW = """\
  Model
    architecture        {}
    parameters          {}
    context length      {}
    embedding length    {}
    quantization        {}

  Capabilities
    completion

  Parameters
    stop           "<end_of_turn>"
    num_ctx        8192

  License
    Apache License
"""
OF_PEOPLE = {
    # What public pages have of ``ollama show``: 2024 to 2026.
    "llama3.2": ("llama", "3.2B", 131072, 3072, "Q4_K_M"),
    "gemma4:12b": ("gemma4", "11.9B", 262144, 3840, "Q4_K_M"),
    "gemma3:1b": ("gemma3", "999.89M", 32768, 1152, "Q4_K_M"),
    "qwen3:8b": ("qwen3", "8.2B", 40960, 4096, "Q4_K_M"),
}
PROJECTOR = """
  Projector
    architecture        clip
    parameters          454.45M
    embedding length    1152
"""
LMS = (
    "IDENTIFIER          MODEL               STATUS    SIZE        CONTEXT    PARALLEL    DEVICE    TTL\n"
    "qwen/qwen3.8-27b    qwen/qwen3.8-27b    IDLE      17.74 GB    65536      4           Local     \n"
)
INSTANCE: dict[str, Any] = {
    "type": "llm", "modelKey": "qwen/qwen3.8-27b", "format": "gguf", "path": "qwen/qwen3.8-27b",
    "sizeBytes": 17742039110, "architecture": "qwen35", "quantization": {"name": "Q4_K_M", "bits": 4},
    "identifier": "qwen/qwen3.8-27b", "vision": True, "maxContextLength": 262144, "contextLength": 65536,
    "status": "idle", "queued": 0, "parallel": 4,
}  # fmt: skip
"""As LM Studio 2026 lists it."""


def compared(text: str, *model: str, **options: Any) -> kvplan.Comparison:
    return kvplan.compare(*model, log=[text.encode()], **options)


@pytest.mark.parametrize("name", OF_PEOPLE)
def test_what_ollama_shows_of_its_library(name: str) -> None:
    found = compared(SHOW.format(*OF_PEOPLE[name]), name)
    assert found.verdict is Verdict.AGREES, found.reason
    assert {row.name for row in found.rows} == {"parameters", "own_context", "embedding_length"}
    assert found.recognised["context"].startswith("8192")


def test_the_projectors_facts_are_not_the_models() -> None:
    text = SHOW.format(*OF_PEOPLE["llama3.2"])
    assert listed_in(text + PROJECTOR) == listed_in(text + "\n" * PROJECTOR.count("\n"))


def test_an_older_form_is_read() -> None:
    """Of 2024: ``arch``, other widths."""
    facts = {"arch": "llama", "parameters": "8.0B", "quantization": "Q4_0"}
    text = "  Model             \n" + "".join(f"\t{name:20}{value:14}\n" for name, value in facts.items())
    seen = listed_in(text)
    assert seen is not None
    assert seen.rows[0].build == "Q4_0"


def test_another_model_differs_and_one_that_nobody_names_is_asked_for() -> None:
    text = SHOW.format(*OF_PEOPLE["qwen3:8b"])
    assert compared(text, "qwen3:14b").verdict is Verdict.DIFFERS
    with pytest.raises(KvplanError, match="does not say which model"):
        compared(text)


@pytest.mark.parametrize("gpu", ["rtx-3060", "rtx-4090"])
def test_with_a_gpu_it_is_started_with_that_context(gpu: str) -> None:
    found = compared(SHOW.format(*OF_PEOPLE["qwen3:8b"]), "qwen3:8b", gpu=gpu)
    assert any("8,192 tokens" in note for note in found.notes)


@pytest.mark.parametrize("text", [LMS, json.dumps([INSTANCE])], ids=["table", "json"])
def test_what_lm_studio_has_loaded(text: str) -> None:
    """The file with its prediction layer and its vision adapter, to a thousandth."""
    found = compared(text)
    row = found.row("file_bytes")
    assert found.verdict is Verdict.AGREES
    assert isinstance(row.predicted, int)
    assert abs(row.predicted - INSTANCE["sizeBytes"]) * 1000 < row.predicted
    assert found.recognised["requests at once"].startswith("4")
    assert found.recognised["context"].startswith("65536")


def test_a_build_that_is_listed_counts() -> None:
    """Of a name that says another, or none."""
    larger = {**INSTANCE, "quantization": {"name": "Q8_0"}, "sizeBytes": 29_900_000_000}
    assert compared(json.dumps([larger])).verdict is Verdict.AGREES
    assert compared(json.dumps([{**larger, "quantization": {"name": "Q4_K_M"}}])).verdict is Verdict.DIFFERS


def test_a_build_of_mlx_is_not_taken_for_a_gguf() -> None:
    mlx = {**INSTANCE, "format": "safetensors", "path": "mlx-community/Qwen3.8-27B-4bit"}
    with pytest.raises(KvplanError, match="mlx-community"):
        compared(json.dumps([mlx]))


def test_the_json_of_ollamas_list() -> None:
    """The bytes of the table, unrounded; the share as cmd/cmd.go rounds it."""
    model = {"name": "qwen3:8b", "size": 7_500_000_000, "size_vram": 7_500_000_000, "context_length": 16384}
    found = compared(json.dumps({"models": [model]}), gpu="rtx-3090")
    assert found.row("loaded_bytes").reported == 7_500_000_000
    assert found.row("loaded_gpu_percent").predicted == 100
    half = {**model, "size_vram": 3_000_000_000}
    assert compared(json.dumps({"models": [half]}), gpu="rtx-3090").row("loaded_gpu_percent").reported == 40


@cache
def _shown(name: str, mixture: str) -> str:
    return json.dumps(_answer(name, mixture))


def shown(name: str, mixture: str = "q4_k_m") -> dict[str, Any]:
    """A copy of its own: a test may change it."""
    found: dict[str, Any] = json.loads(_shown(name, mixture))
    return found


def _answer(name: str, mixture: str) -> dict[str, Any]:
    """The answer of ``/api/show`` on a published model: the keys of its file, and the tensors that kvplan
    counts."""
    model = model_of(name)
    inventory = sources_of(model).inventory
    assert inventory is not None
    tensors, _ = tensors_of(model, inventory)
    kinds = types_of(tensors, mixture, hyper_of(model, inventory, tensors))
    listed = [
        {"name": one.name, "type": kind.upper(), "shape": [one.columns, one.rows]}
        for one, kind in zip(tensors, kinds, strict=True)
    ]
    return {
        "modelfile": f'# Modelfile generated by "ollama show"\n# FROM {name}\n\n',
        "details": {"quantization_level": mixture.upper(), "parameter_size": ""},
        "model_info": {**record("llamacpp")["keys"][name], "tokenizer.ggml.tokens": None},
        "tensors": listed,
    }


@pytest.mark.parametrize(
    "name", ["Qwen__Qwen3-8B", "google__gemma-3-27b-it", "deepseek-ai__DeepSeek-V2-Lite"]
)
def test_a_model_read_from_ollama_is_the_build(name: str, tmp_path: Path) -> None:
    """Its cache and its weights are those of the build by name, to the byte."""
    if name not in record("llamacpp")["keys"]:
        pytest.skip(f"{name} is not recorded")
    path = tmp_path / "show.json"
    path.write_text(json.dumps(shown(name)), encoding="utf-8")
    asked: dict[str, Any] = {"engine": "llamacpp", "gpu": "a100-sxm-80gb", "tokens": 8192}
    read = kvplan.size(kvplan.load_model(str(path)), **asked)
    named = kvplan.size(model_of(name), quantization="q4_k_m", **asked)
    assert read.per_gpu.kv_bytes == named.per_gpu.kv_bytes
    assert read.budget is not None
    assert named.budget is not None
    weights = [
        next(line.bytes for line in found.budget.lines if line.name == "weights")
        for found in (read, named)
        if found.budget is not None
    ]
    assert weights[0] == weights[1]


def test_a_model_with_parameters_of_its_own_says_so(tmp_path: Path) -> None:
    path = tmp_path / "show.json"
    path.write_text(
        json.dumps({**shown("Qwen__Qwen3-8B"), "parameters": "num_ctx    8192"}), encoding="utf-8"
    )
    assert any("8,192" in warning for warning in kvplan.load_model(str(path)).warnings)


def test_an_array_that_ollama_leaves_out_is_no_guess(tmp_path: Path) -> None:
    """A key without its values is not taken for one that is not there."""
    said = shown("Qwen__Qwen3-8B")
    said["model_info"]["qwen3.attention.head_count_kv"] = None
    path = tmp_path / "show.json"
    path.write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(KvplanError, match="leaves out the array") as caught:
        kvplan.load_model(str(path))
    assert any("verbose" in line for line in caught.value.help)


_LEAF = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8)


@given(
    st.dictionaries(
        st.sampled_from([*INSTANCE, "model_info", "details", "models", "tensors", "size"]), _LEAF
    ),
    st.booleans(),
)
def test_bent_json_is_read_or_is_none(entry: dict[str, Any], as_list: bool) -> None:
    """Never an exception: what is no list is left to the readers of logs."""
    for text in (json.dumps([entry] if as_list else entry), json.dumps({"models": [entry]})):
        listed_in(text)
    listed_in(json.dumps({"model_info": entry, "details": entry, "tensors": [entry]}))


_BENT = (
    _LEAF | st.lists(_LEAF, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "shape"]), _LEAF)
)


@given(
    st.sampled_from([*shown("Qwen__Qwen3-8B")["model_info"], "tokenizer.ggml.model"]), _BENT,
    st.lists(_BENT, max_size=3), st.lists(st.integers(-(2**70), 2**70), max_size=4),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_a_bent_answer_is_a_model_or_an_error(
    key: str, value: Any, tensors: list[Any], shape: list[int]
) -> None:
    """Of ``/api/show``: whatever stands under a key, and in the list of tensors."""
    said = shown("Qwen__Qwen3-8B")
    said["model_info"][key] = value
    said["tensors"] = [*tensors, {"name": "token_embd.weight", "type": "Q4_K", "shape": shape}]
    try:
        model = read_show(said, source="bent")
        kvplan.size(model, engine="llamacpp", gpu="rtx-3060", tokens=1024)
    except KvplanError:
        return
