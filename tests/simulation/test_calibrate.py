"""Benchmarks of five writers say the same of one deployment, and step times follow them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.api.simulating import deployment
from kvplan.errors import KvplanError
from kvplan.files.benchmarks import read_benchmark
from kvplan.simulation.calibrate import calibrated, interval
from kvplan.simulation.load.generate import Asked, generated
from kvplan.simulation.served import FAST, LIKELY, SLOW
from tests.simulation.outcomes import simulated

# 8 requests at once of 1,000 + 101 tokens: 2 requests/s of 0.2 + 100 · 0.038 s each.
RATE, TTFT, TPOT, PROMPT, OUTPUT = 2.0, 0.2, 0.038, 1000, 101
VLLM = {
    "completed": 50, "total_input_tokens": 50 * PROMPT, "total_output_tokens": 50 * OUTPUT,
    "request_throughput": RATE, "mean_ttft_ms": TTFT * 1e3, "mean_tpot_ms": TPOT * 1e3,
}  # fmt: skip
AIPERF = {
    "time_to_first_token": {"unit": "ms", "avg": TTFT * 1e3},
    "inter_token_latency": {"unit": "ms", "avg": TPOT * 1e3},
    "input_sequence_length": {"unit": "tokens", "avg": PROMPT},
    "output_sequence_length": {"unit": "tokens", "avg": OUTPUT},
    "request_throughput": {"unit": "requests/sec", "avg": RATE},
}
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                name: {"successful": {"mean": value}}
                for name, value in (
                    ("time_to_first_token_ms", TTFT * 1e3), ("inter_token_latency_ms", TPOT * 1e3),
                    ("prompt_token_count", PROMPT), ("output_token_count", OUTPUT),
                    ("request_concurrency", 8),
                )
            }
        }
    ]
}  # fmt: skip
INFERENCE_PERF = {
    "successes": {
        "latency": {"time_to_first_token": {"mean": TTFT}, "time_per_output_token": {"mean": TPOT}},
        "throughput": {"requests_per_sec": RATE},
        "prompt_len": {"mean": PROMPT},
        "output_len": {"mean": OUTPUT},
    }
}
PROMETHEUS = f"""# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{{engine="0",model_name="m"}} 8.0
vllm:time_to_first_token_seconds_sum{{engine="0"}} {TTFT * 50}
vllm:time_to_first_token_seconds_count{{engine="0"}} 50.0
vllm:inter_token_latency_seconds_sum{{engine="0"}} {TPOT * 5000}
vllm:inter_token_latency_seconds_count{{engine="0"}} 5000
vllm:request_prompt_tokens_sum{{engine="0"}} {PROMPT * 50}
vllm:request_prompt_tokens_count{{engine="0"}} 50
vllm:request_generation_tokens_sum{{engine="0"}} {OUTPUT * 50}
vllm:request_generation_tokens_count{{engine="0"}} 50
"""
WRITERS: dict[str, Any] = {
    "vllm bench serve": VLLM, "AIPerf": AIPERF, "GuideLLM": GUIDELLM, "inference-perf": INFERENCE_PERF,
    "Prometheus": PROMETHEUS,
}  # fmt: skip


def _file(folder: Path, what: Any) -> Path:
    path = folder / "result"
    path.write_text(what if isinstance(what, str) else json.dumps(what), encoding="utf-8")
    return path


def test_loads_appended_to_one_file_are_all_read(tmp_path: Path) -> None:
    """vllm bench serve --append-result, and SGLang's bench_serving: an object a line."""
    faster = {**VLLM, "mean_tpot_ms": TPOT * 500}
    path = _file(tmp_path, f"{json.dumps(VLLM)}\n{json.dumps(faster)}\n")
    name, (first, second) = read_benchmark(path)
    assert (name, first.tpot, second.tpot) == ("vllm bench serve", TPOT, TPOT / 2)
    path.write_text(f"{json.dumps(VLLM)}\n{{broken}}\n", encoding="utf-8")
    with pytest.raises(KvplanError):
        read_benchmark(path)


def test_what_is_no_benchmark_says_what_is(tmp_path: Path) -> None:
    for text in ("Timestamp,Model\n1,2\n", "{}", '{"a": 1}\n{"b": 2}\n'):
        with pytest.raises(KvplanError, match="no benchmark") as caught:
            read_benchmark(_file(tmp_path, text))
        assert any("/metrics" in way for way in caught.value.help)
    idle = PROMETHEUS.replace('model_name="m"} 8.0', 'model_name="m"} 0.0')
    with pytest.raises(KvplanError, match="at once 0") as caught:
        read_benchmark(_file(tmp_path, idle))
    assert "at work" in caught.value.help[0]


def test_times_of_every_token_may_be_in_it(tmp_path: Path) -> None:
    detailed = {**VLLM, "itls": [[0.01] * 600] * 1000}
    assert read_benchmark(_file(tmp_path, detailed)) == read_benchmark(_file(tmp_path, VLLM))


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_is_read(writer: str, tmp_path: Path) -> None:
    name, (found,) = read_benchmark(_file(tmp_path, WRITERS[writer]))
    assert name == writer
    assert (found.prompt, found.output) == (PROMPT, OUTPUT)
    assert found.ttft == pytest.approx(TTFT)
    assert found.tpot == pytest.approx(TPOT)
    assert found.running == pytest.approx(8, rel=1e-3)


def test_steps_take_what_was_measured(tmp_path: Path) -> None:
    served, _ = deployment("llama-3.1-8b", gpu="h100", max_model_len=8192)
    speeds = calibrated(_file(tmp_path, VLLM), served)
    before, after = (one.clock(LIKELY).line(8, 8 * 1050)[0] for one in (served.speeds, speeds))
    assert 2 < after / before < 6  # estimated: some 10 ms, measured 38
    fast, likely, slow = (speeds.clock(name).line(8, 8 * 1050)[0] for name in (FAST, LIKELY, SLOW))
    assert fast < likely < slow
    assert slow / fast == pytest.approx(1.1**2, rel=0.01)
    assert "vllm bench serve" in speeds.source


def test_a_calibrated_simulation_is_as_slow_as_measured(tmp_path: Path) -> None:
    served, _ = deployment("llama-3.1-8b", gpu="h100", max_model_len=8192)
    speeds = calibrated(_file(tmp_path, VLLM), served)
    load = generated(Asked(requests=60, rate=RATE, input=PROMPT, output=OUTPUT))
    found = simulated(
        "llama-3.1-8b", trace=load, gpu="h100", max_model_len=8192, replicas=1, step_time=speeds,
        search=False, helps=False,
    )  # fmt: skip
    assert found.tpot(0.5).value == pytest.approx(TPOT, rel=0.15)


def test_an_interval_is_no_narrower_than_is_reached() -> None:
    assert interval([2.0], 0.1) == pytest.approx((2 / 1.1, 2.2))
    assert interval([1.0, 2.0, 5.0], 0.1) == (1.0, 5.0)


@pytest.mark.parametrize(
    "what",
    [{}, {"benchmarks": "none"}, {"completed": True, "mean_tpot_ms": 3}, "", "vllm:x 1\n", "[1]", "{",
     {**VLLM, "mean_tpot_ms": 1e9}, {**VLLM, "total_input_tokens": -5}, {**VLLM, "mean_tpot_ms": 4000}],
)  # fmt: skip
def test_what_is_no_benchmark_of_this_deployment(what: Any, tmp_path: Path) -> None:
    served, _ = deployment("llama-3.1-8b", gpu="h100", max_model_len=8192)
    with pytest.raises(KvplanError) as caught:
        calibrated(_file(tmp_path, what), served)
    assert caught.value.code in ("bad-benchmark", "bad-json")


def test_a_benchmark_scales_an_estimate(tmp_path: Path) -> None:
    served, _ = deployment("llama-3.1-8b", gpu="h100", max_model_len=8192, step_time="6ms")
    with pytest.raises(KvplanError, match="scales"):
        calibrated(_file(tmp_path, VLLM), served)
