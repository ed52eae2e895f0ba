"""The library as a person meets it: signatures, text, notebooks, rows, names, comma lists."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import kvplan
from kvplan import KvplanError
from kvplan.api.options import OPTION_NAMES, SHORT
from kvplan.cli import main
from kvplan.record import dumped
from kvplan.settings import MEDIA
from scripts import make_api, make_notebook

ROOT = Path(__file__).resolve().parents[1]


def sized() -> kvplan.SizeResult:
    return kvplan.size("qwen3-32b", gpu="h200", tokens="8k")


def test_the_tables_and_the_page_are_not_stale() -> None:
    assert make_api.main(["--check"]) == 0


def test_the_notebook_runs_and_shows_what_is_true_today() -> None:
    assert make_notebook.main(["--check"]) == 0
    cells = json.loads(make_notebook.PATH.read_text(encoding="utf-8"))["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    assert [cell["cell_type"] for cell in cells].count("code") >= 6


def test_size_shows_its_keywords_with_their_types() -> None:
    shown = inspect.signature(kvplan.size).parameters
    every = {
        *OPTION_NAMES,
        *SHORT,
        *MEDIA,
        "engine",
        "model",
        "settings",
        "weights_from",
        "speculative_config",
    }
    assert set(shown) < every
    assert len(shown) <= 40
    assert all(one.annotation is not one.empty for one in shown.values())
    assert all(one.default is None for one in shown.values() if one.name != "model")


def test_settings_take_every_other_name() -> None:
    plain = kvplan.size("qwen3-8b", gpu="h100", tokens="8k", settings={"max_loras": 4, "enable_lora": True})
    given: dict[str, Any] = {"max_loras": 4, "enable_lora": True}
    assert kvplan.size("qwen3-8b", gpu="h100", tokens="8k", **given) == plain
    assert plain.budget is not None
    assert any("LoRA" in line.name for line in plain.budget.lines)
    found = kvplan.plan("qwen3-8b", gpu="h100", tokens="8k", settings=given)
    assert found == kvplan.plan("qwen3-8b", gpu="h100", tokens="8k", **given)


@pytest.mark.parametrize(
    ("engine", "given", "ours"),
    [
        ("sglang", {"context_length": 32768, "tp_size": 2}, {"max_model_len": 32768, "tp": 2}),
        ("sglang", {"disable_cuda_graph": True, "port": 30000}, {"enforce_eager": True}),
        ("trtllm", {"max_seq_len": 8192, "max_batch_size": 4}, {"max_model_len": 8192, "max_num_seqs": 4}),
        ("llama.cpp", {"c": 8192, "np": 2}, {"settings": {"ctx_size": 8192, "parallel": 2}}),
        ("tgi", {"max_total_tokens": 4096}, {"max_model_len": 4096}),
    ],
)
def test_an_engine_s_own_names_are_keywords(engine: str, given: dict[str, Any], ours: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"engine": engine, "tokens": 4096}
    assert kvplan.size("qwen3-8b", **asked, **given) == kvplan.size("qwen3-8b", **asked, **ours)
    assert kvplan.size("qwen3-8b", **asked, settings=given) == kvplan.size("qwen3-8b", **asked, **ours)


@pytest.mark.parametrize(
    ("given", "code", "help_"),
    [
        ({"context_length": 8}, "unknown-option", ("max_model_len", 'engine="sglang"')),
        ({"settings": {"max_lorass": 4}}, "unknown-option", ("did you mean max_loras?",)),
        ({"context_lenght": 8}, "unknown-option", ("did you mean context_length?",)),
        ({"max_model_len": 8, "settings": {"max_model_len": 9}}, "bad-usage", ()),
        ({"settings": [4]}, "bad-argument", ()),
        ({"settings": {"own": 4}}, "unknown-option", None),
    ],
)
def test_a_name_that_is_none_says_what_is_meant(
    given: dict[str, Any], code: str, help_: tuple[str, ...] | None
) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen3-8b", **given)
    assert caught.value.code == code
    assert help_ is None or caught.value.help == help_


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_what_an_option_is_served_with_is_a_question(engine: str) -> None:
    best = kvplan.plan("qwen3-8b", engine=engine, gpu="h100", requests=4, tokens="8k").options[0]
    assert best.gpu is not None
    found = kvplan.size("qwen3-8b", engine=engine, gpu=f"{best.gpus}x{best.gpu}", tokens="8k", **best.serve)
    assert found.ok
    assert found.pool is not None
    assert found.pool.max_running >= 4


def test_a_command_is_a_plan_that_can_be_sized() -> None:
    line = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 16384"
    plan = kvplan.from_command(line, gpu="h100")
    assert (plan.gpus_per_replica, plan.settings.max_model_len) == (2, 16384)
    assert kvplan.size(plan).pool == kvplan.size("qwen3-32b", gpu="2xh100", max_model_len=16384).pool
    assert kvplan.size(kvplan.from_command(line)).pool is None
    with pytest.raises(KvplanError, match="does not exist"):
        kvplan.from_command("ls -l")


@pytest.mark.parametrize("name", ["size", "compare", "plan"])
def test_no_function_hides_its_keywords(name: str) -> None:
    parameters = inspect.signature(getattr(kvplan, name)).parameters.values()
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters)
    assert "tokens" in [one.name for one in parameters]


@pytest.mark.parametrize("name", [name for name in kvplan.__all__ if name != "__version__"])
def test_every_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(kvplan, name))
    assert f"`{name}`" in (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_a_type_checker_sees_the_keywords(tmp_path: Path) -> None:
    """What is misspelt or of another type is found before anything runs."""
    path = tmp_path / "typed.py"
    path.write_text(
        "import kvplan\n"
        'kvplan.size("llama-3.1-8b", tokens="8k", gpu="h100", tp=2, settings={"max_loras": 4})\n'
        'kvplan.plan("llama-3.1-8b", tokens="8k", gpu="h100,h200", tp="1,2", quantization="fp8")\n'
        'kvplan.size("llama-3.1-8b", token=8)\n'
        'kvplan.size("llama-3.1-8b", tensor_parallel_size="two")\n'
    )
    words = ("--strict", "--no-incremental", "--follow-imports=silent", str(path))
    command = [sys.executable, "-m", "mypy", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    lines = {int(found[1]) for found in re.finditer(r"typed\.py:(\d+): error", done.stdout)}
    assert lines == {4, 5}, done.stdout + done.stderr


def test_an_answer_as_text_is_the_screen_s_first_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "qwen3-32b", "--gpu", "h200", "-t", "8k"]) == 0
    screen = capsys.readouterr().out
    assert screen.startswith(str(sized()) + "\n")
    assert f"{sized()}" == str(sized())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpu": "h100"},
        {"kv_cache_memory": "8GiB", "tokens": "8k"},
        {"gpu": "h100", "tp": 3},
        {"tokens": 1},
    ],
)
def test_every_answer_has_a_text(options: dict[str, Any]) -> None:
    answer = kvplan.size("llama-3.1-8b", **options)
    text = str(answer)
    assert 1 <= len(text.splitlines()) <= 20
    assert ("No:" in text) == (not answer.ok)
    assert re.sub(r"<[^>]+>", "", unescape(answer._repr_html_()).replace("<pre", "\n<pre")).strip() == text


def test_other_answers_have_a_text_too() -> None:
    found = kvplan.plan("qwen3-8b", tokens="8k", gpu="h100")
    assert str(found).startswith("Qwen3-8B: 1 × h100-sxm-80gb serves")
    plan = ROOT / "examples" / "plans" / "chat-qwen3-8b-day.yaml"
    assert str(kvplan.check(plan)).startswith("The plan passes.")
    fits = kvplan.fits("rtx-4090", models="qwen3-8b", engine="llamacpp")
    assert str(fits).startswith(f"{len(fits.rows)} of ")
    for answer in (found, fits):
        assert answer._repr_html_().startswith("<pre")
        assert all(set(row) == set(answer.to_rows()[0]) for row in answer.to_rows())
        json.dumps(answer.to_rows())


def test_what_it_was_asked_with_is_no_part_of_an_answer() -> None:
    answer, again = sized(), sized()
    assert answer == again
    assert answer.asked is not again.asked
    assert "asked=" not in repr(answer)
    assert '"asked"' not in json.dumps(dumped(answer))
    for other in (copy.copy(answer), copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
        assert other == answer
        assert str(other)


def test_rows_are_flat_and_agree_with_the_answer() -> None:
    (row,) = sized().to_rows()
    answer = sized()
    assert json.loads(json.dumps(row)) == row
    assert answer.pool is not None
    assert answer.budget is not None
    assert row["requests"] == answer.pool.max_running
    assert row["kv_pool_low_bytes"] == answer.budget.kv_pool_low_bytes
    assert 0 < row["safe_requests"] <= row["requests"]
    assert f"safely {row['safe_requests']}" in " ".join(str(answer).split())
    refused = kvplan.size("qwen3-32b", gpu="h100").to_rows()[0]
    assert (refused["ok"], refused["requests"]) == (False, 0)
    assert "max_model_len" in refused["refusal"]
    assert kvplan.size("qwen3-32b").to_rows()[0]["requests"] is None


def test_a_budget_s_rows_are_its_memory() -> None:
    budget = sized().budget
    assert budget is not None
    rows = budget.to_rows()
    assert sum(row["bytes"] for row in rows) == budget.total_bytes
    assert all(row["low_bytes"] <= row["bytes"] <= row["high_bytes"] for row in rows)


@pytest.mark.parametrize(
    "given",
    [
        {"method": "mtp", "num_speculative_tokens": 1},
        '{"method": "mtp", "num_speculative_tokens": 1}',
        "mtp:1",
    ],
)
def test_drafts_as_vllm_writes_them(given: Any) -> None:
    spoken = kvplan.size("deepseek-v3", settings={"speculative_method": "mtp", "num_speculative_tokens": 1})
    assert kvplan.size("deepseek-v3", speculative_config=given) == spoken


def test_drafts_are_said_once_and_rightly() -> None:
    for options in (
        {"speculative_config": {"method": "mtp"}},
        {"speculative_config": 5},
        {"speculative_config": "mtp:1", "speculative_method": "mtp"},
    ):
        with pytest.raises(KvplanError) as caught:
            kvplan.size("deepseek-v3", **options)
        assert caught.value.exit_code == 2
    assert kvplan.size("deepseek-v3", speculative_config=None) == kvplan.size("deepseek-v3")


def test_comma_lists_are_those_of_the_command_line() -> None:
    found = kvplan.plan("qwen3-8b", tokens="8k", gpu="h100, h200", tp="1,2", kv_cache_dtype="fp8,auto")
    listed = kvplan.plan(
        "qwen3-8b", tokens="8k", gpu=["h100", "h200"], tp=[1, 2], kv_cache_dtype=["fp8", "auto"]
    )
    assert found == listed
    assert {one.gpu for one in found.options} == {"h100-sxm-80gb", "h200-sxm-141gb"}
    with pytest.raises(KvplanError, match="whole numbers"):
        kvplan.plan("qwen3-8b", tokens="8k", gpu="h100", tp="1,x")
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen3-8b", tokens="8k,32k")
    assert caught.value.help == ("kvplan.sizes(model, tokens='8k,32k') is a table of them",)


def results() -> dict[str, Any]:
    """One of every result and value of the library that the tests above do not show."""
    plan = kvplan.load_plans(ROOT / "examples" / "plans" / "chat-llama-3.1-8b-trace-h100.yaml")[0]
    seen = kvplan.observe(log=ROOT / "examples" / "logs" / "vllm-gemma-3-27b.log")
    return {
        "Plan": plan,
        "Observation": seen,
        "Comparison": kvplan.compare(observation=seen),
        "Simulation": kvplan.simulate(plan, search=False, helps=False),
        "Model": kvplan.load_model("gemma-3-27b"),
        "Gpu": kvplan.load_gpu("h100"),
    }


BEGINS = {
    "Plan": "chat-llama-3.1-8b-trace-h100: llama-3.1-8b under vllm@0.32",
    "Observation": "vLLM 0.19.0, from its log of 5 lines",
    "Comparison": "vLLM 0.19 agrees on 3 figures of google/gemma-3-27b-it",
    "Simulation": "meta-llama/Llama-3.1-8B: 1 replica keeps 95 % of requests",
    "Model": "google/gemma-3-27b-it: 62 layers",
    "Gpu": "NVIDIA H100 80GB HBM3   h100-sxm-80gb",
}


def test_every_result_has_a_text_a_picture_and_rows() -> None:
    for name, found in results().items():
        assert type(found).__name__ == name
        assert " ".join(str(found).split()).startswith(" ".join(BEGINS[name].split()))
        assert len(str(found).splitlines()) <= 25
        assert found._repr_html_().startswith("<pre")
        if hasattr(found, "to_rows"):
            rows = found.to_rows()
            assert rows
            assert all(set(row) == set(rows[0]) for row in rows)
            json.dumps(rows)


def test_answers_have_rows() -> None:
    """What a function of the library answers with can be made a table of."""
    for name in (
        "SizeResult",
        "PlanResult",
        "CheckReport",
        "QualityResult",
        "Comparison",
        "Simulation",
    ):
        assert callable(getattr(getattr(kvplan, name), "to_rows", None)), name
