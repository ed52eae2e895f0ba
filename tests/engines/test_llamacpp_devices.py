"""llama.cpp on named GPUs: layers dealt, host memory, lengths, what helps, and plans of GGUF files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.cli import main
from kvplan.deployment.answer import answer as answered
from kvplan.deployment.counts import ask, max_requests
from kvplan.deployment.question import Question
from kvplan.engines.budget import choose
from kvplan.engines.llamacpp.cache_layout.caches import place
from kvplan.errors import KvplanError
from kvplan.units import GIB
from tests.files.gguf_plain import huge, large, small, write_model


def answer(path: Path, **options: Any) -> kvplan.SizeResult:
    return kvplan.size(str(path), **{"gpu": "rtx-4090", "tokens": 8192, **options})


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: object) -> tuple[int, str]:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_gguf_file_is_sized_as_llamacpp_does(tmp_path: Path, screen: Any) -> None:
    path = small(tmp_path / "m.gguf")
    assert answer(path).engine.name == "llamacpp"
    assert answer(path, engine="vllm", gpu=None).engine.name == "vllm"
    assert kvplan.plan(str(path), gpu="rtx-4090", tokens=8192).engine.name == "llamacpp"
    assert kvplan.size("llama-3.1-8b").engine.name == "vllm"
    assert "llama.cpp 0.5" in screen("size", path, "-g", "4090", "-t", "8k")[1]
    assert "rules:  vLLM" in screen("size", path, "-e", "vllm")[1]


def test_a_server_takes_fifteen_gpus() -> None:
    """Its scheduler has sixteen places, and the CPU takes one: with more GPUs it aborts."""
    held, refused = (
        kvplan.size(
            "qwen3-8b", engine="llamacpp", quantization="q4_k_m", gpu=f"{count}xrtx-3090", tokens=8192
        )
        for count in (15, 16)
    )
    assert held.ok
    assert refused.refusal is not None
    assert refused.refusal.code == "too-many-gpus"
    assert refused.refusal.help[0].startswith("--pp 15: ")
    assert not refused.ways


@pytest.mark.parametrize("gpu", ["m4-max-64gb", "strix-halo", "rtx-4090-laptop"])
def test_a_second_machine_is_a_second_server(gpu: str) -> None:
    """No Mac has two GPUs: the answer was one server over both, and a plan proposed it."""
    words: dict[str, Any] = {"engine": "llamacpp", "quantization": "q4_k_m", "tokens": 8192}
    found = kvplan.size("qwen3-8b", gpu=f"2x{gpu}", **words)
    assert found.deployment is not None
    assert found.deployment.replicas == 2
    refused = kvplan.size("qwen3-8b", gpu=f"2x{gpu}", pipeline_parallel_size=2, **words).refusal
    assert refused is not None
    assert refused.code == "too-many-gpus"
    options = kvplan.plan("qwen3-8b", gpu=gpu, engine="llamacpp", tokens=8192, requests=200).options
    assert {option.layout() for option in options} <= {"1 GPU"}
    beside = kvplan.size("qwen3-32b", gpu="rtx-4090-laptop+rtx-3090", **words)
    assert beside.settings["pipeline_parallel_size"] == 2, "a card in a box beside it"
    with pytest.raises(KvplanError, match="2 machines"):
        kvplan.fits(f"2x{gpu}", engine="llamacpp", models="qwen3-8b")


@pytest.mark.parametrize(("stages", "replicas"), [(2, 4), (3, 2), (8, 1), (None, 1)])
def test_where_its_size_is_said_the_other_gpus_are_other_servers(stages: int | None, replicas: int) -> None:
    """``--pp 2`` took all eight, and ``--pp 3`` three each."""
    found = kvplan.size(
        "qwen3-8b", engine="llamacpp", quantization="q4_k_m", gpu="8xrtx-3090", tokens=8192,
        pipeline_parallel_size=stages,
    )  # fmt: skip
    assert found.deployment is not None
    assert (found.deployment.replicas, found.settings["pipeline_parallel_size"]) == (replicas, stages or 8)


def test_named_gpus_are_dealt_layers(tmp_path: Path) -> None:
    """Nobody wrote a tensor-parallel size: the layers go over both cards, the output to the last."""
    path = huge(tmp_path / "m.gguf")
    found = answer(path, gpu="2xrtx-3090", n_gpu_layers=99)
    by_hand = answer(path, gpu="rtx-3090", pipeline_parallel_size=2, n_gpu_layers=99)
    both = found.model_dump(), by_hand.model_dump()
    typed = [set(one["deployment"].pop("typed")) for one in both]
    assert typed[1] - typed[0] == {"pipeline_parallel_size"}
    assert both[0] == both[1]
    first, second = found.devices
    assert (first.layers, second.layers) == (41, 39)
    assert found.settings["pipeline_parallel_size"] == 2
    assert first.kv_bytes == 41 * 8192 * 2 * 8 * 128 * 2
    assert found.per_gpu.kv_bytes == first.kv_bytes
    assert first.weights_bytes is not None
    assert second.weights_bytes is not None
    layer = first.weights_bytes // 41
    output = 8192 * 128256 * 210 // 256
    assert first.weights_bytes == 41 * layer
    assert second.weights_bytes == 39 * layer + output
    assert found.weights is not None
    assert found.weights.bytes_per_gpu == max(first.weights_bytes, second.weights_bytes)


@given(layers=st.integers(1, 200), devices=st.integers(1, 16), given_layers=st.integers(0, 210))
def test_layers_are_dealt_in_order_and_evenly(layers: int, devices: int, given_layers: int) -> None:
    """src/llama-model.cpp: the first device whose cumulated share lies above (i - first) / n_gpu_layers."""
    found = place(layers, devices, given_layers)
    on_gpu = min(given_layers, layers + 1)
    first = layers + 1 - on_gpu
    shares = [(one + 1) / devices for one in range(devices)]
    for index, device in enumerate(found):
        if index < first:
            assert device is None
        else:
            part = (index - first) / on_gpu
            assert device == next(
                one for one, share in enumerate(shares) if share > part + 1e-12 or one == devices - 1
            )


def test_a_tensor_parallel_size_that_was_written_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(KvplanError) as caught:
        answer(small(tmp_path / "m.gguf"), gpu="2xrtx-3090", tensor_parallel_size=2)
    assert "--pp 2" in caught.value.help[0]


def test_several_engines_divide_the_named_gpus_each_in_its_way(screen: Any) -> None:
    code, text = screen(
        "size",
        "llama-3.1-8b",
        "-e",
        "vllm,llamacpp",
        "-g",
        "2xh100",
        "-t",
        "8k",
        "--weights",
        "8GiB",
        "--json",
    )
    assert code == 0
    assert '"tensor_parallel_size": 2' in text
    assert '"pipeline_parallel_size": 2' in text


def test_nothing_is_counted_in_host_memory_that_nobody_stated(tmp_path: Path, screen: Any) -> None:
    path = large(tmp_path / "m.gguf")
    model, choice = kvplan.load_model(str(path)), choose("llamacpp")
    for options in ({"kv_offload": False}, {"n_gpu_layers": 0}):
        asked = kvplan.api.make_settings(gpu="rtx-4090", tokens=40960, **options)
        result = ask(model, choice, asked)
        assert (result.pool, result.refusal) == (None, None)
        found = answered(Question(model, choice, asked))
        assert (found.verdict, found.likely, found.result.capacity) == (None, None, None)
        with pytest.raises(KvplanError, match="host memory"):
            max_requests(model, choice, asked)
    code, text = screen("size", path, "-g", "4090", "-t", "40k", "--no-kv-offload")
    assert code == 2  # a GPU was named, and whether the requests fit was not judged
    assert not re.search(r"holds \d+ request", text)
    assert "--host-memory 64GiB" in text


@given(gib=st.integers(1, 400), tokens=st.integers(1, 40960))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_host_memory_holds_what_fits_in_it(
    tmp_path_factory: pytest.TempPathFactory, gib: int, tokens: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "host.gguf"
    if not path.exists():
        large(path)
    options: dict[str, Any] = {"gpu": "rtx-4090", "kv_offload": False, "host_memory": gib * GIB}
    result = kvplan.size(str(path), tokens=tokens, **options)
    free = kvplan.size(str(path), tokens=tokens, gpu="rtx-4090", settings={"kv_offload": False})
    one, embedding = free.settings["host_kv_bytes"], free.devices[-1].weights_bytes
    assert embedding
    if one + embedding > gib * GIB:
        assert result.refusal is not None
        return
    assert result.pool is not None
    assert result.pool.max_requests == min((gib * GIB - embedding) // one, 256)


def test_the_layers_left_on_the_host_need_room_there_too(tmp_path: Path) -> None:
    path = large(tmp_path / "m.gguf")
    free = answer(path, n_gpu_layers=33)
    assert free.pool is not None
    assert any("--host-memory" in text for text in free.warnings)
    weights = free.devices[-1].weights_bytes
    assert weights
    less = answer(path, n_gpu_layers=33, host_memory=weights - 1).refusal
    assert less is not None
    assert "lie in host memory" in less.message
    tight = answer(path, n_gpu_layers=33, host_memory=weights + 3 * GIB)
    assert tight.pool is not None
    # 32 of 64 layers, 1 GiB of cache for each request of 8,192 tokens
    assert tight.pool.max_requests == min(3, free.pool.max_requests)


def test_host_memory_belongs_to_llamacpp() -> None:
    with pytest.raises(KvplanError, match="no option host_memory"):
        kvplan.size("llama-3.1-8b", engine="vllm", gpu="h100", settings={"host_memory": "64GiB"})


@pytest.mark.parametrize("requests", [1, 2, 5])
@pytest.mark.parametrize("more", [{}, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, {"kv_unified": True}])
def test_max_model_len_auto_is_the_longest(tmp_path: Path, requests: int, more: dict[str, Any]) -> None:
    path = large(tmp_path / "m.gguf")
    found = answer(path, tokens=None, max_model_len="auto", requests=requests, **more)
    assert found.pool is not None
    assert found.pool.max_requests >= requests
    length = found.request.tokens
    longer = answer(path, tokens=length + 256, requests=requests, n_gpu_layers=99, **more)
    assert longer.pool is None or longer.pool.max_requests < requests or length == 40960


def test_max_model_len_is_the_length_of_a_slot(tmp_path: Path) -> None:
    path = small(tmp_path / "m.gguf")
    found = answer(path, tokens=4096, max_model_len=16384)
    assert found.settings["n_ctx_seq"] == 16384
    plain = answer(path, tokens=16384)
    assert found.pool is not None
    assert plain.pool is not None
    assert found.pool.max_requests == plain.pool.max_requests
    assert answer(path, tokens=16385, max_model_len=16384).refusal is not None


def test_what_helps_was_tried(tmp_path: Path, screen: Any) -> None:
    """Every way that a refusal offers makes it fit when it is taken."""
    for name, make, tokens in (("large", large, "24k"), ("huge", huge, "8k"), ("large", large, "40k")):
        path = make(tmp_path / f"{name}.gguf")
        base = ["size", path, "-g", "rtx-4090", "-t", tokens, "-ngl", "99"]
        code, text = screen(*base)
        assert code == 1
        ways = re.findall(r"^help: (-\S+ .*?)(?:: then|$)", text, re.MULTILINE)
        assert any(way.startswith("-ngl") for way in ways)
        assert any(re.match(r"--gpu \d+x", way) for way in ways)
        for way in ways:
            words = shlex.split(way)
            drop = {"--gpu": "-g", "--tokens": "-t", "-ngl": "-ngl"}.get(words[0])
            kept = base if drop is None else [*base[: base.index(drop)], *base[base.index(drop) + 2 :]]
            assert screen(*kept, *words)[0] == 0, way
    _, text = screen("size", tmp_path / "large.gguf", "-g", "rtx-4090", "-t", "16k", "-ngl", "99")
    assert "-ctk q8_0 -ctv q8_0: then it fits" in text


def test_the_way_with_the_most_layers_on_the_gpu_is_named(tmp_path: Path, screen: Any) -> None:
    path = large(tmp_path / "m.gguf")
    _, text = screen("size", path, "-g", "rtx-4090", "-t", "24k", "-ngl", "99")
    count = int(re.findall(r"-ngl (\d+): then", text)[0])
    assert answer(path, tokens=24576, n_gpu_layers=count).refusal is None
    assert answer(path, tokens=24576, n_gpu_layers=count + 1).refusal is not None


def test_the_server_is_started_for_the_length_that_was_asked(screen: Any) -> None:
    """B10: not for the model's 131,072 tokens, which would not start, but for the 8,192 of the question."""
    code, text = screen("size", "llama-3.1-8b", "-g", "4090", "-t", "8k")
    assert code == 0
    assert "started with --max-model-len 8192" in " ".join(text.split())
    given = screen("size", "llama-3.1-8b", "-g", "4090", "-t", "8k", "--max-model-len", "8192")
    assert given[0] == 0
    assert "started with" not in given[1]


def test_experts_may_stay_in_host_memory(tmp_path: Path) -> None:
    sizes = {"layers": 12, "hidden": 2048, "mlp": 768, "heads": 32, "kv_heads": 4, "vocab": 151936}
    path = write_model(tmp_path / "moe.gguf", architecture="qwen3moe", experts=128, **sizes)
    all_of, half, none = (answer(path, **more).weights for more in ({}, {"n_cpu_moe": 6}, {"cpu_moe": True}))
    assert all_of is not None
    assert half is not None
    assert none is not None
    gate, down = (2048 * 768 * 128 * size // 256 for size in (144, 210))
    assert all_of.bytes_per_gpu - half.bytes_per_gpu == 6 * (2 * gate + down)
    assert half.bytes_per_gpu - none.bytes_per_gpu == 6 * (2 * gate + down)


def test_a_format_of_weights_is_not_ignored(tmp_path: Path) -> None:
    sizes = [
        kvplan.size("llama-3.1-8b", engine="llamacpp", gpu="rtx-4090", quantization=word).weights
        for word in ("q4_k_m", "q8_0")
    ]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0].bytes_per_gpu < sizes[1].bytes_per_gpu
    with pytest.raises(KvplanError, match="has its types already"):
        kvplan.size(small(tmp_path / "m.gguf"), engine="llamacpp", gpu="rtx-4090", quantization="q4_k_m")


def test_a_mac_has_the_pool_that_its_release_of_macos_gives(tmp_path: Path) -> None:
    """The likely pool is that of macOS 26, the safe one that of the releases before."""
    found = answer(small(tmp_path / "m.gguf"), gpu="m4-max-64gb")
    assert any("recommendedMaxWorkingSetSize" in text for text in found.warnings)
    assert found.budget is not None
    assert found.budget.total_bytes == 64 * GIB * 81 // 100
    line = next(line for line in found.budget.lines if line.name == "kept by older macOS")
    assert (line.bytes, line.high_bytes) == (0, 64 * GIB * 81 // 100 - 48 * GIB)


CASES = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["small", "large", "huge"]),
        "gpu": st.sampled_from(["rtx-4090", "2xrtx-3090", "l40s", "4xrtx-3090", "h100"]),
        "requests": st.integers(1, 9),
        "tokens": st.sampled_from([1000, 4096, 8192, 24576, 32768]),
        "kv_cache_dtype": st.sampled_from([None, "q8_0", "q4_0"]),
        "options": st.sampled_from(
            [
                {},
                {"cache_type_k": "q8_0"},
                {"n_gpu_layers": 30},
                {"ubatch_size": 1024},
                {"kv_unified": True},
                {"flash_attn": True, "n_gpu_layers": 99},
            ]
        ),
        "pool": st.sampled_from(["likely", "safe"]),
    }
)


@given(case=CASES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_plan_writes_check_passes_and_export_starts(
    tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    """A3: the chosen cache type and every option reach the plan file, the check and the command."""
    from kvplan.report.export import export
    from kvplan.report.plan_file import plan_text

    folder = tmp_path_factory.getbasetemp() / "plans"
    folder.mkdir(exist_ok=True)
    path = folder / f"{case['model']}.gguf"
    if not path.exists():
        {"small": small, "large": large, "huge": huge}[case["model"]](path)
    own = dict(case["options"])
    formats = None if "cache_type_k" in own else case["kv_cache_dtype"]
    result = kvplan.plan(
        str(path), gpu=case["gpu"], requests=case["requests"], tokens=case["tokens"], pool=case["pool"],
        kv_cache_dtype=formats, depth=False, quality="aggressive", **own,
    )  # fmt: skip
    if result.plan is None:
        return
    best = result.plan
    serve = dict(best.serve)
    length, slots = case["tokens"], result.options[0].requests_per_engine
    assert (serve["ctx_size"], serve["parallel"]) == (length * slots, slots)
    written = folder / "plan.yaml"
    written.write_text(plan_text(best, directory=folder))
    (read,) = kvplan.load_plans(written)
    assert read.settings == best.settings
    report = kvplan.check([written])
    assert report.exit_code == 0, [one.findings for one in report.plans]
    command = export(best, "command", model=kvplan.load_model(best.model))
    for name, value in serve.items():
        if isinstance(value, bool):
            word = f"--{name}" if value else f"--no-{name}"
            assert word.replace("_", "-") in command
        else:
            assert f"--{name.replace('_', '-')} {value}" in command
    assert f"--model {path}" in command.replace("'", "")
    again = kvplan.size(read)
    assert again.refusal is None
    assert again.pool is not None
    assert again.pool.max_requests >= slots


def test_a_plan_of_a_gguf_file_can_be_looked_at(tmp_path: Path, screen: Any) -> None:
    path = large(tmp_path / "big.gguf")
    plan = tmp_path / "p.yaml"
    code, text = screen(
        "plan", path, "-g", "rtx-4090", "-n", "1", "-t", "24k", "--pool", "likely", "--write", plan, "-v"
    )
    assert code == 0
    rows = text[text.index("look:") + 5 : text.index("wrote:")]
    words = shlex.split(rows)
    assert words[:2] == ["kvplan", "size"]
    code, said = screen(*words[1:])
    assert code == 0
    assert "holds 1 request of 24,576 tokens" in said
    assert screen("check", plan)[0] == 0
    assert "model: big.gguf" in plan.read_text()


def test_host_memory_of_a_plan_is_kept(tmp_path: Path, screen: Any) -> None:
    path = large(tmp_path / "m.gguf")
    plan = tmp_path / "p.yaml"
    words = ["plan", path, "-g", "rtx-4090", "-n", "3", "-t", "24k", "--no-kv-offload", "--write", plan]
    code, text = screen(*words[:-2])
    assert code == 1
    assert "--host-memory 64GiB" in " ".join(text.split())
    assert screen(*words, "--host-memory", "32GiB")[0] == 0
    assert "host_memory: 34359738368" in plan.read_text()
    assert screen("check", plan)[0] == 0
    stated = plan.read_text()
    plan.write_text(stated.replace("host_memory: 34359738368", "host_memory: 4GiB"))
    assert screen("check", plan)[0] == 1
    plan.write_text(stated.replace("  host_memory: 34359738368\n", ""))
    code, text = screen("check", plan)
    assert code == 2
    assert "require.host_memory: 64GiB" in text


def test_a_plan_that_does_not_fit_says_what_would(tmp_path: Path, screen: Any) -> None:
    """The check's ways out in the plan's own words; each is taken and checked again."""
    path = large(tmp_path / "m.gguf")
    plan = tmp_path / "p.yaml"
    head = f"kvplan: plan/v1\nmodel: {path}\nengine: llamacpp@0.5\ngpu: rtx-4090-24gb\n"
    tail = "require: {requests: 1, tokens: 16384}\n"
    whole = "serve: {ctx_size: 16384, parallel: 1, n_gpu_layers: 99%s}\n"
    plan.write_text(head + "gpus: 1\n" + whole % "" + tail)
    code, text = screen("check", plan)
    assert code == 1
    assert "serve.cache_type_k: q8_0 with serve.cache_type_v: q8_0" in text
    assert "gpus: 2" in text
    count = re.findall(r"serve\.n_gpu_layers: (\d+)", text)
    fewer = (whole % "").replace("99", count[0])
    types = whole % ", cache_type_k: q8_0, cache_type_v: q8_0"
    for gpus, serve in ((1, types), (2, whole % ""), (1, fewer)):
        plan.write_text(head + f"gpus: {gpus}\n" + serve + tail)
        assert screen("check", plan)[0] == 0
    plan.write_text(head + "gpus: 1\nserve: {ctx_size: 16384, parallel: 1}\n" + tail)
    code, text = screen("check", plan)
    assert code == 0
    assert "left-in-host-memory" in text


def test_a_context_that_was_given_has_to_change_itself(tmp_path: Path, screen: Any) -> None:
    path = large(tmp_path / "m.gguf")
    base = ["size", path, "-g", "rtx-4090", "-t", "4k", "-ngl", "99"]
    _, text = screen(*base, "--ctx-size", "40960")
    way = re.findall(r"^help: (--ctx-size \d+)$", text, re.MULTILINE)
    assert screen(*base, *way[0].split())[0] == 0
