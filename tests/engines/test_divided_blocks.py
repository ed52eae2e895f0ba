"""A rank never has a part of a block of weights that share a scale, where the engine stops at it.

Reported: vllm-project/vllm issues 17569 (Qwen3-235B-A22B-FP8 over 8 GPUs), 52997, 54178; sgl-project/sglang
issues 3345, 10852, 26107.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import make_settings
from kvplan.deployment.counts import ask
from kvplan.dtypes import BFLOAT16
from kvplan.engines.base import CUT_BLOCKS
from kvplan.engines.budget import choose
from kvplan.results import Refusal
from kvplan.units import ceil_div, round_up
from kvplan.weights.formats import NVFP4, fp8_block, grouped
from kvplan.weights.inventory import Block, Dim, Inventory, Role, Split, Tensor
from kvplan.weights.ranks import ExpertBlocks, Parallel, tensor_bytes
from kvplan.weights.shares import Side, cuts

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": []}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
PACKED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
        }
    },
    "ignore": ["lm_head"],
}
DENSE: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
EXPERTS: dict[str, Any] = {
    **DENSE,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 1536,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
GPUS = {"h200": True, "l40s": True, "b200": True, "mi300x": True, "a100-80gb": False}
"""Whether Triton's kernels run FP8 there."""


def refused(config: dict[str, Any], quantisation: dict[str, Any], engine: str, **more: Any) -> Refusal | None:
    made = {**config, "quantization_config": quantisation}
    found = kvplan.size(made, engine=engine, tokens=1024, **more).refusal
    return found if found is not None and "share a scale" in found.message else None


@given(
    width=st.integers(1, 60).map(lambda n: n * 64),
    tp=st.sampled_from((1, 2, 4, 8)),
    engine=st.sampled_from(("vllm@0.8", "vllm@0.20", "vllm@0.28", "vllm@0.33", "sglang", "sglang@0.5.10")),
)
def test_a_down_projection_is_divided_in_whole_blocks(width: int, tp: int, engine: str) -> None:
    config = {**DENSE, "intermediate_size": width}
    if width % tp:
        return
    found = refused(config, FP8, engine, tensor_parallel_size=tp, gpu="h200")
    assert (found is not None) == (tp > 1 and width // tp % 128 != 0)
    if found is not None:
        (way,) = found.help
        better = int(way.removeprefix("--tp "))
        assert tp % better == 0
        assert not refused(config, FP8, engine, tensor_parallel_size=better, gpu="h200")


@given(
    width=st.integers(1, 48).map(lambda n: n * 32),
    tp=st.sampled_from((1, 2, 4, 8)),
    release=st.sampled_from(("0.11", "0.20", "0.28", "0.29", "0.33")),
    gpu=st.sampled_from(sorted(GPUS)),
    experts_whole=st.booleans(),
)
def test_experts_are_refined_since_0_29(
    width: int, tp: int, release: str, gpu: str, experts_whole: bool
) -> None:
    config = {**EXPERTS, "moe_intermediate_size": width}
    rank = width if experts_whole else width // tp
    if not experts_whole and width % tp:
        return
    found = refused(
        config,
        FP8,
        f"vllm@{release}",
        tensor_parallel_size=tp,
        gpu=gpu,
        enable_expert_parallel=experts_whole,
    )
    refines = release >= "0.29" and GPUS[gpu] and gcd(128, rank, 4096) >= 32
    assert (found is not None) == (rank % 128 != 0 and not refines)


@given(
    width=st.integers(1, 48).map(lambda n: n * 32),
    tp=st.sampled_from((1, 2, 4, 8)),
    gpu=st.sampled_from(sorted(GPUS)),
    experts_whole=st.booleans(),
    asked=st.sampled_from((None, "triton")),
)
def test_a_layout_that_leaves_the_fast_kernels_says_so(
    width: int, tp: int, gpu: str, experts_whole: bool, asked: str | None
) -> None:
    """Smaller blocks run on Triton alone; only where the GPU has other kernels, and nobody asked for it."""
    config = {**EXPERTS, "moe_intermediate_size": width, "quantization_config": FP8}
    if not experts_whole and width % tp:
        return
    more: dict[str, Any] = {} if asked is None else {"moe_backend": asked}
    found = kvplan.size(
        config, engine="vllm@0.33", tokens=1024, tensor_parallel_size=tp, gpu=gpu,
        enable_expert_parallel=experts_whole, **more,
    )  # fmt: skip
    said = [text for text in found.warnings if CUT_BLOCKS in text]
    rank = width if experts_whole else width // tp
    refined = rank % 128 != 0 and gcd(128, rank, 4096) >= 32
    faster = gpu in ("h200", "b200") and asked is None
    assert len(said) == (refined and faster)
    if said:
        assert ("--enable-expert-parallel" in said[0]) == (tp > 1 and not experts_whole)


@pytest.mark.parametrize("quantisation", [AWQ, PACKED])
@pytest.mark.parametrize("engine", ["vllm@0.20", "vllm", "sglang"])
def test_groups_of_inputs_are_not_divided(quantisation: dict[str, Any], engine: str) -> None:
    config = {**DENSE, "intermediate_size": 29568, "hidden_size": 8192, "num_attention_heads": 64}
    assert refused(config, quantisation, engine, tensor_parallel_size=8, gpu="l40s")
    padded = {**config, "intermediate_size": 29696}
    assert not refused(padded, quantisation, engine, tensor_parallel_size=8, gpu="l40s")


def test_experts_in_groups_of_compressed_tensors_since_0_24() -> None:
    more: dict[str, Any] = {"tensor_parallel_size": 8, "gpu": "h200"}
    assert refused(EXPERTS, PACKED, "vllm@0.24", **more)
    assert not refused(EXPERTS, PACKED, "vllm@0.22", **more)
    assert not refused(EXPERTS, AWQ, "vllm@0.24", **more)  # its groups are halved until they fit
    assert not refused(EXPERTS, PACKED, "vllm@0.24", enable_expert_parallel=True, **more)


@pytest.mark.parametrize("attention", [False, True])
def test_sglang_divides_no_block_of_experts(attention: bool) -> None:
    """MiniMax's name of the width is not the one that SGLang's own check of all experts reads."""
    minimax = "MiniMaxAI/MiniMax-M2"
    more: dict[str, Any] = {"tensor_parallel_size": 8, "gpu": "h200", "tokens": 1024, "engine": "sglang"}
    if attention:
        more |= {"data_parallel_size": 2, "enable_dp_attention": True}
    found = kvplan.size(minimax, **more).refusal
    assert found is not None
    assert "would be 192 on a GPU, where 128 share a scale" in found.message
    assert "--ep-size 8" in found.help
    assert kvplan.size(minimax, settings={"ep_size": 8}, **more).ok


def test_a_kernel_that_is_named_pads() -> None:
    more: dict[str, Any] = {"tensor_parallel_size": 8, "gpu": "a100-80gb"}
    assert refused(EXPERTS, FP8, "vllm", **more)
    assert not refused(EXPERTS, FP8, "vllm", moe_backend="marlin", **more)
    assert refused(EXPERTS, FP8, "vllm", moe_backend="marlin", enable_lora=True, **more)
    assert refused(EXPERTS, FP8, "vllm@0.30", moe_backend="marlin", **more)  # and no kernel pads
    narrow = {**EXPERTS, "moe_intermediate_size": 1504}  # its blocks are not whole on one GPU either
    assert refused(narrow, FP8, "vllm", moe_backend="marlin", **more)
    assert refused(narrow, FP8, "vllm", moe_backend="marlin", enable_expert_parallel=True, **more)


@given(
    width=st.integers(1, 48).map(lambda n: n * 32),
    hidden=st.integers(1, 32).map(lambda n: n * 128),
    tp=st.sampled_from((1, 2, 4)),
    how=st.sampled_from(ExpertBlocks),
)
def test_experts_are_kept_in_whole_blocks(width: int, hidden: int, tp: int, how: ExpertBlocks) -> None:
    """As create_weights of vLLM 0.33's Fp8MoEMethod sizes them: a byte a number, four a block."""
    experts, wide = Dim("num_experts", 8, Split.EXPERTS), Dim("width", width * tp, Split.EXPERT_WIDTH)
    inputs = Dim("hidden_size", hidden)
    form = fp8_block(128, 128)
    gate = Tensor("mlp.experts.gate_proj", (wide,), (inputs,), (experts,), role=Role.EXPERT, form=form)
    down = Tensor("mlp.experts.down_proj", (inputs,), (wide,), (experts,), role=Role.EXPERT, form=form)
    parallel = Parallel(tp, expert_blocks=how)
    kept, block = width, 128
    if width % 128 and how is ExpertBlocks.PADDED:
        kept = round_up(width, 128)
    if width % 128 and how is ExpertBlocks.SMALLER:
        block = gcd(128, width, hidden)
    scales = ceil_div(kept, block) * ceil_div(hidden, block)
    for tensor in (gate, down):
        assert tensor_bytes(tensor, parallel, BFLOAT16) == 8 * (kept * hidden + 4 * scales)
    dense = Tensor("mlp.up_proj", (Dim("width", width),), (inputs,), role=Role.LINEAR, form=form)
    assert tensor_bytes(dense, parallel, BFLOAT16) == tensor_bytes(dense, Parallel(tp), BFLOAT16)


def test_a_budget_counts_what_experts_are_kept_as() -> None:
    """Qwen3-235B over 8 GPUs: 192 numbers a rank, 256 padded; 64 × 64 share a scale where 128 × 128 did."""

    def weights(**more: Any) -> int:
        asked: dict[str, Any] = {"tensor_parallel_size": 8, "gpu": "h200", "tokens": 1024, **more}
        budget = kvplan.size("Qwen/Qwen3-235B-A22B-FP8", engine="vllm@0.33", **asked).budget
        assert budget is not None
        return budget.lines[0].bytes

    layers, experts, hidden = 94, 128, 4096
    padded = layers * experts * 3 * hidden * (256 - 192)
    of_smaller = layers * experts * 3 * (192 // 64) * (hidden // 64) * 4
    of_padded = layers * experts * 3 * (256 // 128) * (hidden // 128) * 4
    assert weights(moe_backend="deep_gemm") - weights() == padded + of_padded - of_smaller
    assert weights(moe_backend="triton") == weights()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_build_by_its_name_may_be_padded(engine: str) -> None:
    """Qwen's own AWQ build is 29,696 wide, and runs on 8 GPUs: a doubt, and no refusal."""
    build = kvplan.size("Qwen/Qwen2.5-72B-Instruct-AWQ", engine=engine, tensor_parallel_size=8, tokens=1024)
    assert build.refusal is None
    assert any("3,696" in warning and "does not start" in warning for warning in build.warnings)
    alone = kvplan.size("Qwen/Qwen2.5-72B-Instruct-AWQ", engine=engine, tokens=1024)
    assert not any("does not start" in warning for warning in alone.warnings)


@given(
    model=st.sampled_from(
        ("qwen3-8b", "Qwen/Qwen3-30B-A3B-FP8", "qwen2.5-vl-7b", "llama-4-scout", "mamba-2.8b", "gpt-oss-20b")
    ),
    tp=st.integers(2, 130),
    gpu=st.sampled_from(("h200", "a100-80gb")),
    dcp=st.sampled_from((1, 2)),
)
def test_ranks_that_a_refusal_names_start(model: str, tp: int, gpu: str, dcp: int) -> None:
    def asked(ranks: int) -> Refusal | None:
        settings = make_settings(
            tensor_parallel_size=ranks, decode_context_parallel_size=dcp, gpu=gpu, tokens=1024
        )
        # The engine's own: kvplan.size leaves out what memory then refuses.
        return ask(kvplan.load_model(model), choose("vllm"), settings).refusal

    found = asked(tp)
    if found is None or found.code != "tensor-parallel":
        return
    named = [int(way.removeprefix("--tp ")) for way in found.help if way.startswith("--tp ")]
    for ranks in named:
        refusal = asked(ranks)
        assert refusal is None or "memory" in refusal.code
    if tp > 1 and dcp == 1:
        assert named or model.startswith("mamba")


def test_unquantised_weights_are_divided_anywhere() -> None:
    config = {**DENSE, "intermediate_size": 9728}
    assert kvplan.size(config, tensor_parallel_size=8, tokens=1024).ok
    online = kvplan.size(config, tensor_parallel_size=8, tokens=1024, quantization="fp8", gpu="h200")
    assert online.ok  # one scale a matrix


@given(st.integers(1, 4096), st.sampled_from((1, 2, 3, 4, 8)), st.sampled_from((16, 32, 64, 128)))
def test_cuts_are_where_shares_are_no_whole_steps(width: int, tp: int, step: int) -> None:
    """Of the divided side alone, of every format that has steps."""
    wide, hidden = Dim("intermediate_size", width * tp, Split.EVEN), Dim("hidden_size", 640)
    for form, axis in ((fp8_block(step, step), 2), (grouped(4, step, zeros=True), 1), (NVFP4, 1)):
        tensors = (
            Tensor("mlp.up_proj", (wide,), (hidden,), role=Role.LINEAR, form=form),
            Tensor("mlp.down_proj", (hidden,), (wide,), role=Role.LINEAR, form=form),
            Tensor("mlp.down_proj.bias", (hidden,), role=Role.LINEAR, form=form),
        )
        found = cuts(Inventory((), (Block("model.layers.0", tensors),)), Parallel(tp))
        cut = tp > 1 and width % form.block[1] != 0
        assert {entry.side for entry in found} == ({Side.INPUTS, Side.OUTPUTS} if cut and axis == 2 else (
            {Side.INPUTS} if cut else set()
        ))  # fmt: skip
        assert all(entry.size == width for entry in found)
