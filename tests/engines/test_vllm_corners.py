"""Rules that settings drawn from wide corners showed (`vllm_random_wide`): each law by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from tests.engines.vllm_cases import CONFIGS, GIB
from tests.engines.vllm_compare import gpu_of
from tests.engines.vllm_random_cases import draft_beside
from tests.engines.vllm_random_wide import FORMATS

MIMO, LLAMA, QWEN, MAMBA = (CONFIGS[name] for name in ("mimo-v2", "llama", "qwen3", "mamba"))


def sized(config: dict[str, Any], engine: str = "vllm@0.33", gpu: str = "h100", **options: Any) -> SizeResult:
    given = {"kv_cache_memory": 24 * GIB, **options}
    return kvplan.size(config, engine=engine, gpu=gpu_of(gpu), **given)


def backend(result: SizeResult) -> str:
    assert result.refusal is None, result.refusal
    return str(result.settings["attention_backend"])


# ------------------------------------------------------------------------------ FlashInfer on Blackwell


@pytest.mark.parametrize(
    ("name", "engine", "chosen", "block"),
    [
        ("llama", "vllm@0.33", "FLASHINFER", 16),
        ("gemma3", "vllm@0.33", "FLASHINFER", 16),
        ("deepseek-v3", "vllm@0.33", "FLASHINFER_MLA", 32),
        ("deepseek-v3", "vllm@0.20", "FLASHINFER_MLA", 32),
        ("llama", "vllm@0.19", "FLASH_ATTN", 16),
    ],
)
def test_flashinfer_comes_first_on_data_centre_blackwell(
    name: str, engine: str, chosen: str, block: int
) -> None:
    found = sized(CONFIGS[name], engine, "b300")
    assert (backend(found), found.settings["block_size"]) == (chosen, block)


@pytest.mark.parametrize(("name", "chosen"), [("llama", "FLASH_ATTN"), ("deepseek-v3", "CUTLASS_MLA")])
def test_an_installation_without_flashinfer_says_so(name: str, chosen: str) -> None:
    assert backend(sized(CONFIGS[name], gpu="b200", flashinfer="absent")) == chosen


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    gpu=st.sampled_from(["h100", "a100", "l40s", "rtx-4090", "mi300x"]),
    tp=st.sampled_from([1, 2, 4]),
)
def test_elsewhere_flashinfer_changes_no_default(name: str, gpu: str, tp: int) -> None:
    found = [
        sized(CONFIGS[name], gpu=gpu, tensor_parallel_size=tp, flashinfer=word)
        for word in ("installed", "absent")
    ]
    assert found[0].pool == found[1].pool


@pytest.mark.parametrize(("config", "window"), [(CONFIGS["gpt-oss"], 128), (CONFIGS["olmo3"], 64)])
def test_flashinfers_pages_are_long_where_heads_share_keys(config: dict[str, Any], window: int) -> None:
    """gpt-oss has four query heads a KV head, this Olmo one: 128 of 144 tokens, or 64 of them."""
    groups = sized(config, "vllm@0.33", "b300", block_size=144).pool
    assert groups is not None
    assert min(group.block_size for group in groups.groups) == window


def test_until_0_24_its_pages_were_short_everywhere() -> None:
    pool = sized(CONFIGS["gpt-oss"], "vllm@0.30", "b300", block_size=144).pool
    assert pool is not None
    assert {group.block_size for group in pool.groups} == {128, 144}


# ----------------------------------------------------------------------------------- backends by name


@pytest.mark.parametrize(
    ("name", "engine", "served"),
    [
        ("TREE_ATTN", "vllm@0.20", True),
        ("TREE_ATTN", "vllm@0.21", False),
        ("HPC_ATTN", "vllm@0.24", False),
        ("TRITON_ATTN", "vllm@0.33", True),
        ("ROCM_AITER_FA", "vllm@0.33", False),
        ("TURBOQUANT", "vllm@0.33", False),
        ("FLASHMLA", "vllm@0.33", False),
    ],
)
def test_a_backend_is_the_releases_own(name: str, engine: str, served: bool) -> None:
    assert (sized(LLAMA, engine, attention_backend=name).refusal is None) is served


def test_a_name_of_a_later_release_says_which() -> None:
    found = sized(CONFIGS["deepseek-v3"], "vllm@0.24", attention_backend="FLASH_ATTN_MLA_SPARSE").refusal
    assert found is not None
    assert "0.25 is the first" in found.message


@pytest.mark.parametrize("name", ["FLASH_ATTN_MLA_SPARSE", "TRITON_ATTN", "FLASHINFER"])
def test_mimo_heeds_no_backend_that_takes_one_width(name: str) -> None:
    assert backend(sized(MIMO, attention_backend=name)) == "FLASH_ATTN_DIFFKV"


@pytest.mark.parametrize(
    ("engine", "size", "served"), [("0.20", 24, True), ("0.20", 1, True), ("0.21", 24, False)]
)
def test_flex_attention_took_any_block_until_0_20(engine: str, size: int, served: bool) -> None:
    assert (sized(QWEN, f"vllm@{engine}", block_size=size).refusal is None) is served


def test_amd_leaves_turboquant_to_the_platform() -> None:
    named = {"kv_cache_dtype": "turboquant_k8v4", "attention_backend": "ROCM_ATTN", "gpu": "mi300x"}
    assert sized(CONFIGS["qwen3-next"], "vllm@0.27", **named).refusal is not None
    assert sized(CONFIGS["qwen3-next"], "vllm@0.28", **named).refusal is None


@pytest.mark.parametrize("name", ["TRITON_MLA", "ROCM_AITER_MLA"])
def test_amd_gives_heads_no_kernel_of_latents(name: str) -> None:
    assert sized(LLAMA, gpu="mi300x", attention_backend=name).refusal is not None


# ------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("form", "engine", "served"),
    [
        ("fp8", "0.33", False),
        ("modelopt-fp8", "0.33", False),
        ("compressed-tensors", "0.33", False),
        ("compressed-tensors-plain", "0.33", True),
        ("compressed-tensors-plain", "0.23", False),
        ("gptq", "0.33", True),
    ],
)
def test_e5m2_beside_scales_of_another_fp8(form: str, engine: str, served: bool) -> None:
    config = {**LLAMA, "quantization_config": FORMATS[form]}
    found = sized(config, f"vllm@{engine}", "rtx-4090", kv_cache_dtype="fp8_e5m2", kv_cache_memory=8 * GIB)
    assert (found.refusal is None) is served


@pytest.mark.parametrize(("engine", "ratio"), [("0.27", 1), ("0.28", 2)])
def test_windows_of_four_bits_took_eight_before_0_28(engine: str, ratio: int) -> None:
    """A window's page and that of a full layer beside it; alone, full layers take four bits in both."""
    words = ("int8_per_token_head", "int4_per_token_head")
    found = (sized(CONFIGS["mistral-window"], f"vllm@{engine}", kv_cache_dtype=word) for word in words)
    pools = [result.pool for result in found]
    eight, four = (pool.bytes_per_block for pool in pools if pool is not None)
    assert (four < eight) is (ratio > 1)
    whole = sized(
        CONFIGS["mistral-window"],
        f"vllm@{engine}",
        kv_cache_dtype=words[1],
        disable_hybrid_kv_cache_manager=True,
    ).pool
    assert whole is not None
    assert whole.bytes_per_block < eight


@pytest.mark.parametrize(("engine", "says"), [("0.27", False), ("0.28", True), ("0.33", True)])
def test_bitsandbytes_left_for_a_package(engine: str, says: bool) -> None:
    found = sized(LLAMA, f"vllm@{engine}", quantization="bitsandbytes")
    assert found.refusal is None
    assert any("vllm-bnb-plugin" in warning for warning in found.warnings) is says


@pytest.mark.parametrize(("name", "served"), [("falcon-h1", False), ("jamba", True), ("qwen3-next", True)])
def test_turboquant_beside_states_wants_attention_alone(name: str, served: bool) -> None:
    found = sized(CONFIGS[name], kv_cache_dtype="turboquant_k8v4", gpu="b300")
    assert (found.refusal is None) is served


# -------------------------------------------------------------------------------------------- drafts


def beside(method: str, config: dict[str, Any], **options: Any) -> SizeResult:
    draft = draft_beside(method, config)
    return sized(
        config, speculative_method=method, num_speculative_tokens=3, speculative_model=draft, **options
    )


@pytest.mark.parametrize("method", ["eagle", "eagle3", "draft_model"])
def test_states_alone_beside_a_draft_are_not_aligned_to_it(method: str) -> None:
    found = beside(method, MAMBA)
    assert found.refusal is None
    assert found.settings["block_size"] == 16


def test_turboquant_of_a_draft_beside_states_alone_is_not_known() -> None:
    with pytest.raises(KvplanError, match="beside states alone"):
        beside("eagle3", MAMBA, kv_cache_dtype="turboquant_k8v4")


@pytest.mark.parametrize(
    ("layers", "stages", "served"), [(6, 1, True), (6, 2, False), (8, 4, True), (7, 2, True)]
)
def test_an_eagle_head_bears_the_number_of_its_stages_layers(layers: int, stages: int, served: bool) -> None:
    """Six layers on two stages: the last one has layers 3 to 5, and the head is called layer 3 as well."""
    same = {**LLAMA, "num_hidden_layers": layers}
    found = sized(
        same,
        speculative_method="eagle",
        num_speculative_tokens=3,
        speculative_model={**same, "num_hidden_layers": 1},
        pipeline_parallel_size=stages,
    )
    assert (found.refusal is None) is served


def test_an_eagle_head_kept_otherwise_than_its_namesake_stops_the_start() -> None:
    assert beside("eagle", {**LLAMA, "num_hidden_layers": 8}, pipeline_parallel_size=4).refusal is not None
    assert beside("eagle3", {**LLAMA, "num_hidden_layers": 8}, pipeline_parallel_size=4).refusal is None


def test_a_draft_beside_falcon_keeps_what_was_asked_for() -> None:
    """FalconAttention is built without the cache's settings, its draft is not."""
    plain, packed = (
        beside("draft_model", CONFIGS["falcon"], kv_cache_dtype=word) for word in ("auto", "fp8")
    )
    assert plain.pool is not None
    assert packed.pool is not None
    assert packed.pool.bytes_per_block < plain.pool.bytes_per_block


def test_turboquant_skips_a_draft_models_layers_by_their_own_numbers() -> None:
    """Layers 0 and 1 of a draft of two bear the numbers that stay in 16 bit; an EAGLE head's does not."""
    packed = {"kv_cache_dtype": "turboquant_k8v4"}
    alone, draft, head = (
        found.pool
        for found in (
            sized(QWEN, **packed),
            beside("draft_model", QWEN, **packed),
            beside("eagle3", QWEN, **packed),
        )
    )
    assert alone is not None
    assert draft is not None
    assert head is not None
    native = 2 * 8 * 128 * 2 * 16
    assert draft.bytes_per_block - alone.bytes_per_block >= 2 * native
    assert head.bytes_per_block - alone.bytes_per_block < native


@pytest.mark.parametrize("method", ["eagle", "eagle3", "draft_model"])
def test_a_draft_without_a_window_takes_the_models_only_one(method: str) -> None:
    """Asked of 0.20 and 0.33: one group of windows; beside windows and full layers the draft stays whole."""
    pool = beside(method, CONFIGS["mistral-window"]).pool
    assert pool is not None
    assert [group.kind for group in pool.groups] == ["sliding_window"]
    mixed = beside(method, CONFIGS["gemma3"]).pool
    assert mixed is not None
    assert "full_attention" in {group.kind for group in mixed.groups}


@pytest.mark.parametrize(
    ("engine", "served"), [("0.24", True), ("0.25", False), ("0.27", False), ("0.28", False), ("0.29", True)]
)
def test_pages_are_padded_where_the_kernel_follows_a_stride(engine: str, served: bool) -> None:
    """TurboQuant over stages, of which one has no layer in 16 bit: 0.25 to 0.28 pad none of its pages."""
    config = {**LLAMA, "num_hidden_layers": 12}
    found = sized(
        config, f"vllm@{engine}", "l40s", kv_cache_dtype="turboquant_k3v4_nc", pipeline_parallel_size=3
    )
    assert (found.refusal is None) is served, found.refusal


@pytest.mark.parametrize(("engine", "columns"), [("0.25", 0), ("0.28", 0), ("0.29", 3), ("0.33", 3)])
def test_short_convolutions_keep_drafts_since_0_29(engine: str, columns: int) -> None:
    """LFM2's state: hidden · (kernel - 1) numbers, and as many columns more as drafts since."""
    config = CONFIGS["lfm2"]
    state = config["hidden_size"] * (config["conv_L_cache"] - 1 + columns) * 2
    options = {"speculative_method": "ngram_gpu", "num_speculative_tokens": 3, "block_size": 16}
    found = sized(config, f"vllm@{engine}", "mi300x", kv_cache_dtype="turboquant_k8v4", **options)
    assert found.pool is not None
    page = found.pool.groups[0].page_bytes
    per_token = page // found.settings["block_size"]
    assert page == -(-state // (16 * per_token)) * 16 * per_token


@pytest.mark.parametrize("engine", ["0.25", "0.31"])
def test_turboquant_beside_mimos_own_cache_is_not_known(engine: str) -> None:
    with pytest.raises(KvplanError, match="keeps its cache in its own dtype") as error:
        sized(MIMO, f"vllm@{engine}", kv_cache_dtype="turboquant_k8v4")
    assert error.value.code == "unknown-rule"


@pytest.mark.parametrize(
    ("gpu", "engine", "served"),
    [("b200", "0.28", True), ("b200", "0.29", False), ("b300", "0.33", False), ("h100", "0.33", True)],
)
def test_one_layout_of_pages_serves_all_layers(gpu: str, engine: str, served: bool) -> None:
    """TurboQuant leaves four layers in 16 bit to FlashInfer, which on 10.x reads blocks by head."""
    found = sized(LLAMA, f"vllm@{engine}", gpu, kv_cache_dtype="turboquant_4bit_nc")
    assert (found.refusal is None) is served, found.refusal
    if not served:
        absent = sized(LLAMA, f"vllm@{engine}", gpu, kv_cache_dtype="turboquant_4bit_nc", flashinfer="absent")
        assert absent.refusal is None


@pytest.mark.parametrize("word", ["FLASH_ATTN", "TRITON_MLA", "FLASHMLA"])
def test_sparse_layers_on_amd_name_their_backend_themselves(word: str) -> None:
    plain = sized(CONFIGS["deepseek-v32"], "vllm@0.32", "mi300x")
    named = sized(CONFIGS["deepseek-v32"], "vllm@0.32", "mi300x", attention_backend=word)
    assert plain.refusal is None
    assert (backend(named), named.pool) == (backend(plain), plain.pool)
