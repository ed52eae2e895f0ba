"""A separate draft model: its weights as a line, its layers in the cache, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.api import make_settings
from kvplan.engines.vllm.start.runner import runner_of
from kvplan.errors import KvplanError
from kvplan.results import BudgetLine, SizeResult
from kvplan.units import GIB, MIB

HEAD = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 128256,
}
EAGLE = {**HEAD, "architectures": ["LlamaForCausalLM"]}
EAGLE3 = {**HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}
EMBEDDING = 128256 * 4096 * 2


def draft_line(result: SizeResult) -> BudgetLine:
    assert result.budget is not None, result.warnings
    (line,) = (line for line in result.budget.lines if line.name == "draft model")
    return line


@pytest.mark.parametrize(
    ("target", "draft", "tp", "expected"),
    [
        # vLLM 0.32 built these drafts; the sums of their parameters' bytes on one rank.
        ("llama-3.1-8b", "llama-3.2-1b", 1, 2_471_628_800),
        ("llama-3.1-70b", "llama-3.2-1b", 4, 618_008_576),
        ("qwen3-32b", "qwen3-0.6b", 2, 596_115_456),
    ],
)
@pytest.mark.parametrize("engine", ["vllm@0.32", "sglang"])
def test_weights_of_a_whole_draft(target: str, draft: str, tp: int, expected: int, engine: str) -> None:
    result = kvplan.size(
        target,
        engine=engine,
        gpu="h200",
        tp=tp,
        settings={"speculative_model": draft, "num_speculative_tokens": 5},
    )
    assert draft_line(result).bytes == expected
    plain = kvplan.size(target, engine=engine, gpu="h200", tp=tp)
    assert result.budget is not None
    assert plain.budget is not None
    if engine != "sglang":  # SGLang's slack changes with speculation too
        # Batches of whole requests have graphs of their own; every proposed token has a mask of its own.
        others = [
            sum(line.bytes for line in one.lines if line.name in ("CUDA graphs", "sampler states"))
            for one in (plain.budget, result.budget)
        ]
        less = plain.budget.kv_pool_bytes - result.budget.kv_pool_bytes
        assert less == expected + others[1] - others[0]
    assert result.per_gpu.kv_bytes_per_request > plain.per_gpu.kv_bytes_per_request


@pytest.mark.parametrize(
    ("head", "method", "tp", "with_embedding"),
    [(EAGLE3, "eagle3", 1, 1_900_308_480), (EAGLE, "eagle", 2, 810_557_440)],
)
def test_heads_borrow_the_embedding(head: dict[str, Any], method: str, tp: int, with_embedding: int) -> None:
    """vLLM 0.32 builds the head with an embedding and shares the target's where the checkpoint has none."""
    line = draft_line(
        kvplan.size(
            "llama-3.1-8b",
            engine="vllm@0.32",
            gpu="h100",
            tp=tp,
            max_model_len=2048,
            settings={"speculative_model": head, "speculative_method": method, "num_speculative_tokens": 3},
        )
    )
    assert line.high_bytes == with_embedding
    assert line.bytes == line.low_bytes == with_embedding - EMBEDDING // tp


@pytest.mark.parametrize("own", [False, True])
def test_headers_tell_whether_the_embedding_is_shared(tmp_path: Path, own: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(EAGLE3))
    entries: dict[str, Any] = {
        "midlayer.hidden_norm.weight": {"dtype": "F16", "shape": [4096], "data_offsets": [0, 8192]}
    }
    size = 8192
    if own:
        entries["embed_tokens.weight"] = {
            "dtype": "F16",
            "shape": [1, 4096],
            "data_offsets": [8192, 16384],
        }
        size = 16384
    header = json.dumps(entries).encode()
    body = len(header).to_bytes(8, "little") + header + bytes(size)
    (tmp_path / "model.safetensors").write_bytes(body)
    line = draft_line(
        kvplan.size(
            "llama-3.1-8b",
            engine="vllm@0.32",
            gpu="h100",
            max_model_len=2048,
            settings={
                "speculative_model": tmp_path,
                "speculative_method": "eagle3",
                "num_speculative_tokens": 3,
            },
        )
    )
    assert line.bytes == line.high_bytes == 849_635_328 + (EMBEDDING if own else 0)


def test_the_method_follows_from_the_draft() -> None:
    for draft, method in ((EAGLE3, "eagle3"), ("llama-3.2-1b", "draft_model")):
        settings = make_settings(speculative_model=draft, num_speculative_tokens=2)
        assert settings.speculative_method == method
    named = make_settings(
        speculative_model="llama-3.2-1b", speculative_method="eagle", num_speculative_tokens=2
    )
    assert named.speculative_method == "eagle"


def test_refusals() -> None:
    with pytest.raises(KvplanError, match="how many tokens it proposes"):
        kvplan.size("llama-3.1-8b", settings={"speculative_model": "llama-3.2-1b"})
    other = kvplan.size(
        "llama-3.1-8b", settings={"speculative_model": "qwen3-0.6b", "num_speculative_tokens": 2}
    )
    assert other.refusal is not None
    assert "same vocabulary" in other.refusal.message
    with pytest.raises(KvplanError, match="is not known"):
        kvplan.size(
            "qwen3-32b",
            settings={
                "speculative_model": "mamba-130m",
                "speculative_method": "eagle",
                "num_speculative_tokens": 2,
            },
        )
    with pytest.raises(KvplanError, match="beside a pipeline"):
        kvplan.size(
            "llama-3.1-70b", pp=2, settings={"speculative_model": "llama-3.2-1b", "num_speculative_tokens": 2}
        )
    strange = {**EAGLE3, "architectures": ["SomethingEagle3"]}
    unknown = kvplan.size(
        "llama-3.1-8b",
        gpu="h100",
        max_model_len=2048,
        settings={"speculative_model": strange, "num_speculative_tokens": 2},
    )
    assert unknown.budget is None
    assert any("eagle3 head" in text for text in unknown.warnings)


def test_lookup_adds_no_layers() -> None:
    """N-grams and suffixes need no model: the target's own prediction layers stay on the disk."""
    plain = kvplan.size("deepseek-v3", tp=8)
    lookup = kvplan.size(
        "deepseek-v3", tp=8, settings={"speculative_method": "ngram", "num_speculative_tokens": 4}
    )
    own = kvplan.size(
        "deepseek-v3", tp=8, settings={"speculative_method": "mtp", "num_speculative_tokens": 1}
    )
    assert lookup.per_gpu.kv_bytes_per_request == plain.per_gpu.kv_bytes_per_request
    assert own.per_gpu.kv_bytes_per_request > plain.per_gpu.kv_bytes_per_request


def test_sglang_counts_the_draft_by_its_layers() -> None:
    """Cell of the target's mean layer, times the draft's layers (pool_configurator.py)."""
    draft = kvplan.size(
        "llama-3.1-8b",
        engine="sglang",
        tokens=4096,
        settings={"speculative_model": "llama-3.2-1b", "num_speculative_tokens": 3},
    )
    plain = kvplan.size("llama-3.1-8b", engine="sglang", tokens=4096)
    assert draft.settings["draft_layers"] == 16
    ratio = draft.per_gpu.kv_bytes_per_request / plain.per_gpu.kv_bytes_per_request
    assert ratio == pytest.approx((32 + 16) / 32, rel=0.01)


def added(model: str | dict[str, Any], **options: Any) -> tuple[BudgetLine, SizeResult]:
    """The line of what speculates."""
    result = kvplan.size(model, **options)
    assert result.budget is not None, result.warnings
    (line,) = (line for line in result.budget.lines if line.name.startswith("draft"))
    return line, result


TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 128256,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("engine", ["vllm@0.32", "sglang"])
@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa", "mlp_speculator", "draft_model", "dflash"])
def test_a_draft_that_nobody_named_is_an_interval(engine: str, method: str) -> None:
    """Never nothing: a line from 0 to a bound, a warning, and less for the cache in the safe pool."""
    options: dict[str, Any] = {"draft_layers": 1} if engine == "sglang" else {}
    common: dict[str, Any] = {"engine": engine, "gpu": "h100"}
    line, result = added(
        "llama-3.1-8b", speculative_method=method, num_speculative_tokens=3, **common, **options
    )
    assert 0 == line.low_bytes < line.bytes <= line.high_bytes
    assert any("--speculative-model" in text for text in result.warnings)
    plain = kvplan.size("llama-3.1-8b", **common)
    assert plain.budget is not None
    assert result.budget is not None
    assert result.budget.kv_pool_low_bytes < plain.budget.kv_pool_low_bytes


@pytest.mark.parametrize(("method", "head"), [("eagle", EAGLE), ("eagle3", EAGLE3)])
def test_published_heads_lie_in_the_interval(method: str, head: dict[str, Any]) -> None:
    common: dict[str, Any] = {"engine": "vllm@0.32", "gpu": "h100", "max_model_len": 2048}
    line, guessed = added("llama-3.1-8b", speculative_method=method, num_speculative_tokens=3, **common)
    known, named = added(
        "llama-3.1-8b",
        speculative_model=head,
        speculative_method=method,
        num_speculative_tokens=3,
        **common,
    )
    assert line.low_bytes <= known.bytes <= known.high_bytes <= line.high_bytes
    assert abs(line.bytes - known.bytes) * 10 < known.bytes
    assert guessed.per_gpu.kv_bytes_per_request == named.per_gpu.kv_bytes_per_request


def test_prediction_layers_without_tensors_are_an_interval() -> None:
    for options in ({"engine": "sglang", "ep_size": 8}, {"engine": "trtllm"}):
        line, result = added(
            "minimax-m2", gpu="h200", tp=8, speculative_method="mtp", num_speculative_tokens=1, **options
        )
        assert 0 == line.low_bytes < line.bytes < line.high_bytes
        assert any("prediction layers are not known" in text for text in result.warnings)


def test_a_bound_holds_what_is_known() -> None:
    """Where the prediction layers are known, they lie below the bound that would be taken otherwise."""
    from kvplan.api import load_model
    from kvplan.architectures.weights import sources_of
    from kvplan.dtypes import BFLOAT16
    from kvplan.engines.budget.drafts import _MODULE, own_bytes, sizes_of
    from kvplan.weights.facts import weights_per_rank
    from kvplan.weights.ranks import Parallel

    for name in (
        *("deepseek-v3", "qwen3-next-80b-a3b", "mimo-7b", "mimo-v2-flash", "glm-4.5-air", "minimax-m3"),
        *("deepseek-v4-flash", "nemotron-3-ultra-550b-a55b", "qwen3.5-27b"),
    ):
        model = load_model(name)
        sources = sources_of(model)
        for tp in (1, 2, 4):
            parallel = Parallel(tp)
            facts = weights_per_rank(sources, parallel, BFLOAT16)
            own = own_bytes(facts, sources, parallel, BFLOAT16)
            sizes = sizes_of(model, facts, sources, parallel, BFLOAT16)
            assert own is not None
            assert 0 < own <= len(model.draft_layers) * sizes.highest(_MODULE), name


def test_stated_weights_hold_the_draft() -> None:
    result = kvplan.size(
        "deepseek-v3",
        gpu="h200",
        tp=8,
        settings={"speculative_method": "mtp", "num_speculative_tokens": 1},
        weights=90 << 30,
    )
    assert any("in the weights that were stated" in text for text in result.warnings)


def test_a_pipeline_loads_the_embedding_again() -> None:
    """vLLM shares the target's embedding only where there is one stage."""
    one, _ = added(
        "qwen3.5-27b", engine="vllm@0.32", gpu="h200", speculative_method="mtp", num_speculative_tokens=1
    )
    two, _ = added(
        "qwen3.5-27b",
        engine="vllm@0.32",
        gpu="h200",
        pp=2,
        speculative_method="mtp",
        num_speculative_tokens=1,
    )
    assert two.bytes - one.bytes == 248_320 * 5120 * 2


@pytest.mark.parametrize("model", ["qwen3.6-27b", "deepseek-v3", "glm-4.6", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("tokens", [2048, 8192, 65536])
def test_a_prediction_layer_runs_when_the_models_own_are_done(model: str, tokens: int) -> None:
    """The model's output stays meanwhile, and nothing else comes on top (llm_base_proposer.py, dummy_run). Of
    few requests: the sampler, which follows, is not the peak."""
    asked: dict[str, Any] = {"engine": "vllm@0.24", "gpu": "h200", "tp": 8, "max_num_batched_tokens": tokens}
    asked["max_num_seqs"] = 8
    hidden = {"qwen3.6-27b": 5120, "deepseek-v3": 7168, "glm-4.6": 5120, "qwen3-next-80b-a3b": 2048}[model]
    peaks = []
    options: tuple[dict[str, Any], ...] = ({}, {"speculative_method": "mtp", "num_speculative_tokens": 2})
    for drafts in options:
        budget = kvplan.size(model, **asked, **drafts, weights="20GiB").budget
        assert budget is not None
        peaks.append(next(line for line in budget.lines if line.name == "activation peak"))
    plain, drafting = peaks
    assert drafting.bytes - plain.bytes == tokens * hidden * 2
    assert drafting.high_bytes - drafting.bytes > plain.high_bytes - plain.bytes


DFLASH = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "torch_dtype": "bfloat16",
    "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 5, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 248320, "max_position_embeddings": 262144,
    "sliding_window": 2048, "use_sliding_window": True,
    "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]},
}  # fmt: skip
"""z-lab/Qwen3.6-27B-DFlash, as far as sizes depend on it."""


def dflash(version: str, draft: dict[str, Any] | None = DFLASH, **more: Any) -> kvplan.SizeResult:
    options: dict[str, Any] = {
        "gpu": "2xrtx-3090", "tensor_parallel_size": 2, "max_num_seqs": 1, "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": "0.95", "speculative_method": "dflash", "num_speculative_tokens": 5,
    }  # fmt: skip
    named = {} if draft is None else {"speculative_model": draft}
    return kvplan.size(
        "Lorbus/Qwen3.6-27B-int4-AutoRound", engine=f"vllm@{version}", **{**options, **named, **more}
    )


@pytest.mark.parametrize("draft", [DFLASH, None], ids=["named", "not named"])
@pytest.mark.parametrize(
    ("length", "printed", "concurrency", "text"),
    [(185_000, 9.58, 1.02, False), (200_000, 10.36, 1.02, True)],
)
def test_published_starts_with_dflash(
    length: int, printed: float, concurrency: float, text: bool, draft: dict[str, Any] | None
) -> None:
    """Qwen3.6-27B in INT4 with z-lab's draft on two RTX 3090, vLLM 0.20 (May 2026): pool and concurrency."""
    found = dflash("0.20", draft, max_model_len=length, language_model_only=text)
    assert found.budget is not None
    assert found.budget.kv_pool_low_bytes <= printed * GIB <= found.budget.kv_pool_high_bytes
    assert abs(found.budget.kv_pool_bytes / GIB - printed) < 0.05 * printed
    exact = dflash("0.20", draft, max_model_len=length, kv_cache_memory=int(printed * GIB))
    assert exact.pool is not None
    assert abs(float(exact.pool.max_concurrency) - concurrency) < 0.02


def test_a_named_draft_borrows_the_tables() -> None:
    """Five layers and a projection of five hidden states: 1.73 billion parameters (1.71 GiB in Q8_0), half of
    the layers on each of two ranks."""
    found = dflash("0.20", max_model_len=8192)
    assert found.budget is not None
    line = next(one for one in found.budget.lines if one.name == "draft model")
    layer = 5120 * (4096 + 2 * 1024) + 4096 * 5120 + 3 * 5120 * 17408
    assert 0 <= line.bytes - 2 * (5 * layer // 2 + 5 * 5120 * 5120) < MIB


@pytest.mark.parametrize(("version", "windows"), [("0.24", False), ("0.25", True), ("0.33", True)])
def test_windows_of_a_draft_since_0_25(version: str, windows: bool) -> None:
    full = {**DFLASH, "layer_types": ["full_attention"] * 5, "use_sliding_window": False}
    mixed, plain = (
        dflash(version, draft, max_model_len=65_536, kv_cache_memory=8 * GIB).per_gpu.kv_bytes_per_request
        for draft in (DFLASH, full)
    )
    assert (mixed < plain) == windows


@pytest.mark.parametrize(("version", "runner"), [("0.25", "v1"), ("0.26", "v2"), ("0.28", "v2")])
def test_a_draft_of_both_kinds_runs_under_v2(version: str, runner: str) -> None:
    model = kvplan.load_model("qwen3.6-27b")
    settings = make_settings(
        gpu="h100", speculative_model=DFLASH, speculative_method="dflash", num_speculative_tokens=5
    )
    assert runner_of(model, settings, version) == runner


ASSISTANT = {
    "model_type": "gemma4_assistant", "architectures": ["Gemma4AssistantForCausalLM"],
    "backbone_hidden_size": 3840,
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
        "intermediate_size": 4096, "sliding_window": 512, "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
}  # fmt: skip
"""A config of the class's form; sizes are made up."""


@pytest.mark.parametrize("model", ["gemma-4-12b-it", "gemma-4-31b-it", "gemma-4-e4b-it"])
@pytest.mark.parametrize("draft", [None, ASSISTANT], ids=["not named", "named"])
def test_gemma_4_drafts_with_an_assistant_that_keeps_no_cache(
    model: str, draft: dict[str, Any] | None
) -> None:
    """It was refused: "has no multi-token-prediction layers"."""
    named: dict[str, Any] = {} if draft is None else {"speculative_model": draft}
    common: dict[str, Any] = {"engine": "vllm@0.33", "gpu": "2xh100", "tensor_parallel_size": 2}
    plain = kvplan.size(model, **common)
    found = kvplan.size(
        model, settings={"speculative_method": "mtp", "num_speculative_tokens": 4}, **named, **common
    )
    assert found.refusal is None
    assert draft_line(found).bytes > 0
    assert found.pool is not None
    assert plain.pool is not None
    assert found.pool.groups == plain.pool.groups


def test_an_assistant_has_no_keys_and_values_of_its_own() -> None:
    found = kvplan.size(
        "gemma-4-12b-it", engine="vllm@0.33", gpu="h100",
        settings={"speculative_method": "mtp", "num_speculative_tokens": 4, "speculative_model": ASSISTANT},
    )  # fmt: skip
    wide, vocabulary, back, mlp = 1024, 262144, 3840, 4096
    layers = sum(2 * wide * 4 * head + 3 * wide * mlp + head + 4 * wide for head in (256, 256, 256, 512))
    assert draft_line(found).bytes == 2 * (layers + vocabulary * wide + 3 * back * wide + wide)


def test_assistants_since_0_21() -> None:
    asked: dict[str, Any] = {
        "gpu": "h100", "speculative_method": "mtp", "num_speculative_tokens": 2, "max_model_len": 4096
    }  # fmt: skip
    before = kvplan.size("gemma-4-31b-it", engine="vllm@0.20", **asked)
    assert before.refusal is not None
    assert "use engine vllm@0.21" in before.refusal.help
    assert kvplan.size("gemma-4-31b-it", engine="vllm@0.21", **asked).refusal is None


def test_a_dflash_draft_that_is_not_named_says_what_is_counted() -> None:
    found = kvplan.size(
        "qwen3-8b",
        engine="vllm@0.33",
        gpu="h100",
        settings={"speculative_method": "dflash", "num_speculative_tokens": 7},
    )
    plain = kvplan.size("qwen3-8b", engine="vllm@0.33", gpu="h100")
    assert any("five layers without windows" in text for text in found.warnings)
    layers = kvplan.load_model("qwen3-8b").num_layers
    more = found.per_gpu.bytes_per_token - plain.per_gpu.bytes_per_token
    assert more * layers == 5 * plain.per_gpu.bytes_per_token


def test_a_checkpoint_of_deepseek_v4_carries_its_dspark_draft() -> None:
    """models/deepseek_v4/nvidia/dspark.py; a start on two GH200 prints 4.30 GiB more with it, and a pool of
    8.28 GiB."""
    result = kvplan.size(
        "deepseek-ai/DeepSeek-V4-Flash-0731",
        gpu="gh200-96gbx2",
        engine="vllm@0.26",
        tp=2,
        kv_cache_dtype="fp8",
        speculative_config="dspark:6",
        max_model_len=1_048_576,
        gpu_memory_utilization="0.96",
        max_num_batched_tokens=4096,
        max_num_seqs=1,
    )
    assert result.budget is not None
    draft = next(line for line in result.budget.lines if line.name == "draft model")
    assert draft.low_bytes < int(4.3 * 2**30) < draft.high_bytes
    assert abs(draft.bytes - int(4.3 * 2**30)) < 2**27
    assert result.budget.kv_pool_low_bytes < int(8.28 * 2**30) < result.budget.kv_pool_high_bytes
    assert result.verdict is not None
    assert result.verdict.value == "likely"
