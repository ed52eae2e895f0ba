"""Lists, one entry in full, cards written and checked, schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cli.completion import completer
from kvplan.cli.schema import names
from kvplan.files.cards.find import list_cards, list_names
from kvplan.files.gpus.listed import list_gpus
from tests.cli.conftest import Run


def test_every_card_is_listed(run: Run) -> None:
    ran = run("list", "models")
    assert ran.code == 0
    assert sum(row.startswith("  ") for row in ran.out.splitlines()) == len(list_cards()) + 2
    assert max(map(len, ran.out.splitlines())) <= 80


def test_models_are_filtered_by_word_and_family(run: Run) -> None:
    found = json.loads(run("list", "models", "GEMMA", "--family", "sliding_window", "--json").out)["models"]
    assert found
    for card in found:
        assert card["families"]["sliding_window"] > 0
    assert {card["slug"] for card in found} < {card.slug for card in list_cards()}


def test_no_model_is_an_answer_where_a_family_is_given(run: Run) -> None:
    ran = run("list", "models", "llama-2", "--family", "xlstm")
    assert ran.code == 0
    assert ran.out.startswith("0 of ")


def test_one_model_in_full(run: Run) -> None:
    ran = run("list", "models", "Llama-3.1-8B")
    assert ran.out.splitlines()[0] == "meta-llama/Llama-3.1-8B"
    assert "32 × full_attention: num_kv_heads 8, head_dim 128" in ran.out
    data = json.loads(run("list", "models", "llama-3.1-8b", "--json").out)
    assert data["model"]["layers"][0]["count"] == 32
    assert data["card"]["slug"] == "llama-3.1-8b"


def test_every_card_has_a_screen_of_its_own(run: Run) -> None:
    for card in list_cards():
        ran = run("list", "models", card.slug)
        assert (ran.code, ran.err) == (0, "")
        assert card.id in ran.out


def test_every_gpu_is_listed_and_slices_are_counted(run: Run) -> None:
    whole = [gpu for gpu in list_gpus() if not gpu.is_mig_slice]
    ran = run("list", "gpus")
    assert ran.out.startswith(f"{len(whole)} GPUs, and ")
    assert all(gpu.slug in ran.out for gpu in whole)
    assert max(map(len, ran.out.splitlines())) <= 80


def test_gpus_are_filtered(run: Run) -> None:
    assert {gpu["vendor"] for gpu in json.loads(run("list", "gpus", "AMD", "--json").out)["gpus"]} == {"amd"}
    slices = json.loads(run("list", "gpus", "mig", "--json").out)["gpus"]
    assert all(gpu["mig_profile"] for gpu in slices)
    assert "MIG slice" not in run("list", "gpus", "mig").out


def test_every_gpu_has_a_screen_of_its_own(run: Run) -> None:
    for gpu in list_gpus():
        ran = run("list", "gpus", gpu.slug)
        assert (ran.code, ran.err) == (0, "")
        assert gpu.name in ran.out
        assert json.loads(run("list", "gpus", gpu.slug, "--json").out)["gpu"]["slug"] == gpu.slug


def test_a_card_is_written_and_sizes_as_its_config(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    assert run("cards", "new", "inputs/gemma.json", "--output", str(path)).code == 0
    assert path.read_text(encoding="utf-8") == run("cards", "new", "inputs/gemma.json").out
    options = ("-e", "generic", "--tokens", "9k", "--json")
    from_card = json.loads(run("size", str(path), *options).out)
    from_config = json.loads(run("size", "inputs/gemma.json", *options).out)
    assert from_card["layers"] == from_config["layers"]
    assert from_card["total"] == from_config["total"]


def test_a_file_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("mine", encoding="utf-8")
    ran = run("cards", "new", "inputs/gemma.json", "-o", str(path))
    assert ran.code == 2
    assert ran.err.startswith("error[file-exists]")
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_broken_card_is_found(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    text = run("cards", "new", "inputs/gemma.json").out
    path.write_text(text.replace("vocab_size:", "vocab_sise:"), encoding="utf-8")
    ran = run("cards", "lint", str(path))
    assert ran.code == 1
    assert "vocab_sise" in ran.out
    assert json.loads(run("cards", "lint", str(path), "--json").out)["findings"]


@pytest.mark.parametrize("name", names())
def test_schemas_are_printed(run: Run, name: str) -> None:
    assert json.loads(run("schema", name).out)["$schema"].startswith("https://json-schema.org")


def test_names_are_completed() -> None:
    assert set(completer("models")("")) == set(list_names())
    assert "h100" in completer("gpus")("H1")
    assert completer("engines")("generic,a") == ["generic,all"]
    assert "mla" in completer("families")("m")


def test_completion_keeps_quiet_where_data_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.files.gpus.listed._index", lambda: 1 / 0)
    assert completer("gpus")("h") == []


def test_the_shell_gets_its_words(run: Run) -> None:
    environment = {
        "_KVPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": "kvplan size --gpu h100-s",
        "COMP_CWORD": "3",
    }
    assert "h100-sxm-80gb" in run(environment=environment).out.split()
    environment = {"_KVPLAN_COMPLETE": "complete_bash", "COMP_WORDS": "kvplan siz", "COMP_CWORD": "1"}
    assert run(environment=environment).out.split() == ["size"]


@pytest.mark.parametrize(
    ("gpu", "engine", "part"),
    [
        ("rtx-2080-ti", "vLLM", "computes in float16"),
        ("rtx-2080-ti", "SGLang", "computes in float16"),
        ("rtx-2080-ti", "TensorRT-LLM", "no: TensorRT-LLM does not run on"),
        ("rtx-3060", "vLLM", "computes in bfloat16"),
        ("rtx-3060", "TensorRT-LLM", "cache auto"),
        ("5070ti", "TensorRT-LLM", "cache auto, fp8_e4m3, nvfp4"),
        ("mi210", "SGLang", "no: SGLang's kernels are built for gfx942 and gfx950"),
        ("mi300x", "SGLang", "computes in bfloat16"),
        ("p100", "vLLM", "no: vLLM's kernels need compute capability 7.0"),
        ("m4-max", "llama.cpp", "yes"),
        ("gaudi2", "vLLM", "no: the cache rules of vLLM on Intel Gaudi 2"),
    ],
)
def test_engines_say_what_they_serve_on_a_gpu(run: Run, gpu: str, engine: str, part: str) -> None:
    lines = run("list", "gpus", gpu).out.split("\n")
    first = next(at for at, one in enumerate(lines) if one.startswith(f"  {engine} "))
    rest = next((at for at in range(first + 1, len(lines)) if not lines[at].startswith("      ")), len(lines))
    assert part in " ".join(" ".join(lines[first:rest]).split())


def test_a_mac_of_any_memory_and_estimates_are_listed(run: Run) -> None:
    assert "m4-max-64gb" in run("list", "gpus", "m4-max-64gb").out
    assert (
        "about 7.6" in run("list", "gpus", "rtx-3060-ti").out
        or "about 7.6" in run("list", "gpus", "geforce").out
    )


def test_several_names(run: Run) -> None:
    found = json.loads(run("list", "gpus", "h100-sxm", "l40s", "--json").out)["gpus"]
    assert {"h100-sxm-80gb", "l40s-48gb"} <= {gpu["slug"] for gpu in found}
    assert all("h100-sxm" in gpu["slug"] or "l40s" in gpu["slug"] for gpu in found)
    models = json.loads(run("list", "models", "llama-3.1-8b", "qwen3-32b", "--json").out)["models"]
    assert [card["slug"] for card in models] == ["llama-3.1-8b", "qwen3-32b"]
    for what, name in (("gpus", "h100"), ("models", "llama-3.1-8b")):
        missed = run("list", what, name, "nothing-like-it")
        assert (missed.code, "nothing-like-it" in missed.err) == (2, True)
