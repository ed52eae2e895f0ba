"""State and window pools in SGLang's logs: what is predicted from the tokens of the KV pool alone."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import compare, load_model, make_settings
from kvplan.comparison import Comparison, Verdict
from kvplan.engines.sglang.engine import allocations
from kvplan.units import GIB
from tests.comparison.logs import observed

PREFIX = "[2026-02-01 00:05:03 TP0] "
# As published (ibm-granite/granite-4.0-h-micro, config.json): 36 Mamba-2 and 4 attention layers.
GRANITE = {
    "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 2048,
    "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "mamba_n_heads": 64,
    "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1,
    "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, "max_position_embeddings": 131072,
    "num_local_experts": 0, "intermediate_size": 8192, "shared_intermediate_size": 8192, "dtype": "bfloat16",
    "position_embedding_type": "nope", "vocab_size": 100352,
}  # fmt: skip
# A published start of it, in February 2026.
PUBLISHED = f"""\
{PREFIX}Mamba Cache is allocated. max_mamba_cache_size: 38, conv_state size: 0.03GB, ssm_state size: 2.74GB
{PREFIX}KV Cache is allocated. #tokens: 399740, K size: 1.52 GB, V size: 1.52 GB
"""


def _agreeing(found: Comparison) -> set[str]:
    return {row.name for row in found.rows if row.predicted is not None and row.agrees}


def test_a_published_log_of_a_hybrid_model() -> None:
    """The share of states, 0.9 / 1.9, gives 38 slots beside 399,740 tokens: nothing else was told.

    The start is older than the rules, which would set one more slot aside for padding.
    """
    found = compare(load_model(GRANITE), observation=observed(PUBLISHED))
    assert _agreeing(found) == {"mamba_slots", "mamba_conv_bytes", "mamba_ssm_bytes", "kv_bytes"}
    assert found.verdict is Verdict.AGREES
    assert "before July 2026" in (found.row("mamba_slots").explanation or "")
    # 36 layers × 64 heads × 64 × 128 in float32, of 38 slots and one for padding.
    assert found.row("mamba_ssm_bytes").predicted == 36 * 64 * 64 * 128 * 4 * 39
    assert found.row("mamba_conv_bytes").predicted == 36 * (2 * 2048 + 2 * 128) * 3 * 2 * 39


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (("max_mamba_cache_size: 38", "max_mamba_cache_size: 33"), "mamba_slots"),
        (("conv_state size: 0.03GB", "conv_state size: 0.05GB"), "mamba_conv_bytes"),
        (("ssm_state size: 2.74GB", "ssm_state size: 1.37GB"), "mamba_ssm_bytes"),
    ],
)
def test_another_figure_differs(change: tuple[str, str], row: str) -> None:
    found = compare(load_model(GRANITE), observation=observed(PUBLISHED.replace(*change)))
    assert not found.row(row).agrees
    assert found.verdict is Verdict.DIFFERS


def test_the_share_of_the_states_is_read_from_the_arguments() -> None:
    """With twice the share the same tokens leave more slots."""
    arguments = f"{PREFIX}server_args=ServerArgs(model_path='x/y', mamba_full_memory_ratio=1.8)\n"
    found = compare(load_model(GRANITE), observation=observed(arguments + PUBLISHED))
    row = found.row("mamba_slots")
    assert row.predicted is not None
    assert row.predicted > 70
    assert not row.agrees


def _log(model: Any, memory: str, **options: Any) -> str:
    """The lines that SGLang prints with so much memory for its pools."""
    settings = kvplan.size(model, engine="sglang", kv_cache_memory=memory, **options).settings
    found = {one.name: one for one in allocations(model, make_settings(kv_cache_memory=memory, **options))[0]}
    words = {name: (f"{one.k_bytes / GIB:.2f}", f"{one.v_bytes / GIB:.2f}") for name, one in found.items()}
    text = f"{PREFIX}server_args=ServerArgs(model_path='x/y', tp_size={settings['tensor_parallel_size']})\n"
    if "state" in found:
        conv, ssm = words["state"]
        text += (
            f"{PREFIX}Mamba Cache is allocated. max_mamba_cache_size: {found['state'].tokens}, "
            f"conv_state size: {conv}GB, ssm_state size: {ssm}GB \n"
        )
    if "window" in found:
        text += (
            f"{PREFIX}Use sliding window memory pool. full_layer_tokens={found['full'].tokens}, "
            f"swa_layer_tokens={found['window'].tokens}\n"
        )
    for name in ("window", "full"):
        if name in found:
            text += (
                f"{PREFIX}KV Cache is allocated. #tokens: {found[name].tokens}, "
                f"K size: {words[name][0]} GB, V size: {words[name][1]} GB\n"
            )
    return text + (
        f"{PREFIX}max_total_num_tokens={settings['max_total_num_tokens']}, chunked_prefill_size=8192, "
        f"max_prefill_tokens=16384, max_running_requests={settings['max_running_requests']}, "
        f"context_len={settings['context_len']}\n"
    )


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("memory", ["9GiB", "20GiB", "61GiB"])
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("qwen3-next-80b-a3b", {"mamba_slots", "mamba_conv_bytes", "mamba_ssm_bytes"}),
        ("granite-4.0-h-small", {"mamba_slots", "mamba_conv_bytes", "mamba_ssm_bytes"}),
        ("gpt-oss-20b", {"swa_tokens"}),
    ],
)
def test_every_pool_is_a_row(name: str, rows: set[str], memory: str, tp: int) -> None:
    model = load_model(name)
    found = compare(model, observation=observed(_log(model, memory, tp=tp)))
    assert found.verdict is Verdict.AGREES, found.model_dump()
    assert rows | {"running_requests", "kv_bytes"} <= _agreeing(found)


def test_fewer_requests_than_slots_are_explained() -> None:
    model = load_model("qwen3-next-80b-a3b")
    found = compare(model, observation=observed(_log(model, "20GiB")))
    assert found.row("running_requests").explanation == "a running request takes 5 of the 130 state slots"


def test_stages_of_a_pipeline_are_compared_with_the_smallest() -> None:
    """Of 24 layers in 5 stages four have 5 and one has 4; the log's least counts on both sides."""
    model = load_model("gpt-oss-20b")
    options = {"kv_cache_memory": "5GiB", "pipeline_parallel_size": 5}
    stages = allocations(model, make_settings(**options))
    tokens = stages[0][0].tokens
    lines = [f"{PREFIX}server_args=ServerArgs(model_path='x/y', pp_size=5)\n"]
    sums = []
    for place, stage in enumerate(stages):
        head = PREFIX.replace("TP0", f"PP{place}")
        tokens_of = {one.name: one.tokens for one in stage}
        lines.append(
            f"{head}Use sliding window memory pool. full_layer_tokens={tokens_of['full']}, "
            f"swa_layer_tokens={tokens_of['window']}\n"
        )
        lines += [
            f"{head}KV Cache is allocated. #tokens: {one.tokens}, K size: {one.k_bytes / GIB:.2f} GB, "
            f"V size: {one.v_bytes / GIB:.2f} GB\n"
            for one in stage
        ]
        lines.append(f"{head}max_total_num_tokens={tokens}, chunked_prefill_size=8192\n")
        sums.append(sum(one.k_bytes + one.v_bytes for one in stage))
    found = compare(model, observation=observed("".join(lines)))
    assert len(set(sums)) > 1
    row = found.row("kv_bytes")
    assert row.agrees, found.model_dump()
    assert row.predicted == min(sums)
