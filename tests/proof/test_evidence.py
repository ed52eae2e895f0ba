"""The receipts of examples/evidence: as measured, confirmed, and still what kvplan answers today."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.plans.receipt import CONFIRMED, PROOF
from kvplan.units import MIB
from tests.gpu.table import read, reasons, with_parts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "evidence"
MEASURED = {
    "agents-qwen3-32b-h200": "b3bcd4a3758877c7b1a178dcaac8674bec720f00a8160c74ee0a4ee0698fbfe1",
    "chat-llama-3.1-8b-h100": "2483d7d10579b350b8bb0996e211bd4e0ccce4e9f3e614b2efd60dfd37e31c9b",
    "chat-llama-3.1-8b-h100-vllm": "1eef531d54943d29aee5892647b9df0433e4c33031826d31e68b159e9fad320f",
    "deepseek-v2-lite-h100": "a6910a11f3c8e1500ff6aadee3eb47a019d75ae493f35b125b089b1e8bec42c9",
    "deepseek-v2-lite-h200": "4b98640ca251a570390cad6d735901f0943ca1ae7fe8f150b6f88ce7a71e1bfc",
    "falcon-h1-7b-h200": "58fcd0d8b105adbd369505782ef49ec184d1fb5b2e1c920db9c6d16e1b984825",
    "gemma-3-27b-h100": "db36b04c4dc32c77689e5e8cf83dd2f52f38e08ae9a0cb6143fbeb9a7ce74641",
    "gemma-3-27b-h200": "2f16a498b3317dda29db18e58f3e23826c01a7a324d7044f2caf64f6fd8f99f0",
    "kernels-gemma-3-27b-h200": "3cf15e61979e554ee83a575ff80fa56c9014c071cb0616043178c7df20ce0234",
    "kernels-llama-3.1-8b-h200": "1f05930ca0bc5edb0248124abd0ea8fdbd06c49a6a228c7420b8221a0be4231a",
    "llama-2-7b-h200": "50a4b9fd6a1b663b2c3b0ed8886ce993f3f4bd3d9cc2ae3a0ed7f75b3eda4df8",
    "llama-3.1-8b-fp8-h200": "5d785ee2d10da8acac59d43eceaca9c6feed8f8ce279cf2158a56885d9466aef",
    "llama-3.1-8b-h200": "3e34682120244ef2043016918f39dd4689870fb60e57ee8373a7d9b7ca81ec36",
    "qwen3-32b-fp8-kv-fp8-h100": "42b7e126b9a816c07fd03d48b13550f0337eaa09acac61fe5036c798412dc645",
    "qwen3-30b-a3b-h200": "98d89862e0ac56eaaa10a52b543f5eb42ee268376d7a5fdbd9dbba8c769b52e5",
    "qwen3-next-80b-a3b-h200": "0057cdd2998bcaf122428bd80390d9c78b1cfab3e387627740015678d7cc809a",
    "rag-llama-3.1-8b-128k-h200": "a7a5b0071afb5d16cf70275a205571dc8c22c4d3be03d346599aa3a4d99e061f",
    "rag-llama-3.1-8b-128k-h200-vllm": "381c1ad01bd87c643a6a49a1d226f5c8c4f0d0788bda3f761bf9ad77ba700f8a",
    "smoke-llama-3.1-8b-h200": "95c5a7b5db2ba699c8684cf8a28f2742f52411ab67cbf8cb93bff25c8e74779a",
    "triton-llama-3.1-8b-h200": "6a28bfbccd58e609683d6ce6db0832a47c7860956a795cc91b6916fb4523ff3f",
}
"""File → the digest of its bytes, as they came from the GPU."""
PLANS = (
    *("agents-qwen3-32b-h200", "rag-llama-3.1-8b-128k-h200"),
    *("chat-llama-3.1-8b-h100", "qwen3-32b-fp8-kv-fp8-h100"),
)
BY_VLLM = {"rag-llama-3.1-8b-128k-h200-vllm": PLANS[1], "chat-llama-3.1-8b-h100-vllm": PLANS[2]}
"""Receipts of vLLM itself → their plans."""
SERVED = "chat-llama-3.1-8b-h100-vllm"
MODELS = {
    "deepseek-v2-lite-h100": ("deepseek-v2-lite",),
    "deepseek-v2-lite-h200": ("deepseek-v2-lite",),
    "gemma-3-27b-h100": ("gemma-3-27b",),
    "falcon-h1-7b-h200": ("falcon-h1-7b",),
    "gemma-3-27b-h200": ("gemma-3-27b",),
    "kernels-gemma-3-27b-h200": ("gemma-3-27b",),
    "kernels-llama-3.1-8b-h200": ("llama-3.1-8b",),
    "llama-2-7b-h200": ("llama-2-7b",),
    "llama-3.1-8b-fp8-h200": ("llama-3.1-8b", "--kv-cache-dtype", "fp8"),
    "llama-3.1-8b-h200": ("llama-3.1-8b",),
    "qwen3-30b-a3b-h200": ("qwen3-30b-a3b",),
    "qwen3-next-80b-a3b-h200": ("qwen3-next-80b-a3b",),
    "smoke-llama-3.1-8b-h200": ("llama-3.1-8b",),
    "triton-llama-3.1-8b-h200": ("llama-3.1-8b",),
}
KERNELS = {
    "chat-llama-3.1-8b-h100": ("kvplan.triton", "flex_attention"),
    "deepseek-v2-lite-h100": ("kvplan.triton",),
    "gemma-3-27b-h100": ("kvplan.triton", "flex_attention"),
    "kernels-gemma-3-27b-h200": ("vllm.unified_attention", "flex_attention"),
    "kernels-llama-3.1-8b-h200": ("vllm.unified_attention", "flex_attention"),
    "qwen3-32b-fp8-kv-fp8-h100": ("kvplan.triton",),
    "triton-llama-3.1-8b-h200": ("kvplan.triton", "flex_attention"),
}
"""What read the pages in place, of every kind of layer; FlexAttention reads no latents and no 8-bit cache."""
LATER = tuple(KERNELS)
"""Written after the probe sampled as the engine does, and after kernels that did not run were mended."""
HOPPER_WORKSPACE = 32 * MIB


def _figures(name: str) -> dict[str, dict[str, Any]]:
    receipt = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return {one["name"]: one for one in receipt["figures"]}


def test_every_receipt_is_as_it_was_measured() -> None:
    found = {path.stem: path for path in FOLDER.glob("*.json")}
    assert found.keys() == MEASURED.keys() == {*PLANS, *MODELS, *BY_VLLM}
    for name, path in found.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == MEASURED[name], name


@pytest.mark.parametrize("name", MEASURED)
def test_every_receipt_is_whole_and_confirmed(name: str) -> None:
    one = read(FOLDER / f"{name}.json")
    assert not reasons(one)
    assert one.receipt is not None
    assert (one.receipt.kind, one.receipt.verdict) == (PROOF, CONFIRMED)
    assert all(figure.agrees for figure in one.receipt.figures)


def _requests(words: list[str], pool: int, capsys: pytest.CaptureFixture[str]) -> int:
    assert main(["validate", *words, "--kv-cache-memory", str(pool), "--dry-run", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    return int(rank["requests"])


@pytest.mark.parametrize("name", [*PLANS, *MODELS])
def test_todays_answer_is_what_was_measured(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same plan by its hash: bytes, segments, blocks and requests."""
    receipt = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    if name in PLANS:
        words = [str(ROOT / "examples" / "plans" / f"{name}.yaml")]
    else:
        pool = str(receipt["settings"]["kv_cache_memory"])
        words = [*MODELS[name], "--weights", "0B", "--kv-cache-memory", pool]
    assert main(["validate", *words, "--dry-run", "--json"]) == 0
    today = json.loads(capsys.readouterr().out)
    (rank,), figures = today["ranks"], _figures(name)
    assert today["plan_hash"] == receipt["plan_hash"]
    if name in PLANS:  # their pool is the budget's estimate, which may move within its interval
        assert rank["weights_bytes"] == figures["weights_bytes"]["measured"]
        assert main(["size", *words, "--json"]) == 0
        budget = json.loads(capsys.readouterr().out)["budget"]
        least, most = (_requests(words, budget[f"kv_pool_{end}_bytes"], capsys) for end in ("low", "high"))
        assert least <= figures["requests"]["measured"] <= most
        pool = str(receipt["settings"]["kv_cache_memory"])
        assert main(["validate", *words, "--kv-cache-memory", pool, "--dry-run", "--json"]) == 0
        (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    for ours, theirs in (("pool_bytes", "pool_bytes"), ("pool_reserved_bytes", "pool_reserved_bytes"),
                         ("requests", "requests"), ("weights_bytes", "weights_bytes")):  # fmt: skip
        if theirs in figures:
            assert rank[ours] == figures[theirs]["measured"], ours
    assert rank["num_blocks"][0] == figures["rank_blocks_0"]["measured"]
    assert today["tokens"] == receipt["settings"]["tokens"]


@pytest.mark.parametrize("name", LATER)
def test_the_kernels_that_read_the_pages(name: str) -> None:
    """Every kind of layer, read in place by the kernels that were there that day."""
    checks = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["attention"]
    kinds = {one["kind"] for one in checks}
    for kernel in KERNELS[name]:
        ran = [one for one in checks if one["kernel"] == kernel and not one["note"]]
        assert {one["kind"] for one in ran} == kinds
        assert all(one["error"] < one["tolerance"] for one in ran)
    decided = "vllm.unified_attention" in KERNELS[name]
    assert ("engine_kernels_wrong" in _figures(name)) == decided


@pytest.mark.parametrize("name", BY_VLLM)
def test_todays_budget_encloses_what_vllm_measured(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its pool and blocks within today's interval; of its own pool the blocks and requests are exact."""
    figures = _figures(name)
    plan = str(ROOT / "examples" / "plans" / f"{BY_VLLM[name]}.yaml")
    assert main(["size", plan, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    budget, block = answer["budget"], answer["pool"]["bytes_per_block"]
    pool, blocks = figures["engine_pool_bytes"]["measured"], figures["engine_num_blocks"]["measured"]
    assert budget["kv_pool_low_bytes"] <= pool <= budget["kv_pool_high_bytes"]
    assert budget["kv_pool_low_bytes"] // block <= blocks <= budget["kv_pool_high_bytes"] // block
    assert main(["validate", plan, "--kv-cache-memory", str(pool), "--dry-run", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert rank["num_blocks"] == [blocks] == [figures["engine_blocks_in_its_pool"]["predicted"]]
    assert rank["pool_bytes"] == figures["engine_cache_bytes"]["measured"]
    assert rank["requests"] == figures["engine_requests"]["measured"]
    assert figures["engine_weights_bytes"]["measured"] == answer["weights"]["bytes_per_gpu"]


@pytest.mark.parametrize("name", BY_VLLM)
def test_the_run_with_vllm_says_what_ran(name: str) -> None:
    receipt = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    run, gpu = receipt["engine_run"], "NVIDIA H100 80GB HBM3" if "h100" in name else "NVIDIA H200"
    assert (run["name"], run["version"], run["torch"]) == ("vllm", "0.33.0", "2.14.0+cu130")
    assert (run["device"], run["layers"], run["taken"]) == (gpu, None, {})
    reported = {one["name"] for one in receipt["figures"] if one["class"] == "reported"}
    reported = {one for one in reported if not one.startswith("served_")}
    assert reported == {"engine_activation_bytes", "engine_consumed_bytes", "engine_graphs_bytes"}
    assert all(one["low"] <= one["measured"] <= one["high"] for one in receipt["figures"] if "low" in one)


def test_its_server_ran_as_many_requests_at_once_as_the_plan_says() -> None:
    """All of them sent together, each of the plan's length: running at once, none preempted, all answered."""
    figures = _figures(SERVED)
    requests = figures["engine_requests"]["predicted"]
    assert figures["served_running_peak"]["measured"] == requests == figures["engine_requests"]["measured"]
    assert figures["served_requests"]["measured"] == requests
    assert figures["served_preemptions"]["measured"] == 0
    assert figures["served_answers_of_another_length"]["measured"] == 0
    assert figures["served_log_lines_that_differ"]["measured"] == 0


def test_no_receipt_tells_of_the_machine_that_wrote_it() -> None:
    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(root|home|tmp|work|mnt|opt)\b|uuid|GPU-[0-9a-f]{8}", text), path.name


EVIDENCE = {name: name for name in PLANS} | {plan: name for name, plan in BY_VLLM.items()}


@pytest.mark.parametrize("name", PLANS)
def test_the_worked_plans_stand_on_their_receipts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ROOT / "examples" / "plans" / f"{name}.yaml"
    assert f"../evidence/{EVIDENCE[name]}.json" in plan.read_text(encoding="utf-8")
    assert main(["check", str(plan)]) == 0
    where = "H100 80GB HBM3, 2026-11-27" if "h100" in name else "H200, 2026-11-26"
    did = "allocated" if EVIDENCE[name] == name else "measured"  # by kvplan itself, or by an engine
    assert f"{did} on NVIDIA {where}, by " in " ".join(capsys.readouterr().out.split())
    assert main(["check", str(plan), "--json"]) == 0
    (proof,) = json.loads(capsys.readouterr().out)["plans"][0]["evidence"]
    said = {one["name"]: one["measured"] for one in proof["facts"]}
    figures = _figures(EVIDENCE[name])
    wanted = {one: figures.get(f"engine_{one}", figures.get(one, {})).get("measured") for one in said}
    assert said == wanted
    assert len(said) == 2


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_receipts_count_as_their_evidence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / f"{name}.yaml"
    path = os.path.relpath(FOLDER / f"{name}.json", tmp_path)
    text = (ROOT / "examples" / "plans" / f"{name}.yaml").read_text(encoding="utf-8")
    text = text[: text.index("evidence: ")]
    plan.write_text(f"{text}\nevidence: {{path: {path}, max_age: 36500d}}\n", encoding="utf-8")
    assert main(["check", str(plan)]) == 0, capsys.readouterr()
    other = next(one for one in PLANS if one != name)
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.replace(f"{name}.json", f"{other}.json"), encoding="utf-8")
    assert main(["check", str(plan)]) == 1


@pytest.mark.parametrize("name", ["docs/validate.md", "docs/tour.md", "README.md"])
def test_pages_say_what_the_receipts_say(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    found = [read(path) for path in sorted(FOLDER.glob("*.json"))]
    fresh = with_parts(page, found)
    again = "python -m tests.gpu.table examples/evidence --write docs/validate.md docs/tour.md README.md"
    assert fresh == page, again
    marks = {"README.md": "<!-- evidence in a line -->", "docs/tour.md": "<!-- evidence in a sentence -->"}
    if name in marks:
        assert marks[name] in page
    else:
        assert all(f"| {one} |" in page for one in MEASURED)
