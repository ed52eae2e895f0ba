"""Engines that make builds of a model (GGUF mixtures): the planner chooses by quality and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.cli import main
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.planning.quality import BUILDS
from kvplan.planning.results import Option

ENGINE = "llamacpp"
NAMED = "bartowski/Llama-3.3-70B-Instruct-GGUF:Q5_K_M"


def builds(quality: str, gpu: str = "rtx-3090", card: str = "llama-3.3-70b") -> tuple[Option, ...]:
    return kvplan.plan(card, tokens="8k", gpu=gpu, quality=quality, engine=ENGINE).options


@pytest.mark.parametrize(
    ("quality", "best"), [("lossless", (7, "f16")), ("safe", (3, "q6_k")), ("aggressive", (2, "q4_k_m"))]
)
def test_the_build_that_needs_the_fewest_gpus(quality: str, best: tuple[int, str]) -> None:
    """70.6 B parameters: 131.4 GiB in 16 bits, 53.9 in q6_k, 39.6 in q4_k_m; 23.6 GiB a GPU, 1 of it free."""
    options = builds(quality)
    assert (options[0].gpus, options[0].weights) == best
    allowed = {name for name, about in BUILDS.items() if about.allowed(quality)}
    assert {one.weights for one in options} <= allowed


def holds_safely(card: str, gpus: int, build: str) -> bool:
    """By the engine's own answer, in the safe pool."""
    gpu = f"{gpus}xrtx-3090"
    likely = kvplan.size(card, engine=ENGINE, gpu=gpu, tokens=8192, max_model_len=8192, quantization=build)
    if likely.refusal is not None or likely.budget is None or not likely.budget.kv_pool_low_bytes:
        return False
    pool = likely.budget.kv_pool_low_bytes
    safe = kvplan.size(card, engine=ENGINE, gpu=gpu, tokens=8192, quantization=build, kv_cache_memory=pool)
    return safe.refusal is None


@pytest.mark.parametrize("card", ["llama-3.3-70b", "qwen3-32b", "gemma-3-27b"])
@pytest.mark.parametrize("quality", ["lossless", "safe", "aggressive"])
def test_no_allowed_build_needs_fewer_gpus(card: str, quality: str) -> None:
    """Layers are dealt over any number of GPUs, from one to eight."""
    known = {name: about for name, about in BUILDS.items() if name in traits_of(ENGINE).builds}
    allowed = [name for name, about in known.items() if about.allowed(quality) and name != "mxfp4_moe"]
    least = next(count for count in range(1, 9) if any(holds_safely(card, count, build) for build in allowed))
    best = builds(quality, card=card)[0]
    assert best.gpus == least
    assert holds_safely(card, least, best.weights)


def test_a_build_that_the_user_names_is_the_only_one() -> None:
    found = kvplan.plan("llama-3.3-70b", tokens="8k", gpu="rtx-3090", quantization="q5_k_m", engine=ENGINE)
    assert {one.weights for one in found.options} == {"q5_k_m"}
    assert dict(found.options[0].serve)["quantization"] == "q5_k_m"


def test_what_was_published_in_mxfp4_stays_so() -> None:
    found = kvplan.plan("gpt-oss-20b", tokens="8k", gpu="rtx-4090", engine=ENGINE)
    assert {one.weights for one in found.options} == {"mxfp4"}
    assert found.options[0].quality == "lossless"


def test_the_plan_is_checked_and_starts_the_file_of_its_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    words = ["plan", "llama-3.3-70b", "-e", "llamacpp", "-t", "8k", "-g", "3090", "--write", str(path)]
    assert main(words) == 0
    assert "quantization: q6_k" in path.read_text()
    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    assert main(["export", str(path)]) == 0
    assert "--model Llama-3.3-70B-Instruct-Q6_K.gguf" in capsys.readouterr().out


def test_the_name_of_a_build_is_a_model_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ollama's and Hugging Face's names: llama.cpp without -e, that mixture and no other."""
    for name, build in (
        ("ollama:llama3.3:70b", "q4_k_m"),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:Q5_K_M", "q5_k_m"),
    ):
        assert kvplan.size(name, gpu="2xrtx-3090").engine.name == ENGINE
        found = kvplan.plan(name, tokens="8k", gpu="rtx-3090")
        assert {one.weights for one in found.options} == {build}
        plain = {one.quality for one in found.options if one.kv_cache_dtype == "auto"}
        assert plain == {"lossless"}
    path = tmp_path / "plan.yaml"
    words = [
        "plan",
        "bartowski/Llama-3.3-70B-Instruct-GGUF:Q5_K_M",
        "-t",
        "8k",
        "-g",
        "3090",
        "--write",
        str(path),
    ]
    assert main(words) == 0
    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    assert main(["export", str(path)]) == 0
    assert f"--hf-repo {NAMED}" in capsys.readouterr().out


def test_a_plan_that_waits_for_host_memory_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """No GPUs hold it whole: the engine starts it, every token waits, and one machine has all GPUs."""
    assert main(["plan", "deepseek-v3", "-e", ENGINE, "-g", "rtx-3090", "-n", "1", "-t", "8k"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "slowly: 359.62 GiB of weights and cache lie in host memory" in said
    assert "--tensor-split 5,3,2,2,3,2,1,44 " in said
    assert "nodes" not in said
    best = kvplan.plan("deepseek-v3", engine=ENGINE, gpu="rtx-3090", requests=1, tokens=8192).options[0]
    assert (best.gpus, best.nodes, best.host_bytes >> 30) == (8, 1, 359)
    assert all(one.host_bytes == 0 for one in builds("safe"))


@pytest.mark.parametrize("asked", [{"tpot": 0.05}, {"arrival": 1, "ttft": 2, "tpot": 0.05}])
@pytest.mark.parametrize("gpu", ["rtx-4090", "m4-max-64gb"])
def test_times_that_are_not_estimated_are_no_no(asked: dict[str, Any], gpu: str) -> None:
    """The answer was that nothing keeps them; and a format that another engine loads too had its times."""
    with pytest.raises(KvplanError, match="are not estimated") as caught:
        kvplan.plan("qwen3-8b", gpu=gpu, engine=ENGINE, tokens=1200, **asked)
    assert caught.value.exit_code == 2
    found = kvplan.plan("gpt-oss-20b", gpu=gpu, engine=ENGINE, tokens=8192).options[0]
    assert (found.weights, found.speed) == ("mxfp4", None)
