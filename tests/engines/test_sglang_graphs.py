"""SGLang's decode graphs and roles: what a command says of them, and the memory that stays free for it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines.launch import ServerFlag, flags_of_server
from kvplan.errors import KvplanError
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.read import launches_of
from tests.laws.sampling import for_each

START = "python -m sglang.launch_server --model-path x/y "
H200_MIB, H200 = 143_771, "h200-sxm-141gb"


def read(words: str) -> Launch:
    (launch,) = launches_of(START + words)
    return launch


def fraction(model: str = "deepseek-v3", engine: str = "sglang", **options: Any) -> float:
    asked: dict[str, Any] = {"gpu": H200, "kv_cache_memory": 2**34, "max_model_len": 2048, **options}
    found: float = kvplan.size(model, engine=engine, **asked).settings["mem_fraction_static"]
    return found


def by_hand(reserved: float) -> float:
    return round((H200_MIB - max(reserved, 10 * 1024)) / H200_MIB, 3)


SAID = [
    ("--cuda-graph-max-bs-decode 128", 128),
    ("--cuda-graph-max-bs 128", 128),
    ("--cuda-graph-bs-decode 1 2 4 128", 128),
    ("--cuda-graph-bs 128 64 --cuda-graph-max-bs 512", 128),
    ("""--cuda-graph-config '{"decode": {"max_bs": 128, "backend": "full"}}'""", 128),
    ("""--cuda-graph-config '{"decode": {"bs": [8, 128]}}' --cuda-graph-max-bs-decode 64""", 128),
]


@pytest.mark.parametrize(("words", "most"), SAID, ids=[words for words, _ in SAID])
def test_every_way_to_say_the_largest_graph_is_read(words: str, most: int) -> None:
    launch = read(words)
    assert (launch.serve, launch.unread) == ({"cuda_graph_max_bs": most}, ())


NONE = [
    "--disable-cuda-graph",
    "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
    "--disable-decode-cuda-graph --disable-prefill-cuda-graph",
    """--cuda-graph-config '{"decode": {"backend": "disabled"}, "prefill": {"backend": "disabled"}}'""",
]


@pytest.mark.parametrize("words", NONE)
def test_no_graphs_at_all_is_read_and_those_of_one_phase_are_named(words: str) -> None:
    launch = read(words)
    assert (launch.serve, launch.unread) == ({"disable_cuda_graph": True}, ())
    assert read("--disable-prefill-cuda-graph").unread == ("--cuda-graph-config.prefill.backend disabled",)


ROWS = [flag for flag in sorted(set(flags_of_server("sglang").values())) if not flag.memoryless]


@for_each("flag", ROWS, ids=lambda flag: flag.names[0])
def test_an_option_that_may_change_memory_is_read_or_named(flag: ServerFlag) -> None:
    """None is silently dropped: it stands in the plan, or among what has no rule."""
    if flag.names[0] in ("--model-path", "--config"):
        return
    with contextlib.suppress(KvplanError):
        launch = read(flag.names[0] + ("" if flag.values == "0" else " 7"))
        assert launch.serve or launch.unread, flag.names


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("most", [16, 128, 300, 301, 512])
def test_what_stays_free_follows_the_largest_graph(groups: int, most: int) -> None:
    """arg_groups/memory_hook.py (reserve_for_graph_mb), MLA's graphs of prompts are 1.5 GiB."""
    reserved = 512 + 1.5 * 8192 + 1024 + 2 * most + 1536
    if groups > 1:
        reserved += most * groups * (3 if most <= 300 else 4.5)
    found = fraction(tp=8, attn_dp_size=groups, cuda_graph_max_bs=most)
    assert found == by_hand(reserved)


def test_the_published_start_of_deepseek_with_data_parallel_attention() -> None:
    assert fraction(tp=8, dp=8, enable_dp_attention=True) == 0.758
    assert fraction(tp=8, dp=8, enable_dp_attention=True, cuda_graph_max_bs=128) == 0.87


@given(st.integers(1, 1024), st.integers(0, 512), st.sampled_from(["0.5.9", "0.5.13", "0.5.18", "0.5.23"]))
@settings(max_examples=40, deadline=None)
def test_a_larger_graph_never_leaves_more(most: int, more: int, version: str) -> None:
    small, large = (
        fraction(engine=f"sglang@{version}", tp=8, attn_dp_size=4, cuda_graph_max_bs=size)
        for size in (most, most + more)
    )
    assert large <= small


@pytest.mark.parametrize(
    ("role", "reserved"),
    [
        ("prefill", 512 + 1.5 * 8192 + 1024 + 1536),
        ("decode", 512 + 1.5 * 2048 + 1024 + 128 * (2 + 3 * 8)),
    ],
)
def test_a_server_of_one_role_keeps_memory_for_that_alone(role: str, reserved: float) -> None:
    """Since 0.5.16; no decode graphs before prompts, no graphs of prompts behind them."""
    asked: dict[str, Any] = {"tp": 8, "attn_dp_size": 8, "cuda_graph_max_bs": 128}
    assert fraction(**asked, disaggregation_mode=role) == by_hand(reserved)
    old = {**asked, "engine": "sglang@0.5.15"}
    assert fraction(**old, disaggregation_mode=role) == fraction(**old)


@pytest.mark.parametrize(
    ("model", "engine", "role", "said"),
    [
        ("llama-3.1-8b", "sglang", "decode", False),
        ("llama-3.1-8b", "sglang@0.5.15", "decode", True),
        ("qwen3-next-80b-a3b", "sglang", "prefill", True),
        ("deepseek-v3.2", "sglang", "decode", True),
        ("gpt-oss-20b", "sglang", "decode", True),
        ("gpt-oss-20b", "sglang", "prefill", False),
        ("qwen3-next-80b-a3b", "sglang", "null", False),
    ],
)
def test_what_a_role_changes_besides_is_said(model: str, engine: str, role: str, said: bool) -> None:
    result = kvplan.size(
        model, engine=engine, tp=8, gpu=H200, tokens=1024, settings={"disaggregation_mode": role}
    )
    assert any(text.startswith("not counted: what --disaggregation-mode") for text in result.warnings) is said
    assert read(f"--disaggregation-mode {role}").serve == {"disaggregation_mode": role}
