"""Programs that start llama.cpp by themselves: Ollama by its own source, LM Studio by its documents."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api.load import load_gpu
from kvplan.engines.budget import choose
from kvplan.engines.door_settings import start
from kvplan.engines.doors import DOORS, Wish, door_of
from kvplan.engines.llamacpp.programs.ollama import (
    automatic_batch,
    default_context,
    has_flash,
    predicted_bytes,
)
from kvplan.engines.llamacpp.start.overrides import read
from kvplan.errors import KvplanError
from kvplan.report.export import export
from kvplan.settings import Settings
from kvplan.units import GIB

CARD = "rtx-3060-12gb"


def _start(name: str, model: str, gpu: str, wish: Wish, *, gpus: int = 1) -> tuple[dict[str, Any], str, int]:
    """Options, notes in one, and GPUs of a program's own start."""
    asked = Settings(gpu=load_gpu(gpu), pipeline_parallel_size=gpus)
    found, notes = start(kvplan.load_model(model), choose(name), asked, wish)
    return dict(found.own), " | ".join(notes), found.pipeline_parallel_size


@pytest.mark.parametrize(
    ("total", "context"),
    [(8 * GIB, 4096), (23 * GIB - 1, 4096), (23 * GIB, 32768), (47 * GIB - 1, 32768), (47 * GIB, 262144)],
)
def test_the_context_of_ollama_by_itself(total: int, context: int) -> None:
    """server/routes.go: tiers of the memory of all GPUs together."""
    assert default_context(total) == context


def test_the_memory_of_all_gpus_decides_the_context() -> None:
    """Two 24 GB cards are more than 47 GiB: the context is the model's own, and the model spills."""
    one, _, _ = _start("ollama", "ollama:llama3.3", "rtx-3090-24gb", Wish())
    two, said, _ = _start("ollama", "ollama:llama3.3", "rtx-3090-24gb", Wish(), gpus=2)
    assert (one["ctx_size"], two["ctx_size"]) == (32768, 131072)
    assert "fits: --fit" in said


@pytest.mark.parametrize(
    ("cells", "predicted", "total", "batch"),
    [
        (4096, 5 * GIB, 24 * GIB, 512),
        (4097, 5 * GIB, 24 * GIB, 1024),
        (32768, 5 * GIB, 24 * GIB, 1024),
        (32769, 5 * GIB, 24 * GIB, 2048),
        (32769, 15 * GIB, 24 * GIB, 1024),  # more than 60 %
        (32769, 18 * GIB + 1, 24 * GIB, 512),  # more than 75 %
        (32769, 0, 24 * GIB, 2048),  # the file's size is not known
    ],
)
def test_the_batch_of_ollama(cells: int, predicted: int, total: int, batch: int) -> None:
    """server/sched.go: automaticGenerationBatch, generationBatchFits."""
    gpu = load_gpu(CARD)
    assert automatic_batch(cells, predicted, (total,), gpu, flash=True) == batch


def test_without_flash_attention_the_batch_is_small() -> None:
    gpu = load_gpu(CARD)
    assert automatic_batch(8192, GIB, (24 * GIB,), gpu, flash=False) == 512
    assert automatic_batch(8192, GIB, (8 * GIB,), gpu, flash=False) == 256
    assert automatic_batch(4096, GIB, (8 * GIB,), gpu, flash=False) == 512


def test_which_gpus_have_flash_attention() -> None:
    """ml/device.go: from 6.0 on, but not 7.2."""
    gpu = load_gpu(CARD)
    able = {one: has_flash(replace(gpu, compute_capability=one)) for one in ((5, 2), (6, 0), (7, 2), (7, 5))}
    assert able == {(5, 2): False, (6, 0): True, (7, 2): False, (7, 5): True}
    assert has_flash(replace(gpu, compute_capability=None))


def test_ollama_s_own_estimate() -> None:
    """llm.PredictServerVRAM by hand: the file, and 2 · 36 layers · 8 heads · 128 · 2 bytes a cell."""
    model = kvplan.load_model("ollama:qwen3:8b")
    file = kvplan.size("ollama:qwen3:8b", gpu=CARD, tokens=1024).weights
    assert file is not None
    assert predicted_bytes(model, Settings(), 1000) == file.total_bytes + 2 * 36 * 8 * 128 * 2 * 1000


def test_a_small_model_is_put_on_one_gpu() -> None:
    one, said, gpus = _start("ollama", "ollama:qwen3:8b", "rtx-3090-24gb", Wish(context=8192), gpus=2)
    assert gpus == 1
    assert "OLLAMA_SCHED_SPREAD=1" in said
    spread = _start("ollama", "ollama:qwen3:8b", "rtx-3090-24gb", Wish(context=8192, spread=True), gpus=2)
    assert spread[2] == 2
    assert one["parallel"] == 1


def test_what_is_said_counts() -> None:
    wish = Wish(8192, 3, "q8_0", flash_attn=True, gpu_layers=20, batch=256)
    found, _, _ = _start("ollama", "ollama:qwen3:8b", CARD, wish)
    assert found == {
        "ctx_size": 24576, "parallel": 3, "cache_type_k": "q8_0", "cache_type_v": "q8_0", "n_gpu_layers": 20,
        "ubatch_size": 256,
    }  # fmt: skip


def test_ollama_cuts_what_it_will_not_give() -> None:
    found, said, _ = _start("ollama", "ollama:qwen3:8b", CARD, Wish(100_000, 1, "q4_0"))
    assert found["ctx_size"] == 40960
    assert "cuts num_ctx 100,000" in said
    found, said, _ = _start("ollama", "ollama:qwen3.5:9b", CARD, Wish(4096, 4))
    assert found["parallel"] == 1
    assert "one slot" in said
    _, said, _ = _start("ollama", "ollama:qwen3:8b", CARD, Wish(4096, overhead=GIB))
    assert "keeps nothing free" in said
    with pytest.raises(KvplanError, match="OLLAMA_KV_CACHE_TYPE"):
        _start("ollama", "ollama:qwen3:8b", CARD, Wish(cache_type="q8"))


def test_a_model_with_vision_has_its_encoder_on_the_gpu() -> None:
    """gemma3:4b is 3.3 GB in the library: 2.48 of text, of which the embedding stays in host memory."""
    found, _, _ = _start("ollama", "ollama:gemma3:4b", CARD, Wish(1024))
    assert found["mmproj"] is True
    assert found["ctx_size"] == 2048
    text = kvplan.size("ollama:gemma3:4b", engine="llamacpp", gpu=CARD, tokens=1024).weights
    whole = kvplan.size("ollama:gemma3:4b", engine="ollama", gpu=CARD, tokens=1024)
    assert text is not None
    assert whole.weights is not None
    assert 3.28e9 < whole.weights.total_bytes < 3.35e9
    assert text.total_bytes < 2.5e9
    assert whole.budget is not None
    assert any(line.name == "image encoder" for line in whole.budget.lines)


@pytest.mark.parametrize("name", ["ollama:llama3.3", "ollama:qwen3:30b", "ollama:gpt-oss:120b"])
def test_what_does_not_fit_lies_in_host_memory(name: str) -> None:
    """Experts first; one layer more on the GPU would not be safe any more."""
    options, said, _ = _start("ollama", name, CARD, Wish(8192))
    assert "fits: --fit" in said
    key = "override_tensor" if "override_tensor" in options else "n_gpu_layers"
    asked: dict[str, Any] = {"engine": "llamacpp", "gpu": CARD, "tokens": 8192}

    def starts(**changes: object) -> bool:
        found = kvplan.size(name, **{**options, **changes}, **asked)
        return found.refusal is None and found.budget is not None and found.budget.kv_pool_low_bytes > 0

    assert starts()
    if key == "override_tensor":
        last = read(options[key])[-1]
        more: object = (last._replace(first=last.first + 2).word,)
    else:
        more = options[key] + 1
    low = kvplan.size(name, **{**options, key: more}, **asked)
    assert low.budget is not None
    one = low.per_gpu.peak_bytes
    assert low.refusal is not None or low.budget.kv_pool_low_bytes < one


def test_e_ollama_answers_in_its_words() -> None:
    found = kvplan.size("llama3.2", engine="ollama", gpu=CARD)
    assert (found.engine.name, found.request.tokens) == ("llamacpp", 4096)
    assert found.warnings[0].startswith("Ollama 0.33 runs llama.cpp")
    longer = kvplan.size("llama3.2", engine="ollama@0.32", gpu=CARD, tokens=8192, requests=2)
    said = " | ".join(longer.warnings)
    assert "OLLAMA_CONTEXT_LENGTH=8192" in said
    assert "OLLAMA_NUM_PARALLEL=2" in said
    same = kvplan.size("qwen3-8b", engine="ollama", gpu=CARD, tokens=4096)
    named = kvplan.size("ollama:qwen3:8b", engine="ollama", gpu=CARD, tokens=4096)
    assert same.budget == named.budget
    with pytest.raises(KvplanError, match="its own engine"):
        kvplan.size("llama3.2", engine="ollama@0.12", gpu=CARD)
    with pytest.raises(KvplanError, match="unknown engine"):
        kvplan.size("llama3.2", engine="olama", gpu=CARD)


def test_lm_studio_shares_one_cache() -> None:
    """Its documented defaults: four predictions in one unified cache, a physical batch of 512."""
    found, said, _ = _start("lmstudio", "qwen3-8b", CARD, Wish())
    wanted = {"kv_unified": True, "ubatch_size": 512, "fit": True, "ctx_size": 4096, "parallel": 4}
    assert found == wanted
    assert "not public" in said
    half, said, _ = _start("lmstudio", "qwen3-8b", CARD, Wish(8192, gpu_part=Fraction(1, 2)))
    assert half["n_gpu_layers"] == 18
    assert "--gpu 0.5" in said
    whole, _, _ = _start("lmstudio", "qwen3-32b", CARD, Wish(8192, gpu_part=Fraction(1)))
    assert whole["n_gpu_layers"] == 65


@given(
    st.sampled_from(DOORS),
    st.sampled_from(["ollama:qwen3:8b", "ollama:gpt-oss:20b", "gemma-3-4b-it", "llama-3.2-1b-instruct"]),
    st.integers(1, 300_000),
    st.integers(1, 8),
)
@settings(max_examples=40, deadline=None)
def test_a_program_never_refuses_for_memory_and_never_shortens_more_than_the_model(
    name: str, model: str, context: int, parallel: int
) -> None:
    """Each slot has what was asked for, or the model's own length; all that is read by llama.cpp's rules."""
    own = kvplan.load_model(model).max_model_len or 0
    options, _, _ = _start(name, model, CARD, Wish(context, parallel))
    slots = 1 if options.get("kv_unified") else options["parallel"]
    assert options["ctx_size"] % slots == 0
    if name == "ollama":
        assert min(context, own) <= options["ctx_size"] // slots <= max(own, 4)
    build = {} if "ollama" in model else {"quantization": door_of(name).build(kvplan.load_model(model))}
    found = kvplan.size(model, engine="llamacpp", gpu=CARD, tokens=1, **{**options, **build})
    assert found.refusal is None or found.refusal.code != "no-memory-for-cache"


@pytest.mark.parametrize("name", DOORS)
def test_a_file_that_nobody_named_is_named(name: str) -> None:
    def words(**asked: Any) -> str:
        return " ".join(kvplan.size("qwen3-8b", engine=name, gpu="rtx-4090", **asked).warnings)

    assert "weights of q4_k_m" in words()
    assert "weights of" not in words(quantization="q8_0")


@pytest.mark.parametrize(
    ("name", "more", "lines"),
    [
        (
            "qwen3:8b",
            {"requests": 2},
            ("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 ollama serve", "ollama run qwen3:8b"),
        ),
        (
            "gpt-oss-20b",
            {},
            ("OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=1 ollama serve", "ollama run gpt-oss:20b"),
        ),
        (
            "ollama:llama3.1:8b",
            {"kv_cache_dtype": "q8_0"},
            (
                "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=1 OLLAMA_FLASH_ATTENTION=1"
                " OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve",
                "ollama run llama3.1:8b",
            ),
        ),
    ],
)
def test_a_plan_for_ollama_is_started_by_ollama(
    name: str, more: dict[str, Any], lines: tuple[str, ...]
) -> None:
    result = kvplan.plan(name, engine="ollama", gpu="rtx-3090", tokens=8192, **more)
    assert result.start == lines
    screen = str(result)
    assert "--ctx-size" not in screen
    for line in lines:
        assert line.split()[-1] in screen


def test_a_plan_of_a_library_name_is_written_as_ollamas_commands() -> None:
    result = kvplan.plan("qwen3:8b", engine="ollama", gpu="rtx-3090", tokens=8192, requests=2)
    assert result.plan is not None
    text = export(result.plan, "command")
    assert text.splitlines()[1:] == list(result.start)


def test_gpt_oss_of_ollama_is_mxfp4_by_every_name() -> None:
    for name in ("gpt-oss-20b", "gpt-oss:20b"):
        result = kvplan.plan(name, engine="ollama", gpu="rtx-3090", tokens=8192)
        assert [one.weights for one in result.options] == ["mxfp4"]
    sized = [
        kvplan.size(name, engine="ollama", gpu="rtx-3090", tokens=8192).budget
        for name in ("gpt-oss-20b", "gpt-oss:20b")
    ]
    assert sized[0] is not None
    assert sized[1] is not None
    assert sized[0].lines[0].bytes == sized[1].lines[0].bytes
