"""``--max-model-len auto`` is the length that the engine takes in its pool, whichever door asks.

An answer with ``auto`` is the answer with that length written out; nowhere does the word's own value show.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import kvplan
from kvplan.api import load_model, make_settings
from kvplan.cli import main
from kvplan.deployment.answer import answer
from kvplan.deployment.counts import as_started, ask, largest_tokens, max_requests
from kvplan.deployment.lengths import ladder, rungs, usual_lengths
from kvplan.deployment.machines import machine
from kvplan.deployment.question import Question
from kvplan.engines import choose_engine
from kvplan.engines.budget import answered, choose, in_safe_pool
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.settings import LONGEST, started_in

CASES = [
    ("qwen3-8b", "vllm@0.33", "l4", {}),
    ("qwen3-8b", "vllm@0.19", "rtx-4090", {}),
    ("gemma-3-12b", "vllm@0.33", "a100-40gb", {}),
    ("falcon-h1-7b-instruct", "vllm@0.33", "rtx-3090", {"max_num_seqs": 64}),
    ("qwen3-8b", "vllm@0.33", "h100", {}),
    ("qwen3-8b", "llamacpp", "rtx-4060-8gb", {"quantization": "q4_k_m"}),
    ("gemma-3-12b", "llamacpp", "rtx-3060-12gb", {"quantization": "q4_k_m"}),
]


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Any:
    def shown(*words: str) -> tuple[int, str]:
        code = main(list(words))
        return code, capsys.readouterr().out

    return shown


cases = pytest.mark.parametrize(("model", "engine", "gpu", "more"), CASES)


@cases
@pytest.mark.parametrize("requests", [1, 3])
def test_auto_is_the_length_written_out(
    model: str, engine: str, gpu: str, more: dict[str, Any], requests: int
) -> None:
    loaded, choice = load_model(model), choose(engine)
    auto = make_settings(gpu=gpu, max_model_len="auto", requests=requests, **more)
    written = as_started(loaded, choice, auto)
    assert written.max_model_len is not None
    assert written.max_model_len > 0
    assert as_started(loaded, choice, written) == written
    found = ask(loaded, choice, auto)
    same = ask(loaded, choice, replace(written, kv_cache_memory=None))
    assert found.request.tokens == same.request.tokens == written.max_model_len
    assert found.pool == same.pool
    assert largest_tokens(loaded, choice, auto) == largest_tokens(loaded, choice, written)
    steps = ladder(Question(loaded, choice, auto)).rungs
    once = as_started(loaded, choice, replace(auto, requests=1))
    likely = [(rung.tokens, rung.likely) for rung in steps]
    assert likely == [(rung.tokens, rung.likely) for rung in ladder(Question(loaded, choice, once)).rungs]
    assert all(tokens > 0 for tokens, _ in likely)


@cases
@pytest.mark.parametrize("requests", [1, 3])
def test_each_pool_is_served_with_its_own_length(
    model: str, engine: str, gpu: str, more: dict[str, Any], requests: int
) -> None:
    loaded, choice = load_model(model), choose(engine)
    auto = make_settings(gpu=gpu, max_model_len="auto", requests=requests, **more)
    found = answer(Question(loaded, choice, auto))
    result = found.result
    assert result.budget is not None
    assert found.safe is not None
    safe = in_safe_pool(loaded, choice, auto, result)
    for rung in rungs(found, usual_lengths(found)):
        for pool, counted in (
            (result.budget.kv_pool_bytes, rung.likely),
            (result.budget.kv_pool_low_bytes, rung.safe),
        ):
            started = as_started(
                loaded, choice, started_in(auto, pool) if pool < result.budget.kv_pool_bytes else auto
            )
            asked = replace(started_in(started, pool), tokens=rung.tokens, requests=1)
            assert counted == max_requests(loaded, choice, asked)
    if safe.refusal is None:
        assert found.safe.max_model_len == safe.request.tokens <= result.request.tokens


@cases
def test_a_grid_holds_what_one_machine_holds(model: str, engine: str, gpu: str, more: dict[str, Any]) -> None:
    loaded, choice = load_model(model), choose(engine)
    auto = make_settings(gpu=gpu, max_model_len="auto", **more)
    longest = ask(loaded, choice, auto).request.tokens
    lengths = (longest // 2, longest, longest + 1)
    cells = machine(Question(loaded, choice, auto), lengths).cells
    for length, cell in zip(lengths, cells, strict=True):
        if cell is not None:
            one = ask(loaded, choice, replace(auto, tokens=length))
            assert cell.likely == max_requests(loaded, choice, replace(auto, tokens=length), one)
        if cell is not None and cell.likely == 0:
            assert cell.safe == 0


@cases
def test_explain_tells_of_the_same_request(
    model: str, engine: str, gpu: str, more: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [model, "-e", engine, "--gpu", gpu, "--max-model-len", "auto", "--json"]
    for name, value in more.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    assert main(["size", *words]) in (0, 1)
    sized = json.loads(capsys.readouterr().out)
    assert main(["explain", *words]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert told["request"] == sized["request"]
    assert told["per_gpu"]["kv_bytes_per_request"] == sized["per_gpu"]["kv_bytes_per_request"]


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "sglang", "trtllm", "transformers", "generic", "tgi"])
def test_no_engine_is_handed_the_word_itself(engine: str) -> None:
    """Without a pool, `auto` is a length in the memory that was given, or an error that says what lacks."""
    model, choice = load_model("qwen3-8b"), choose_engine(engine)
    with pytest.raises(KvplanError, match="max-model-len auto"):
        answered(model, choice, make_settings(max_model_len="auto"))
    settings = make_settings(max_model_len="auto", kv_cache_memory="4GiB")
    assert settings.max_model_len == LONGEST
    if traits_of(engine).auto_length:
        assert 0 < answered(model, choice, settings).request.tokens <= (model.max_model_len or 0)
        return
    with pytest.raises(KvplanError, match="max-model-len auto"):
        answered(model, choice, settings)


def test_more_than_fit_is_a_no_with_ways_out(screen: Any) -> None:
    code, text = screen("size", "qwen3-8b", "-e", "vllm", "-g", "l4", "--max-model-len", "auto", "-n", "500")
    assert code == 1
    assert text.startswith("No:")
    code, text = screen("size", "qwen3-8b", "-e", "vllm", "-g", "l4", "--max-model-len", "auto")
    assert code == 0
    assert "safely none: it may start with max_model_len" in " ".join(text.split())


def test_a_model_that_keeps_nothing_is_bound_by_no_memory(screen: Any) -> None:
    for engine in ("vllm", "sglang"):
        code, text = screen(
            "size", "bge-small-en-v1.5", "-e", engine, "--kv-cache-memory", "1GiB", "-n", "16", "-t", "512"
        )
        assert (code, "any number of requests" in text) == (0, True), engine


def test_a_state_model_without_a_length_has_a_screen(screen: Any) -> None:
    words = ("size", "mamba-1.4b", "-e", "llamacpp", "--gpu", "h100", "-t", "500", "-q", "q4_k_m")
    code, text = screen(*words)
    assert code == 0
    sized = kvplan.size("mamba-1.4b", engine="llamacpp", gpu="h100", tokens=500, quantization="q4_k_m")
    assert sized.pool is not None
    assert f"{sized.pool.max_requests:,} requests" in " ".join(text.split())
