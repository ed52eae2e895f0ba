"""Results of load generators as measurements of a deployment: what ran, and how long tokens took."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.json_input import check_text, parse_json, read_limited
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import MIB

_LIMIT = 64 * MIB
_VALUES = 10_000_000
"""Results may hold the times of every token (--save-detailed)."""
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}
_TPOT = ("request_time_per_output_token", "inter_token_latency", "time_per_output_token")
_SAMPLE = regex(r"^(vllm:\w+?)(?:\{[^}]*\})?\s+([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*$", re.MULTILINE)


@record()
class Measured:
    """Means of one load. running: requests at once; prompt, output: tokens; ttft, tpot: seconds."""

    running: float
    prompt: float
    output: float
    ttft: float
    tpot: float


def read_benchmark(path: Path) -> tuple[str, tuple[Measured, ...]]:
    """(who wrote it, measurements). Raises KvplanError(bad-benchmark, no-such-file …)."""
    data = read_limited(path, _LIMIT)
    check_text(data, str(path))
    if not data.lstrip().startswith(b"{"):
        found = _prometheus(data.decode("utf-8", "replace"), path)
        return "Prometheus", (found,)
    entries = _entries(data, path)
    for name, read in (("vllm bench serve", _vllm), ("AIPerf", _aiperf), ("GuideLLM", _guidellm),
                       ("inference-perf", _inference_perf)):  # fmt: skip
        measured = tuple(one for entry in entries for one in read(entry))
        if measured:
            return name, tuple(_checked(one, path) for one in measured)
    raise _unknown(path)


def _unknown(path: Path) -> KvplanError:
    return KvplanError(
        "bad-benchmark", f"{path} is no benchmark that kvplan reads",
        help="results of vllm bench serve, AIPerf, GuideLLM or inference-perf, a vLLM server's /metrics, or"
        " its log with --enable-logging-iteration-details",
    )  # fmt: skip


def _entries(data: bytes, path: Path) -> list[Mapping[str, object]]:
    """The object of the file, or one of each line."""
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) > 1 and all(line.strip()[:1] == b"{" and line.strip()[-1:] == b"}" for line in lines):
        return [_parsed(line, path) for line in lines]
    return [_parsed(data, path)]


def _parsed(data: bytes, path: Path) -> Mapping[str, object]:
    return parse_json(data, name=str(path), limit=_LIMIT, most=_VALUES)


def _checked(one: Measured, path: Path) -> Measured:
    values = (one.running, one.prompt, one.output, one.ttft, one.tpot)
    if not any(values):
        raise _unknown(path)
    if not all(isfinite(value) and value > 0 for value in values) or max(values) > 10**9:
        raise KvplanError(
            "bad-benchmark", f"{path} lacks a figure: at once {one.running:g}, prompt {one.prompt:g},"
            f" output {one.output:g} tokens, TTFT {one.ttft:g} s, TPOT {one.tpot:g} s",
            help=() if one.running else "read /metrics while the server is at work",
        )  # fmt: skip
    return one


def _number(entry: object, *path: str) -> float:
    """A number at a path of keys; 0 where there is none."""
    for key in path:
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return float(entry) if isinstance(entry, (int, float)) and not isinstance(entry, bool) else 0.0


def _running(per_second: float, ttft: float, tpot: float, output: float) -> float:
    """Requests at once by Little's law, where they are not said."""
    return max(1.0, per_second * (ttft + tpot * max(output - 1, 0)))


def _vllm(entry: Mapping[str, object]) -> Iterator[Measured]:
    """``vllm bench serve --save-result`` (vllm-project/vllm vllm/benchmarks/serve.py), with --append-result
    an object a line; sgl-project/sglang python/sglang/bench_serving.py writes the same keys."""
    done = _number(entry, "completed")
    ttft, tpot = _number(entry, "mean_ttft_ms") / 1e3, _number(entry, "mean_tpot_ms") / 1e3
    if not done or not tpot:
        return
    prompt, output = (_number(entry, f"total_{side}_tokens") / done for side in ("input", "output"))
    yield Measured(
        _running(_number(entry, "request_throughput"), ttft, tpot, output), prompt, output, ttft, tpot
    )


def _metric(entry: Mapping[str, object], name: str) -> float:
    found = entry.get(name)
    unit = found.get("unit") if isinstance(found, Mapping) else None
    return _number(entry, name, "avg") * _UNITS.get(str(unit), 1.0)


def _aiperf(entry: Mapping[str, object]) -> Iterator[Measured]:
    """``profile_export_aiperf.json``: each metric with a unit and an average."""
    ttft, tpot = _metric(entry, "time_to_first_token"), _metric(entry, "inter_token_latency")
    if not tpot:
        return
    prompt, output = (_metric(entry, f"{side}_sequence_length") for side in ("input", "output"))
    yield Measured(
        _running(_metric(entry, "request_throughput"), ttft, tpot, output), prompt, output, ttft, tpot
    )


def _guidellm(entry: Mapping[str, object]) -> Iterator[Measured]:
    """``benchmarks[].metrics.….successful.mean``."""
    runs = entry.get("benchmarks")
    for run in runs if isinstance(runs, list) else ():
        metrics = run.get("metrics") if isinstance(run, Mapping) else None
        if not isinstance(metrics, Mapping):
            continue

        def mean(name: str, metrics: Mapping[str, object] = metrics) -> float:
            return _number(metrics, name, "successful", "mean")

        ttft, tpot = mean("time_to_first_token_ms") / 1e3, mean("inter_token_latency_ms") / 1e3
        output = mean("output_token_count")
        running = mean("request_concurrency") or _running(mean("requests_per_second"), ttft, tpot, output)
        if tpot:
            yield Measured(max(1.0, running), mean("prompt_token_count"), output, ttft, tpot)


def _inference_perf(entry: Mapping[str, object]) -> Iterator[Measured]:
    done = entry.get("successes")
    if not isinstance(done, Mapping):
        return
    ttft = _number(done, "latency", "time_to_first_token", "mean")
    tpot = _number(done, "latency", "time_per_output_token", "mean")
    prompt, output = (_number(done, f"{side}_len", "mean") for side in ("prompt", "output"))
    if tpot:
        rate = _number(done, "throughput", "requests_per_sec")
        yield Measured(_running(rate, ttft, tpot, output), prompt, output, ttft, tpot)


def _prometheus(text: str, path: Path) -> Measured:
    """All label sets of one name together."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        sums[name] = sums.get(name, 0.0) + float(value)

    def mean(*names: str) -> float:
        for name in names:
            if sums.get(f"vllm:{name}_count"):
                return sums.get(f"vllm:{name}_sum", 0.0) / sums[f"vllm:{name}_count"]
        return 0.0

    found = Measured(
        sums.get("vllm:num_requests_running", 0.0),
        mean("request_prompt_tokens"),
        mean("request_generation_tokens"),
        mean("time_to_first_token_seconds"),
        mean(*(f"{name}_seconds" for name in _TPOT)),
    )  # fmt: skip
    return _checked(found, path)
