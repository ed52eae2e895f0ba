"""EAGLE-3 heads under llama.cpp (``--spec-type draft-eagle3``): their weights, cache and graphs, and what is
no head. ggml-org/llama.cpp at 0c1e57098: src/models/eagle3.cpp, conversion/llama.py, common/common.h
(need_n_rs_seq)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api.launching import import_launches, launched_plans
from kvplan.engines.llamacpp.gguf_file.heads import head_bytes, is_head
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.report.export import export
from kvplan.results import SizeResult
from tests.budget.test_drafts import EAGLE3, EMBEDDING
from tests.files.gguf_files import GQA, gguf, write

BUILT = 1_900_308_480
"""Bytes of that head's parameters as vLLM 0.32 built it in 16 bits, with an embedding of its own."""
NORMS = 4 * 4096 * 2
"""Bytes that they take more in 32 bits."""
PLAN = """
kvplan: plan/v1
model: llama-3.1-8b
engine: llamacpp
gpu: rtx-4090
serve:
  quantization: q4_k_m
  ctx_size: 8192
  parallel: 1
  speculative_config: {{model: {}, method: {}, num_speculative_tokens: 3}}
"""
WITH_HEAD: dict[str, Any] = {"speculative_method": "eagle3", "num_speculative_tokens": 3}


def asked(model: str = "llama-3.1-8b", **more: Any) -> SizeResult:
    return kvplan.size(model, engine="llamacpp", gpu="h100", tokens=8192, **more)


def line(found: SizeResult, name: str) -> int:
    assert found.budget is not None
    return next((one.bytes for one in found.budget.lines if one.name == name), 0)


@pytest.fixture(scope="module")
def head() -> Model:
    return kvplan.load_model(EAGLE3)


def test_a_heads_file_has_what_vllm_builds(head: Model) -> None:
    """Matrices in 16 bits, norms in 32, the table of words in 64; its embedding is the model's."""
    sizes = head_bytes(head, kvplan.load_model("llama-3.1-8b"))
    assert sum(sizes.values()) == BUILT - EMBEDDING + NORMS
    assert sizes["d2t"] == 32_000 * 8
    assert is_head(head)


@pytest.mark.parametrize("more", [{}, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}])
def test_what_a_head_adds(head: Model, more: dict[str, Any]) -> None:
    """One layer of cache in f16, whatever the model's type; its weights; hidden states that three layers
    hand over."""
    plain, found = asked(**more), asked(speculative_model=head, **WITH_HEAD, **more)
    added = sum(head_bytes(head, kvplan.load_model("llama-3.1-8b")).values())
    assert found.per_gpu.kv_bytes - plain.per_gpu.kv_bytes == 8192 * 2 * 8 * 128 * 2
    assert line(found, "weights") - line(plain, "weights") == added
    assert line(found, "compute buffer") - line(plain, "compute buffer") == 3 * 4096 * 512 * 4
    assert line(found, "draft's compute") >= (3 * 4096 + 4096) * 512 * 4


def test_states_are_kept_for_every_drafted_token(head: Model) -> None:
    """Of models whose graph can go back."""
    plain, found = asked("qwen3.6-27b"), asked("qwen3.6-27b", speculative_model=head, **WITH_HEAD)
    assert found.per_gpu.fixed_bytes_per_request == 4 * plain.per_gpu.fixed_bytes_per_request > 0


def _file(folder: Path) -> Path:
    """A small head with all of its tensors."""
    np = pytest.importorskip("numpy")
    path = folder / "eagle3-llama.gguf"
    writer = gguf.GGUFWriter(str(path), "eagle3")
    for key, value in {**GQA, "block_count": 1, "vocab_size": 128}.items():
        writer.add_uint32(f"eagle3.{key}", value)
    for name, rows, columns in (
        ("fc.weight", 64, 192),
        ("output.weight", 32, 64),
        ("blk.0.attn_q.weight", 64, 128),
    ):
        writer.add_tensor(name, np.zeros((rows, columns), np.float16))
    writer.add_tensor("token_embd.weight", np.zeros((128, 64), np.float16))
    writer.add_tensor("d2t", np.zeros(32, np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_file_of_a_head_drafts_and_is_no_model(tmp_path: Path) -> None:
    """Its embedding lies in host memory, all else on the GPU."""
    file = _file(tmp_path)
    with pytest.raises(KvplanError, match="speculative-model"):
        kvplan.load_model(str(file))
    found = asked(speculative_model=str(file), **WITH_HEAD)
    assert line(found, "weights") - line(asked(), "weights") == 2 * (64 * 192 + 32 * 64 + 64 * 128) + 32 * 8
    words = f"llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 8192 -md {file} --spec-type draft-eagle3"
    (plan,) = launched_plans(import_launches(words), gpu="h100")
    assert plan.settings.speculative_model is not None
    assert is_head(plan.settings.speculative_model)
    assert plan.settings.speculative_method == "eagle3"


def test_a_damaged_head_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "eagle3", {**GQA, "block_count": 1}, name="eagle3-cut.gguf")
    found = asked(speculative_model=str(file), **WITH_HEAD)
    assert found.budget is None
    assert any("lists no tensors" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (WITH_HEAD, "none that can be read here"),
        ({**WITH_HEAD, "speculative_model": "qwen3-0.6b"}, "no EAGLE-3 head"),
        (
            {**WITH_HEAD, "speculative_method": "draft_model", "speculative_model": EAGLE3},
            "is an EAGLE-3 head",
        ),
        ({**WITH_HEAD, "speculative_method": "dflash"}, "not known"),
    ],
)
def test_other_drafts_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        asked(**options)
    assert caught.value.help


@pytest.mark.parametrize("draft", ["./eagle3-llama.gguf", "qwen3-0.6b"])
def test_a_draft_is_written_as_the_server_takes_it(draft: str, tmp_path: Path) -> None:
    _file(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.format(draft, "eagle3" if "eagle3" in draft else "draft_model"), encoding="utf-8")
    command = export(kvplan.load_plans(path)[0], "command", model=kvplan.load_model("llama-3.1-8b"))
    kind, file = (
        ("draft-eagle3", "eagle3-llama") if "eagle3" in draft else ("draft-simple", "Qwen3-0.6B-Q4_K_M")
    )
    for words in (f"--spec-type {kind}", "--spec-draft-n-max 3", f"{file}.gguf"):
        assert words in command
