"""Where no engine is named every command and Python take the same one; one that is named says the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan.architectures.builds import FORMS
from kvplan.engines import DEFAULT_ENGINE, GGUF_ENGINE
from kvplan.engines.llamacpp.gguf_file.ggml_types import ALIASES, MIXTURES
from kvplan.files.cards.find import list_names
from kvplan.files.cards.ollama_names import OLLAMA, library_name
from kvplan.model import is_gguf_build
from tests.cli.conftest import Run

MAC, CARD = "m4-max-64gb", "rtx-4090"
ASKED: dict[str, dict[str, Any]] = {
    "a GGUF name": {"model": "bartowski/Qwen3-8B-GGUF:Q4_K_M", "gpu": CARD},
    "a build": {"model": "qwen3-8b", "quantization": "q4_k_m", "gpu": CARD},
    "a build in capitals": {"model": "qwen3-8b", "quantization": "IQ4_XS", "gpu": CARD},
    "a Mac": {"model": "qwen3-8b", "gpu": MAC},
    "two Macs": {"model": "qwen3-8b", "gpu": f"{MAC},m3-max-36gb"},
    "a name of Ollama's": {"model": "qwen3:8b", "gpu": CARD},
    "a bare name of Ollama's": {"model": "llama3.2", "gpu": CARD},
}
OTHERS: dict[str, dict[str, Any]] = {
    "a card": {"model": "qwen3-8b", "gpu": "h100"},
    "fp8": {"model": "qwen3-8b", "quantization": "fp8", "gpu": "h100"},
    "mxfp4": {"model": "gpt-oss-20b", "quantization": "mxfp4", "gpu": "h100"},
    "a Mac among others": {"model": "qwen3-8b", "gpu": f"h100,{MAC}"},
}


def words(asked: dict[str, Any]) -> list[str]:
    rest = (("--quantization", asked.get("quantization")), ("--gpu", asked["gpu"]))
    return [asked["model"], "-t", "4k", *(word for flag, value in rest if value for word in (flag, value))]


def engines(run: Run, command: str, asked: dict[str, Any]) -> set[str]:
    ran = run(command, *words(asked), *(["-n", "1"] if command == "plan" else []), "--json")
    assert ran.code in (0, 1), ran.err
    data = json.loads(ran.out)
    found = data.get("engine") or data.get("engines") or data.get("options")
    text = json.dumps(found if found else data)
    return {name for name in (GGUF_ENGINE, DEFAULT_ENGINE) if f'"{name}' in text}


@pytest.mark.parametrize("command", ["size", "explain", "plan"])
@pytest.mark.parametrize("kind", [*ASKED, *OTHERS])
def test_a_command(run: Run, kind: str, command: str) -> None:
    asked = (ASKED | OTHERS)[kind]
    if command == "explain" and "," in asked["gpu"]:
        return
    assert engines(run, command, asked) == {GGUF_ENGINE if kind in ASKED else DEFAULT_ENGINE}


@pytest.mark.parametrize("kind", [*ASKED, *OTHERS])
def test_python(kind: str) -> None:
    asked = dict((ASKED | OTHERS)[kind])
    expected = GGUF_ENGINE if kind in ASKED else DEFAULT_ENGINE
    model, gpu = asked.pop("model"), asked.pop("gpu")
    planned = kvplan.plan(model, gpu=gpu, tokens=4096, requests=1, **asked)
    assert {one.engine.partition("@")[0] for one in planned.options} == {expected}
    if "," not in gpu:
        assert kvplan.size(model, gpu=gpu, tokens=4096, **asked).engine.name == expected


@pytest.mark.parametrize("kind", [*ASKED, *OTHERS])
def test_a_plan_file_that_names_none(tmp_path: Path, kind: str) -> None:
    asked = (ASKED | OTHERS)[kind]
    gpu = asked["gpu"].partition(",")[0]
    path = tmp_path / "plan.yaml"
    build = f"serve: {{quantization: {asked['quantization']}}}\n" if "quantization" in asked else ""
    path.write_text(f"kvplan: plan/v1\nmodel: {asked['model']}\ngpu: {gpu}\n{build}")
    [plan] = kvplan.load_plans(path)
    assert plan.engine.partition("@")[0] == (GGUF_ENGINE if kind in ASKED else DEFAULT_ENGINE)
    assert kvplan.check(path).plans[0].error is None


def test_fits_asks_the_same(run: Run) -> None:
    for gpu, engine in ((MAC, GGUF_ENGINE), ("h100", DEFAULT_ENGINE)):
        data = json.loads(run("fits", "qwen3-8b", "--gpu", gpu, "--json").out)
        assert data["engine"].partition("@")[0] == engine


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi"])
@pytest.mark.parametrize("kind", ["a build", "a Mac", "a GGUF name"])
def test_an_engine_that_was_named_says_which_takes_it(run: Run, kind: str, engine: str) -> None:
    ran = run("size", *words(ASKED[kind]), "-e", engine)
    assert ran.code == 2
    assert f"--engine {GGUF_ENGINE}" in " ".join((ran.err + ran.out).split())


def test_every_build_of_llama_cpp_is_one_and_no_other_format() -> None:
    assert [word for word in (*MIXTURES, *ALIASES) if not is_gguf_build(word)] == ["mxfp4"]
    assert not [word for word in FORMS if is_gguf_build(word)]


def test_bare_names_of_the_library(run: Run) -> None:
    """Those that no card could be meant by are what Ollama pulls; the others stay cards, or say it."""
    names, pulled = set(list_names()), []
    for family, entry in OLLAMA.items():
        ran = run("size", family, "--json")
        if ran.code == 2:
            assert f"{family}:{entry.usual}: what Ollama's {family} is" in ran.err
        elif (model := kvplan.load_model(family)).id.startswith("ollama:"):
            assert family not in names
            found = library_name(f"ollama:{family}")
            assert found is not None
            assert model.gguf_mixture == found[1]
            pulled.append(family)
    assert {"llama3", "llama3.1", "llama3.2", "llama3.3", "gemma3", "qwen2.5vl"} <= set(pulled)
    assert "phi4" not in pulled  # a card's name, but for the hyphen


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama3.9:8b", "llama3.1:8b"),
        ("ollama:llama3.9", "llama3.3"),
        ("qwen3:15b", "qwen3:14b"),
        ("gemma3:28b", "gemma3:27b"),
    ],
)
def test_a_name_that_the_library_has_not(run: Run, name: str, near: str) -> None:
    ran = run("size", name)
    assert (ran.code, f"did you mean {near}?" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(("model", "build"), [("gpt-oss-20b", "mxfp4"), ("qwen3-8b", "q4_k_m")])
def test_the_build_that_counts_where_none_is_named(run: Run, model: str, build: str) -> None:
    ran = run("size", model, "-e", "llamacpp", "--gpu", CARD, "-t", "8k")
    assert (ran.code, f"as {build}: no build was named" in ran.out) == (0, True), ran.out
    named = kvplan.size(model, engine="llamacpp", gpu=CARD, tokens=8192, quantization=build)
    bare = kvplan.size(model, engine="llamacpp", gpu=CARD, tokens=8192)
    assert bare.weights == named.weights
    assert bare.budget is not None
    assert named.budget is not None
    assert bare.budget.kv_pool_bytes == named.budget.kv_pool_bytes
    assert "no build was named" not in " ".join(named.warnings)


@pytest.mark.parametrize("gpu", ["rtx-3060", "rtx-4090", "2xrtx-3090"])
@pytest.mark.parametrize("model", ["gpt-oss-20b", "qwen3-14b"])
def test_fits_and_size_agree(gpu: str, model: str) -> None:
    """`fits` lists a model where `size` leaves nothing of the build in host memory, with as many requests."""
    found = kvplan.fits(gpu, engine="llamacpp", models=model, tokens=8192)
    row = next((row for row in found.rows if row.model == model), None)
    smallest = "mxfp4" if model.startswith("gpt-oss") else "q3_k_m"
    sized = kvplan.size(
        model, engine="llamacpp", gpu=gpu, tokens=8192,
        quantization=smallest if row is None else row.format,
    )  # fmt: skip
    if row is not None and not row.safe_requests:  # it likely holds them: --fit, which is safe, would not try
        sized = kvplan.size(
            model,
            engine="llamacpp",
            gpu=gpu,
            tokens=8192,
            quantization=row.format,
            settings={"n_gpu_layers": 999},
        )
    hosted = [sized.settings.get(name) for name in ("layers_on_host", "expert_layers_on_host")]
    assert (row is not None) is not any(hosted)
    if row is not None:
        assert sized.capacity is not None
        assert sized.capacity.requests == row.requests
