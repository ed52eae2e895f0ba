"""What the engines' own code answered where kvplan once differed: blocks, tokens, bytes of weights, refusals.

The cases are of vLLM 0.25 to 0.33, SGLang 0.5.23 and transformers 5.24, asked on the CPU; each is asked as a
user asks it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.units import GIB
from tests.as_users import answer_of, reason_of
from tests.recorded import BESIDE

FILE = BESIDE / "data" / "exactness_cases.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["cases"] if FILE.is_file() else []
MISSES: dict[str, str] = {}
"""Cases that are not right, and why; a test fails when one becomes right."""
_GPUS = {"rtxpro6000": "rtx-pro-6000"}
_DRAFT = {
    "num_hidden_layers": 1, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
    "draft_vocab_size": 32000,
}  # fmt: skip

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not CASES, reason="the engines' answers are not beside this checkout"),
]


def _config(name: str) -> Path:
    return BESIDE / "configs" / name / "config.json"


def _written(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _pool(case: dict[str, Any], answer: dict[str, Any]) -> bool:
    pool, right = answer.get("pool") or {}, case["right"]
    counts = ("num_blocks", "kv_tokens")
    concurrency = pool.get("max_concurrency")
    return (
        all(pool.get(name) == right[name] for name in counts)
        and concurrency is not None
        and abs(float(concurrency) - float(right["max_concurrency"])) < 0.006
    )


def _size(*words: object) -> tuple[int, dict[str, Any]]:
    return answer_of("size", *words)


def prediction_layers(case: dict[str, Any], _folder: Path) -> tuple[bool, object]:
    asked = case["question"]
    tp = asked["tensor_parallel_size"]
    words: list[object] = [
        asked["model"], "-g", f"{asked['gpu']}x{tp}", "-e", case["engine"], "--tp", tp, "--kv-cache-memory",
        asked["kv_cache_memory"], "--max-model-len", asked["max_model_len"], "--speculative", "mtp:1",
    ]  # fmt: skip
    _, answer = _size(*words)
    return _pool(case, answer), answer.get("pool")


def weight_bytes(case: dict[str, Any], _folder: Path) -> tuple[bool, object]:
    asked = case["question"]
    tp, dp = asked.get("tensor_parallel_size", 1), asked.get("data_parallel_size", 1)
    words: list[object] = [
        _config(asked["config"]),
        "-e",
        case["engine"],
        "--max-num-seqs",
        asked["max_num_seqs"],
    ]
    words += ["-g", f"{asked['gpu']}x{tp * dp}", "--tp", tp, *(["--dp", dp] if dp > 1 else [])]
    if "max_model_len" in asked:
        words += ["--max-model-len", asked["max_model_len"]]
    _, answer = _size(*words)
    found = (answer.get("weights") or {}).get("bytes_per_gpu")
    return found == case["right"]["weight_bytes_per_gpu"], found


def command(case: dict[str, Any], _folder: Path) -> tuple[bool, object]:
    """A server's command with its pool given, and its weights within a hundredth."""
    asked, right = case["question"], case["right"]
    given = f"{asked['command']} --kv-cache-memory-bytes {asked['kv_cache_memory']}"
    code, answer = _size(given, "-g", asked["gpu"], "-e", case["engine"])
    if right["refused"]:
        return code == 1 and bool(reason_of(answer)), (code, reason_of(answer))
    batch = (answer.get("settings") or {}).get("max_num_batched_tokens")
    _, free = _size(asked["command"], "-g", asked["gpu"], "-e", case["engine"])
    weights, theirs = (free.get("weights") or {}).get("bytes_per_gpu"), right["param_bytes_per_rank"][0]
    near = weights is not None and abs(weights - theirs) * 100 <= theirs
    return _pool(case, answer) and batch == right["max_num_batched_tokens"] and near, (
        answer.get("pool"), batch, weights,
    )  # fmt: skip


def sglang(case: dict[str, Any], folder: Path) -> tuple[bool, object]:
    asked, right = case["question"], case["right"]
    words = ["python", "-m", "sglang.launch_server", "--model-path", str(_config(asked["config"]).parent)]
    for key, value in asked["args"].items():
        if key == "speculative_draft_model_path":
            target = json.loads(_config(asked["config"]).read_text("utf-8"))
            value = _written(folder / "draft", {**target, **_DRAFT})
        words += ["--" + key.replace("_", "-"), *([] if value is True else [str(value)])]
    gpu = f"{_GPUS.get(asked['gpu'], asked['gpu'])}x{asked['args'].get('tp_size', 1)}"
    _, answer = _size(shlex.join(words), "-g", gpu, "-e", case["engine"])
    found = answer.get("settings") or {}
    if "mem_fraction_static" in right:
        share = float(found.get("mem_fraction_static") or 0)
        return abs(share - float(right["mem_fraction_static"])) < 0.0006, share
    requests = found.get("max_running_requests")
    return requests == right["max_running_requests"], (requests, reason_of(answer))


def act_order(case: dict[str, Any], folder: Path) -> tuple[bool, object]:
    config = json.loads(_config(case["question"]["config"].split()[0]).read_text("utf-8"))
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True,
    }  # fmt: skip
    code, answer = _size(_written(folder, config), "-g", case["question"]["gpu"], "-e", case["engine"])
    return code == 1 and "desc_act" in reason_of(answer), (code, reason_of(answer))


def library(case: dict[str, Any], folder: Path) -> tuple[bool, object]:
    asked = case["question"]
    config = {**asked["config"], "architectures": asked["architectures"]}
    path = _written(folder, config)
    found = []
    for one in case["right"]:
        words = ["-t", one["seq_len"], "-n", one["batch"], "--dtype", one["dtype"]]
        _, answer = _size(path, "-e", case["engine"], *words)
        found.append((answer.get("per_gpu") or {}).get("kv_bytes"))
    return found == [one["bytes"] for one in case["right"]], found


def workspace(case: dict[str, Any], _folder: Path) -> tuple[bool, object]:
    """Refused with a reason, or an interval that has what was printed."""
    asked = case["question"]
    words: list[object] = [
        asked["model"], "-g", asked["gpu"], "-e", case["engine"], "--kv-cache-dtype", "fp8",
        "--max-model-len", asked["max_model_len"], "--max-num-batched-tokens", 8192, "--max-num-seqs", 8,
        "--gpu-memory-utilization", "0.92", "--moe-backend", "flashinfer_b12x",
    ]  # fmt: skip
    code, answer = _size(*words)
    budget = answer.get("budget") or {}
    low, high = budget.get("kv_pool_low_bytes"), budget.get("kv_pool_high_bytes")
    inside = low is not None and low <= case["right"]["pool_gib"] * GIB <= high
    return inside or (code == 1 and bool(reason_of(answer))), (code, low, high)


def build_by_name(case: dict[str, Any], _folder: Path) -> tuple[bool, object]:
    asked, theirs = case["question"], case["right"]["kv_tokens_about"]
    words: list[object] = [asked["model"], "-g", f"{asked['gpu']}x2", "-e", case["engine"], "--tp", 2]
    _, answer = _size(*words, "--max-model-len", asked["max_model_len"])
    tokens = (answer.get("pool") or {}).get("kv_tokens")
    return tokens is not None and abs(tokens - theirs) * 10 < theirs, tokens


ASKED: dict[str, Callable[[dict[str, Any], Path], tuple[bool, object]]] = {
    "mtp-missing-on-card": prediction_layers,
    "moe-bf16-padding-blackwell": weight_bytes,
    "dp-without-ep-kimi-linear": weight_bytes,
    "no-enable-chunked-prefill": command,
    "disable-sliding-window": command,
    "kv-transfer-config": command,
    "kv-cache-dtype-skip-layers": command,
    "eplb-redundant-experts": command,
    "sglang-tree-draft": sglang,
    "sglang-two-batch-overlap": sglang,
    "gptq-desc-act": act_order,
    "transformers-5.24": library,
    "b12x-workspace": workspace,
    "kv-dtype-of-a-build-by-name": build_by_name,
}
"""Kind of case → what asks it and judges the answer."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_as_the_engine_answers(case: dict[str, Any], tmp_path: Path) -> None:
    right, found = ASKED[case["kind"]](case, tmp_path)
    if case["id"] in MISSES:
        assert not right, f"right by now: take it off the list ({MISSES[case['id']]})"
    else:
        assert right, f"{case['kind']}: {str(case['right'])[:300]}; kvplan {found}"


def test_misses_are_cases() -> None:
    assert set(MISSES) <= {case["id"] for case in CASES}
