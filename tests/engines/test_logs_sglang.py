"""SGLang's log lines, one of each shape, in our own words and numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvplan.engines.observed import Observation, Pool
from kvplan.files.logs import parse_log

P = "[2026-03-01 09:10:11 TP0] "


def read(text: str) -> Observation:
    return parse_log([text.encode()])


def printed(observation: Observation, name: str) -> str | None:
    figure = observation.get(name)
    return None if figure is None else figure.printed


def shape(pool: Pool) -> tuple[str, int | None, str | None]:
    tokens = None if pool.tokens is None else pool.tokens.value
    return pool.name, tokens, None if pool.bytes is None else pool.bytes.printed


DENSE = f"""\
[2026-03-01 09:10:00] server_args=ServerArgs(model_path='org/tiny', tp_size=2, mem_fraction_static=0.875, \
kv_cache_dtype='auto', context_length=None, disable_cuda_graph=False, bootstrap=<object at 0x7f>, page_size=1)
[2026-03-01 09:10:01 TP1] Load weight begin. avail mem=78.25 GB
{P}Load weight begin. avail mem=78.50 GB
{P}Load weight end. type=TinyForCausalLM, dtype=torch.bfloat16, avail mem=70.25 GB, mem usage=8.25 GB.
[2026-03-01 09:10:02 TP1] Load weight end. elapsed=2.51 s, type=TinyForCausalLM, quant=fp8, fmt=e4m3, \
avail mem=70.00 GB, mem usage=8.25 GB.
{P}KV Cache is allocated. #tokens: 500000, K size: 28.61 GB, V size: 28.61 GB
[2026-03-01 09:10:03 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 500000, K size: 28.61 GB, \
V size: 28.61 GB
{P}Memory pool end. avail mem=12.50 GB
{P}Capture cuda graph begin. This can take up to several minutes. avail mem=12.40 GB
{P}Capture cuda graph end. Time elapsed: 3.10 s. mem usage=0.75 GB. avail mem=11.65 GB.
{P}Capture target prefill CUDA graph end. elapsed=1.00 s, mem usage=0.25 GB, avail mem=11.40 GB.
{P}max_total_num_tokens=500000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, \
context_len=131072, available_gpu_mem=11.40 GB
"""


def test_a_dense_model_on_two_ranks() -> None:
    observation = read(DENSE)
    assert observation.engine == "sglang"
    values = {name: setting.value for name, setting in observation.settings.items()}
    assert values["model"] == "org/tiny"
    assert values["tensor_parallel_size"] == 2
    assert values["mem_fraction_static"] == Fraction(7, 8)
    assert values["max_model_len"] == 131072  # the resolved length, printed after the argument's None
    assert printed(observation, "running_requests") == "2048"
    assert {row.rank.label: row.rank.tp for row in observation.rows} == {"TP0": 0, "TP1": 1}
    assert printed(observation, "weights_bytes") == "8.25 GiB"
    assert printed(observation, "free_before_bytes") == "78.25 GiB"
    assert printed(observation, "free_after_weights_bytes") == "70.00 GiB"
    assert printed(observation, "free_after_bytes") == "12.50 GiB"
    assert printed(observation, "kv_tokens") == "500000"
    assert printed(observation, "cuda_graph_bytes") == "0.75 GiB + 0.25 GiB"
    for row in observation.rows:
        assert [shape(pool) for pool in row.pools] == [("kv", 500000, "28.61 GiB + 28.61 GiB")]
    kv = observation.count("kv_bytes")
    assert kv is not None
    # 500,000 tokens × 122,880 B, printed as two rounded halves.
    assert kv.contains(500000 * 122_880)


@pytest.mark.parametrize("labels", [("SWA ", "Full "), ("", "")], ids=["labelled", "older"])
def test_window_pools_are_told_apart(labels: tuple[str, str]) -> None:
    text = f"""\
{P}Use sliding window memory pool. full_layer_tokens=10000, swa_layer_tokens=8000
{P}{labels[0]}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8000, K size: 1.00 GB, V size: 1.00 GB
{P}{labels[1]}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10000, K size: 0.50 GB, V size: 0.50 GB
"""
    observation = read(text)
    assert [shape(pool)[:2] for pool in observation.pools] == [("swa", 8000), ("full", 10000)]
    assert printed(observation, "swa_tokens") == "8000"
    assert printed(observation, "kv_tokens") == "10000"
    kv = observation.count("kv_bytes")
    assert kv is not None
    assert kv.value == 3 * 2**30


def test_a_latent_cache_and_a_draft_model() -> None:
    text = f"""\
{P}Load weight end. elapsed=1 s, type=A, avail mem=60.00 GB, mem usage=10.00 GB.
{P}Load weight end. elapsed=1 s, type=B, avail mem=58.00 GB, mem usage=2.00 GB.
{P}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, KV size: 0.27 GB
{P}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, KV size: 0.02 GB
"""
    observation = read(text)
    assert printed(observation, "weights_bytes") == "10.00 GiB"
    assert printed(observation, "draft_weights_bytes") == "2.00 GiB"
    assert [shape(pool) for pool in observation.pools] == [
        ("kv", 4096, "0.27 GiB"),
        ("draft", 4096, "0.02 GiB"),
    ]
    assert printed(observation, "kv_bytes") == "0.27 GiB"
    assert observation.pools[0].k_dtype == "torch.bfloat16"


def test_states_and_late_pools() -> None:
    text = f"""\
{P}Mamba Cache is allocated. max_mamba_cache_size: 300, conv_state size: 0.12GB, ssm_state size: 9.87GB
{P}Use sliding window memory pool (all SWA). swa_layer_tokens=512
{P}Post-capture KV sizing: full_layer_tokens=1000, swa_layer_tokens=512
{P}Post-capture KV sizing: KV cache allocated. dtype: torch.float8_e4m3fn, #tokens: 1000, KV size: 4.00 GB, avail mem=1 GB
{P}Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, #tokens: 1000, KV size: 0.50 GB
"""
    observation = read(text)
    assert printed(observation, "mamba_slots") == "300"
    assert printed(observation, "mamba_conv_bytes") == "0.12 GiB"
    assert printed(observation, "mamba_ssm_bytes") == "9.87 GiB"
    assert printed(observation, "swa_tokens") == "512"
    assert [shape(pool) for pool in observation.pools] == [
        ("all", 1000, "4.00 GiB"),
        ("draft", 1000, "0.50 GiB"),
    ]
    assert printed(observation, "kv_bytes") == "4.00 GiB"


@pytest.mark.parametrize(
    ("text", "kind", "suggested"),
    [
        (
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.6. Raise "
            "--mem-fraction-static above 0.713 (minimum viable = 0.7125).",
            "weights-leave-nothing",
            "0.713",
        ),
        ("Not enough memory. Please try to increase --mem-fraction-static.", "no-memory-for-blocks", None),
    ],
)
def test_refusals(text: str, kind: str, suggested: str | None) -> None:
    refusal = read(f"{P}{text}\n").refusal
    assert refusal is not None
    assert refusal.kind == kind
    assert (refusal.suggested_fraction and refusal.suggested_fraction.printed) == suggested


def test_a_dict_of_arguments_and_two_starts() -> None:
    first = "[2026-03-01 09:00:00] server_args={'model_path': 'org/a', 'dp_size': 4, 'kv_cache_dtype': 'fp8_e4m3'}\n"
    second = first.replace("org/a", "org/b")
    rank = "[2026-03-01 09:00:09 DP3 PP1 TP2 EP2] Memory pool end. avail mem=5.00 GB\n"
    observation = read(first + rank + second + rank)
    assert observation.starts == 2
    assert observation.setting("model") == "org/b"
    assert observation.setting("data_parallel_size") == 4
    [(found, _)] = observation.figures("free_after_bytes")
    assert (found.dp, found.pp, found.tp, found.ep) == (3, 1, 2, 2)


def test_a_missing_number_is_none() -> None:
    observation = read(f"{P}max_total_num_tokens=777, chunked_prefill_size=None, max_prefill_tokens=16384\n")
    assert printed(observation, "kv_tokens") == "777"
    assert observation.settings["chunked_prefill_size"].value is None
    assert observation.setting("max_prefill_tokens") == 16384


def test_a_pool_without_its_size() -> None:
    observation = read(f"{P}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096\n")
    assert [shape(pool) for pool in observation.pools] == [("kv", 4096, None)]
    assert observation.get("kv_bytes") is None
