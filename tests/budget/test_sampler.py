"""What sampling takes and what runners keep for their inputs, against allocations of vLLM 0.33 on an H100.

Bytes are those of the allocator's own record of the starts h100-033-… of tests/data/measured.yaml, FlashInfer
0.7.2.post1 installed, defaults of the server: 8,192 tokens, 1,024 requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.memory.coefficients import vllm_coefficients
from kvplan.engines.vllm.memory.cold_compile import compile_line
from kvplan.engines.vllm.memory.profile_peak import (
    activation_peak,
    flashinfer_samples,
    kernel_buffer,
    sampled,
    sampler_peak,
)
from kvplan.engines.vllm.memory.profile_run import Load
from kvplan.engines.vllm.memory.rank_budget import input_buffers
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import list_gpus
from kvplan.results import SizeResult
from kvplan.units import MIB
from tests.budget.test_formula import LOAD, SMALL

SERVER = replace(LOAD, max_num_seqs=1024, max_num_batched_tokens=8192, multiprocessors=132, takes_tokens=True)
LLAMA, QWEN, GEMMA, SMALL_QWEN = (128_256, 4096), (248_320, 4096), (262_208, 3840), (248_320, 1024)
"""Vocabulary and hidden size of Llama-3.1-8B, Qwen3.5-9B, gemma-3-12b and Qwen3.5-0.8B."""


def shape(vocabulary: int, hidden: int) -> Shape:
    return replace(SMALL, vocab_size=vocabulary, hidden_size=hidden, element_bytes=2)


@pytest.mark.parametrize(
    ("runner", "model", "peak", "besides"),
    [
        (V2, LLAMA, 1_919_989_248, 0),
        (V2, (152_064, 3584), 2_248_193_536, 0),
        (V2, GEMMA, 3_838_359_040, 0),
        (V2, QWEN, 3_669_014_016, 30 * MIB),
        (V1, LLAMA, 1_997_588_480, 0),
        (V1, GEMMA, 3_986_737_152, 0),
        (V1, QWEN, 3_809_527_808, 30 * MIB),
        (V1, SMALL_QWEN, 3_734_030_336, 15 * MIB),
    ],
)
def test_the_peak_of_eight_starts(runner: str, model: tuple[int, int], peak: int, besides: int) -> None:
    """To 12 MiB: FlashInfer's own MiB, and what the allocator rounds up. besides: what linear attention keeps
    of its kernels' warm-up."""
    known = vllm_coefficients((0, 33), runner)
    found = sampler_peak(shape(*model), SERVER, known) + besides
    assert 0 <= peak - found <= 12 * MIB


def test_what_compiling_takes_beside_the_sampler_s_tables() -> None:
    """Llama-3.1-8B without FlashInfer: the embedding's copy and two of the hidden states are the peak."""
    known = vllm_coefficients((0, 33), V2)
    load = replace(SERVER, fused_sampler=False, compile_cache="cold", passes=((1, 0),))
    line = compile_line(shape(*LLAMA), load, known)
    assert line is not None
    found = line.bytes + activation_peak(shape(*LLAMA), load, known)
    assert 0 <= 1_184_952_832 - found <= MIB


@pytest.mark.parametrize("vocabulary", [LLAMA[0], GEMMA[0], QWEN[0]])
def test_the_kernel_s_buffer_to_the_byte(vocabulary: int) -> None:
    bytes_seen = {LLAMA[0]: 67_719_168, GEMMA[0]: 138_445_824, QWEN[0]: 131_112_960}
    assert (
        kernel_buffer(shape(vocabulary, 4096), SERVER, vllm_coefficients((0, 33), V1))
        == bytes_seen[vocabulary]
    )


@pytest.mark.parametrize(
    ("model", "length", "made"),
    [
        (LLAMA, 131_072, 134_600_704),
        (GEMMA, 131_072, 130_406_400),
        (QWEN, 262_144, 168_352_256),
        (SMALL_QWEN, 262_144, 118_020_608),
    ],
)
def test_what_v1_makes_between_loading_and_profiling(model: tuple[int, int], length: int, made: int) -> None:
    """Bytes more than "Model loading took", less a workspace of 32 MiB that is there before the model."""
    load = replace(SERVER, max_model_len=length)
    kept = input_buffers(shape(*model), load, vllm_coefficients((0, 33), V1))
    assert 0 <= made - 32 * MIB - kept <= MIB


def test_v2_keeps_embeddings_for_images_alone() -> None:
    """Qwen2.5-VL-7B made 56 MiB more than Qwen2.5-7B, whose shape its decoder has."""
    known = vllm_coefficients((0, 33), V2)
    of_text, of_images = (replace(SERVER, takes_tokens=takes) for takes in (True, False))
    assert input_buffers(shape(152_064, 3584), of_text, known) == 0
    assert input_buffers(shape(152_064, 3584), of_images, known) == 8192 * 3584 * 2 == 56 * MIB


def test_a_draft_s_states_stay_under_v2() -> None:
    """The EAGLE-3 start made 64 MiB more than the one without a draft; at the sampler's peak nothing more."""
    known = vllm_coefficients((0, 33), V2)
    plain, drafting = SERVER, replace(SERVER, drafts=3, reads_hidden=True, own_head=True)
    more = input_buffers(shape(*LLAMA), drafting, known) - input_buffers(shape(*LLAMA), plain, known)
    assert more == 64 * MIB
    assert sampler_peak(shape(*LLAMA), drafting, known) == sampler_peak(shape(*LLAMA), plain, known)


def test_v1_s_proposer_has_two_buffers_of_its_own() -> None:
    """hidden_states and inputs_embeds of the batch (v1/spec_decode/llm_base_proposer.py)."""
    known = vllm_coefficients((0, 28), V1)
    drafting = replace(SERVER, drafts=3, reads_hidden=True, predicts=True)
    more = input_buffers(shape(*LLAMA), drafting, known) - input_buffers(shape(*LLAMA), SERVER, known)
    assert more == 2 * 8192 * 4096 * 2
    assert input_buffers(shape(*LLAMA), drafting, vllm_coefficients((0, 26), V1)) == 0


@pytest.mark.parametrize("runner", [V1, V2])
def test_until_0_26_the_inputs_are_not_taken_off(runner: str) -> None:
    load = replace(SERVER, max_model_len=131_072, takes_tokens=False)
    assert input_buffers(shape(*LLAMA), load, vllm_coefficients((0, 26), runner)) == 0
    assert input_buffers(shape(*LLAMA), load, vllm_coefficients((0, 27), runner)) > 0


@given(st.integers(1, 2048), st.integers(1, 400), st.integers(1, 300_000))
def test_the_kernel_s_buffer_has_bounds(seqs: int, multiprocessors: int, vocabulary: int) -> None:
    """Never more rows than multiprocessors, never fewer than requests up to those; none below eight."""
    load = replace(SERVER, max_num_seqs=seqs, multiprocessors=multiprocessors)
    found = kernel_buffer(shape(vocabulary, 64), load, vllm_coefficients((0, 24), V1))
    rows, rest = divmod(found, vocabulary * 4)
    assert not rest
    assert rows == 0 if seqs < 8 else min(seqs, multiprocessors) <= rows <= multiprocessors


@given(st.integers(1, 2048), st.integers(1, 16_384), st.booleans())
def test_sampling_grows_with_requests_and_vocabulary(seqs: int, tokens: int, fused: bool) -> None:
    def peak(load: Load, vocabulary: int = 32_000) -> int:
        return sampler_peak(shape(vocabulary, 512), load, vllm_coefficients((0, 33), V2))

    load = replace(SERVER, max_num_seqs=seqs, max_num_batched_tokens=tokens, fused_sampler=fused)
    assert sampled(load) == min(seqs, tokens)
    assert peak(load) <= peak(replace(load, max_num_seqs=seqs + 1))
    assert peak(load) < peak(load, 64_000)
    assert peak(replace(load, samples=False)) == tokens * 512 * 2


def test_flashinfer_samples_on_nvidia_s_larger_gpus() -> None:
    few = {gpu.slug for gpu in list_gpus() if gpu.vendor == "nvidia" and not flashinfer_samples(gpu)}
    assert few
    assert all((load_gpu(slug).multiprocessors or 0) <= 16 for slug in few)
    assert not any(flashinfer_samples(gpu) for gpu in list_gpus() if gpu.vendor == "amd")
    assert flashinfer_samples(None)


@pytest.mark.parametrize("model", ["google/gemma-3-12b-it", "google/gemma-3-27b-it"])
@pytest.mark.parametrize("version", ["0.26", "0.27", "0.33"])
def test_text_alone_needs_no_kernel_for_images_since_0_27(model: str, version: str) -> None:
    """Seen on an H100 with 0.33: FLASH_ATTN where nothing but text is served, and its sums in the graphs."""

    def backend(**more: Any) -> str:
        found: SizeResult = kvplan.size(model, engine=f"vllm@{version}", gpu="h100", **more)
        return str(found.settings["attention_backend"])

    assert "TRITON" in backend()
    assert (backend(language_model_only=True) == "FLASH_ATTN") == (version != "0.26")
