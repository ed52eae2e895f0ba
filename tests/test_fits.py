"""Which models fit a GPU: what the list says of a model is what ``size`` says of it."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import fitting
from kvplan.api.fitting import FitResult
from kvplan.engines import ENGINES
from kvplan.engines.budget import divides
from kvplan.errors import KvplanError
from kvplan.files.cards.find import list_cards
from kvplan.files.gpus.listed import list_gpus
from kvplan.record import replace
from kvplan.results import Verdict
from kvplan.settings import Settings
from tests.laws.sampling import WHOLE, some

CASES = [("rtx-4090", "llamacpp", 8192, 1), ("2xrtx-3090", "llamacpp", 32768, 2), ("24GiB", "vllm", 8192, 4)]


@pytest.fixture(scope="module")
def results() -> list[FitResult]:
    return [
        kvplan.fits(gpu, engine=engine, tokens=tokens, requests=requests, models="qwen")
        for gpu, engine, tokens, requests in CASES
    ]


def test_what_is_listed_is_what_size_says(results: list[FitResult]) -> None:
    for result, (gpu, engine, tokens, _) in zip(results, CASES):
        assert result.rows
        for row in result.rows[::3]:
            stored = row.format == "as stored" or row.checkpoint != row.model
            build: dict[str, Any] = {} if stored else {"quantization": row.format}
            build |= {"tp": result.gpus} if engine == "vllm" and result.gpus > 1 else {}
            unsure = engine == "llamacpp" and row.safe_requests < result.requests
            build |= {"n_gpu_layers": 999} if unsure else {}
            sized = kvplan.size(
                row.checkpoint, engine=engine, gpu=gpu, tokens=tokens, requests=result.requests,
                max_num_seqs=row.max_num_seqs, **build,
            )  # fmt: skip
            assert sized.weights is not None
            assert sized.weights.bytes_per_gpu == row.weights_bytes_per_gpu, row
            assert sized.capacity is not None
            assert (row.requests, row.safe_requests) == (
                sized.capacity.requests, sized.capacity.safe_requests,
            )  # fmt: skip
            assert row.requests >= max(row.safe_requests, result.requests)
            assert sized.verdict in (Verdict.YES, Verdict.LIKELY)


@pytest.mark.laws
@pytest.mark.parametrize(
    ("gpu", "tokens"), some([("rtx-3060", 8192), ("2xrtx-3090", 16384), ("h100", 4096)], 3, str)
)
def test_what_is_left_out_unasked_is_what_would_not_fit(
    monkeypatch: pytest.MonkeyPatch, gpu: str, tokens: int
) -> None:
    """Builds that are sure to be too large, and cards that take no request that long, are not asked about:
    the list is that of asking every one."""
    cards = list_cards() if WHOLE else list_cards()[::30]
    monkeypatch.setattr(fitting, "_cards", lambda _: cards)
    quick = kvplan.fits(gpu, engine="llamacpp", tokens=tokens)
    monkeypatch.setattr(fitting, "_is_beyond_in", lambda *_: False)
    monkeypatch.setattr(fitting, "_cards", lambda _: [replace(card, max_model_len=None) for card in cards])
    assert kvplan.fits(gpu, engine="llamacpp", tokens=tokens) == quick
    assert quick.rows
    assert quick.unfit


def test_the_best_build_comes_first(results: list[FitResult]) -> None:
    """A model is listed in a build only where no better one holds the requests."""
    result = results[0]
    row = next(one for one in result.rows if one.format == "q4_k_m")
    better = kvplan.fits("rtx-4090", engine="llamacpp", models=row.model, formats=("q8_0", "q6_k", "q5_k_m"))
    assert row.model not in [one.model for one in better.rows]


@pytest.mark.parametrize(
    ("gpu", "form", "checkpoint"),
    [
        ("l40s", "fp8", "Qwen/Qwen3-32B-FP8"),
        ("rtx-5090", "int4", "Qwen/Qwen3-32B-AWQ"),
        ("b200", "as stored", "qwen3-32b"),
    ],
)
def test_other_published_checkpoints_are_tried(gpu: str, form: str, checkpoint: str) -> None:
    """As stored where that fits, else the checkpoint with most bits that does."""
    (row,) = kvplan.fits(gpu, engine="vllm", models="qwen3-32b", tokens=2048).rows
    assert (row.model, row.format, row.checkpoint) == ("qwen3-32b", form, checkpoint)


def test_a_format_without_a_kernel_is_not_tried() -> None:
    """FP8 wants compute capability 7.5 (vLLM's get_min_capability), bitsandbytes 7.0: a V100 has that."""
    rows = kvplan.fits("v100-sxm2-32gb", engine="vllm", models="qwen3-14b", tokens=2048).rows
    assert {row.format for row in rows} <= {"as stored", "bitsandbytes"}


def test_a_larger_card_holds_what_a_smaller_one_holds() -> None:
    small = kvplan.fits("16GiB", engine="llamacpp", models="llama")
    large = kvplan.fits("24GiB", engine="llamacpp", models="llama")
    assert {row.model for row in small.rows} <= {row.model for row in large.rows}


def test_models_that_take_no_request_that_long_are_none() -> None:
    result = kvplan.fits("80GiB", models="falcon", tokens=8192)
    assert "falcon-7b" not in [row.model for row in result.rows]
    assert dict(result.unfit)["with too short a context"] >= 1


def test_wrong_questions() -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.fits("24GiB", engine="llamacpp", models="qwen3-8b", formats=("q4_km",))
    assert caught.value.code == "bad-setting"
    with pytest.raises(KvplanError):
        kvplan.fits("no-such-card")


DIVIDING = [name for name in ENGINES if divides(name, Settings())]


@pytest.mark.parametrize("engine", DIVIDING)
def test_a_gpu_that_the_engine_does_not_run_on_is_an_error_as_it_is_for_size(engine: str) -> None:
    """No list of nothing, with reasons that are of the models: every GPU with a spec of its own memory."""
    refused = 0
    for gpu in (one for one in list_gpus() if one.memory_total_bytes or one.memory_nvml_bytes):
        try:
            kvplan.size("qwen3-4b", engine=engine, gpu=gpu.slug, tokens=4096)
            why = None
        except KvplanError as error:
            why = error.message if error.code == "engine-gpu" else None
        if why is None:
            continue
        refused += 1
        with pytest.raises(KvplanError) as caught:
            kvplan.fits(gpu.slug, engine=engine, tokens=4096, models="qwen3-4b")
        assert (caught.value.code, caught.value.message) == ("engine-gpu", why), gpu.slug
    assert refused or engine == "llamacpp"


def test_an_unknown_rule_is_no_unknown_weight() -> None:
    result = kvplan.fits("2xrtx-3090", engine="sglang", models="deepseek-v4.1-flash")
    assert result.unfit == (("with an unknown rule of the engine", 1),)


@pytest.mark.parametrize("engine", [name for name in ENGINES if not divides(name, Settings())])
def test_an_engine_that_divides_no_memory_is_an_error_and_no_empty_list(engine: str) -> None:
    for ask in (
        lambda: kvplan.fits("24GiB", engine=engine),
        lambda: kvplan.plan("qwen3-8b", engine=engine, gpu="h100"),
    ):
        with pytest.raises(KvplanError) as caught:
            ask()
        assert caught.value.code == "no-budget"


def test_there_are_such_engines_and_an_option_makes_one_divide() -> None:
    assert not divides("generic")
    assert not divides("transformers", Settings())
    plan = kvplan.plan(
        "qwen3-8b",
        engine="transformers",
        settings={"continuous_batching": True},
        gpu="h100",
        requests=2,
        tokens=4096,
    )
    assert plan.best is not None
