"""``validate --with``: an engine's own figures confirm a plan or refute it, by the line that differs."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_gpu, load_model
from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.datafiles import data_dir
from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.judged import judged, measured_lines
from kvplan.proof.validate.installed.messages import Measured, hello_of, measured_of
from kvplan.proof.validate.installed.question import reduced
from kvplan.proof.validate.target import Target
from tests.proof.fake_engine import interpreter
from tests.proof.test_receipt_files import _target

pytestmark = pytest.mark.skipif(os.name != "posix", reason="engines run on Linux")
MIB = 1 << 20
POOL = 16 * MIB
HERE = {"version": "0.32.0", "torch": "2.13.0+cpu", "python": "3.11.7", "device": "cpu", "kind": "cpu",
        "server": ["-m", "engine.server"]}  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 32, "max_position_embeddings": 2048, "vocab_size": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
MEASURED: dict[str, Any] = {
    "hello": HERE,
    "measured": [
        ["settings", {
            "dtype": "bfloat16", "kv_cache_dtype": "auto", "max_model_len": 2048, "max_num_seqs": 128,
            "max_num_batched_tokens": 2048, "block_size": 128, "enable_prefix_caching": True,
            "async_scheduling": False, "enforce_eager": True, "mamba_ssm_cache_dtype": "float32"}],
        ["available", [POOL]],
        ["workers", [{"cache_bytes": POOL, "parameter_bytes": 264_704, "built_parameter_bytes": 2_492_928}]],
        ["cache", {"num_blocks": 256, "groups": [
            {"kind": "FullAttentionSpec", "layers": 2, "block_size": 128, "page_bytes": 32_768}]}],
    ],
    "requests": {"admitted": 31, "refused": True, "free_before": 255, "free_after": 255},
}  # fmt: skip
"""What vLLM 0.32 on the CPU says of this model with 16 MiB and requests of 1,000 tokens."""
WORDS = ("--with", "vllm", "--device", "cpu", "--kv-cache-memory", "16MiB", "--tokens", "1000")


def changed(of: str, *path: str | int, by: int = 1) -> dict[str, Any]:
    """The same run with one number off. of: the message, or ``requests``."""
    says = copy.deepcopy(MEASURED)
    node: Any = (
        says[of] if of == "requests" else next(values for name, values in says["measured"] if name == of)
    )
    *parents, last = path
    for key in parents:
        node = node[key]
    node[last] += by
    return says


def grouped(**other: object) -> dict[str, Any]:
    """The same run with a group that is another."""
    says = copy.deepcopy(MEASURED)
    says["measured"][3][1]["groups"][0].update(other)
    return says


def run(folder: Path, says: Mapping[str, Any], *more: str, words: tuple[str, ...] = WORDS) -> int:
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    python = str(interpreter(folder, dict(says)))
    return main(["validate", str(folder), *words, "--engine-python", python, *more])


def test_a_rehearsal_is_confirmed_by_the_engine_s_own_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = tmp_path / "asked.json"
    output = tmp_path / "r.json"
    assert run(tmp_path, {**MEASURED, "asked": str(asked)}, "--output", str(output)) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(
        "Confirmed by vLLM 0.32.0 in host memory (a rehearsal): 256 blocks and 31 requests of"
    )
    read = read_receipt(output)
    assert read.intact
    assert (read.receipt.kind, read.receipt.verdict) == ("rehearsal", "confirmed")
    assert {"engine_num_blocks", "engine_requests", "engine_cache_bytes"} <= set(read.receipt.confirmed_by)
    run_ = read.receipt.engine_run
    assert (run_["version"], run_["torch"], run_["device"]) == ("0.32.0", "2.13.0+cpu", "cpu")
    assert run_["settings"]["block_size"] == 128
    assert run_["taken"]["max_num_seqs"] == 128
    words = json.loads(asked.read_text())["words"]
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(POOL)
    assert words[words.index("--load-format") + 1] == "dummy"


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (changed("cache", "num_blocks"), "engine_blocks_in_its_pool: 257 measured, 256 predicted"),
        (changed("cache", "num_blocks", by=-1), "engine_num_blocks: 255 measured, 256 predicted"),
        (changed("cache", "groups", 0, "page_bytes", by=128), "groups that differ !"),
        (grouped(kind="SlidingWindowSpec"), "groups that differ !"),
        (grouped(window=4096), "windows that differ !"),
        (changed("available", 0, by=-65536), "engine_pool_bytes: 16,711,680 measured, 16,777,216 predicted"),
        (changed("workers", 0, "cache_bytes"), "cache, rank 0 !"),
        (changed("workers", 0, "built_parameter_bytes", by=20_000), "weights, rank 0 !"),
        (changed("requests", "admitted", by=-1), "requests at full length !"),
        ({**MEASURED, "running": 30}, "requests !"),
        ({**MEASURED, "running": 30}, "requests in its pool !"),
        (changed("requests", "free_after", by=-1), "blocks free again !"),
    ],
)
def test_a_figure_that_is_off_by_one_refutes_and_is_named(
    says: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, says) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("Refuted by vLLM 0.32.0 in host memory")
    assert line in out


def test_bytes_a_block_are_named_where_they_make_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice the page: half the blocks; the group and the bytes of a block say why."""
    says = changed("cache", "num_blocks", by=-128)
    says["measured"][3][1]["groups"][0]["page_bytes"] = 65_536
    assert run(tmp_path, says, "-v") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "bytes a block: 131,072 measured, 65,536 predicted" in out
    assert "a group of 2 layers that keep every token, blocks of 128 tokens, pages of 65,536 B" in out


def test_an_engine_that_refuses_what_was_said_to_fit_refutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = {
        **MEASURED,
        "in": "get_kv_cache_configs",
        "raise": ["ValueError", "To serve one request"],
    }
    assert run(tmp_path, says) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "the engine (0.32.0) refuses to start: To serve one request" in out


def test_an_engine_that_fails_otherwise_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = {**MEASURED, "in": "load_model", "raise": ["ValueError", "no such layer"]}
    assert run(tmp_path, says, "--output", str(tmp_path / "r.json")) == 3
    err = " ".join(capsys.readouterr().err.split())
    assert "error[engine-failed]: the engine (0.32.0) failed in the stage `load_model`: ValueError" in err
    assert not (tmp_path / "r.json").exists()


def test_the_time_limit_leaves_a_stopped_receipt(tmp_path: Path) -> None:
    says = {**MEASURED, "in": "load_model", "sleep": 600}
    output = tmp_path / "r.json"
    assert run(tmp_path, says, "--time-limit", "2s", "--output", str(output)) == 3
    receipt = read_receipt(output).receipt
    assert (receipt.verdict, receipt.stopped_at, receipt.stopped_by) == ("stopped", "load_model", "time")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with", "vlm"), "did you mean vllm?"),
        (("--with", "trtllm"), "kvplan does not drive TensorRT-LLM's worker"),
        (("--with", "transformers", "--engine", "vllm@0.32"), "is for vLLM, not transformers"),
        (("--with", "vllm", "--find-limit"), "--find-limit and --with cannot both hold"),
        (("--with", "vllm", "--engine", "sglang"), "is for SGLang, not vLLM"),
        ((*WORDS, "--layers", "3"), "--layers 3: the model has 2"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, MEASURED, words=words) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_another_release_than_the_plan_s_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.yaml"
    plan.write_text(
        "kvplan: plan/v1\nname: p\nmodel: llama-3.1-8b\nengine: vllm@0.30\ngpu: h200\n", encoding="utf-8"
    )
    python = str(interpreter(tmp_path, MEASURED))
    assert main(["validate", str(plan), *WORDS[:4], "--engine-python", python]) == 3
    err = capsys.readouterr().err
    assert "error[other-release]: p is for vLLM 0.30, 0.32.0 is installed" in err
    assert "engine: vllm@0.32" in err


def test_a_gpu_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, MEASURED, words=("--with", "vllm", "--kv-cache-memory", "16MiB")) == 3
    assert "error[no-gpu]" in capsys.readouterr().err


PLAN = """\
kvplan: plan/v1
name: chat
model: llama-3.1-8b
engine: vllm@0.32
gpu: h200
serve: {max_model_len: 8192}
require: {requests: 2, tokens: 4096}
"""


def on_h200(*, off: int = 0, blocks: int = 0, activations: int = 0) -> dict[str, Any]:
    """A run on the plan's GPU as it is predicted; off: bytes of the pool, blocks: of the count."""
    gpu = load_gpu("h200")
    asked: dict[str, Any] = {"engine": "vllm@0.32", "gpu": gpu, "tokens": 4096, "max_model_len": 8192}
    left = kvplan.size("llama-3.1-8b", **asked)
    assert left.budget is not None
    assert left.weights is not None
    pool = left.budget.kv_pool_bytes + off
    found = kvplan.size("llama-3.1-8b", kv_cache_memory=pool, **asked)
    assert found.pool is not None
    requested = left.budget.total_bytes - left.budget.unused_bytes
    lines = {line.name: line.bytes for line in left.budget.lines}
    stays = ("weights", "rotary tables", "sampler states", "non-torch memory")
    consumed = sum(lines[name] for name in stays)
    graphs = lines["CUDA graphs"]
    names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
    group = found.pool.groups[0]
    return {
        "hello": {**HERE, "device": "NVIDIA H200", "kind": "cuda", "nvml_total": 150_754_820_096},
        "measured": [
            ["settings", {name: left.settings[name] for name in names}],
            ["available", [pool]],
            ["workers", [{
                "cache_bytes": found.pool.num_blocks * found.pool.bytes_per_block,
                "parameter_bytes": left.weights.bytes_per_gpu, "total_bytes": gpu.memory_total_bytes,
                "requested_memory": requested, "total_consumed": consumed + activations,
                "cudagraph_memory_estimate": graphs, "graphs_applied_bytes": graphs}]],
            ["cache", {"num_blocks": found.pool.num_blocks + blocks, "groups": [
                {"kind": "FullAttentionSpec", "layers": group.layers, "block_size": group.block_size,
                 "page_bytes": group.page_bytes}]}],
        ],
        "requests": {"admitted": found.pool.max_running, "refused": True, "free_before": 9, "free_after": 9},
    }  # fmt: skip


def on_plan(folder: Path, says: Mapping[str, Any], *more: str) -> tuple[int, Path]:
    plan = folder / "chat.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    python = str(interpreter(folder, dict(says)))
    return main(["validate", str(plan), "--with", "vllm", "--engine-python", python, *more]), plan


def test_a_proof_on_the_plan_s_gpu_is_evidence_for_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, plan = on_plan(tmp_path, on_h200())
    out = " ".join(capsys.readouterr().out.split())
    assert code == 0, out
    assert out.startswith("Confirmed by vLLM 0.32.0 on NVIDIA H200:")
    receipt = read_receipt(tmp_path / "evidence" / "chat-h200-sxm-141gb-vllm.json").receipt
    assert receipt.kind == "proof"
    assert {"engine_pool_bytes", "engine_num_blocks", "engine_requests", "engine_weights_bytes",
            "engine_max_num_seqs"} <= set(receipt.confirmed_by)  # fmt: skip
    reported = {one.name: one for one in receipt.figures if one.evidence == "reported"}
    assert reported["engine_activation_bytes"].measured == reported["engine_activation_bytes"].predicted
    plan.write_text(PLAN + "evidence: [{path: evidence/chat-h200-sxm-141gb-vllm.json}]\n", encoding="utf-8")
    assert main(["check", str(plan)]) == 0, capsys.readouterr().out


def test_a_block_that_is_missing_on_the_gpu_refutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = on_plan(tmp_path, on_h200(blocks=-1), "-v")
    assert code == 1
    assert "engine_blocks_in_its_pool" in capsys.readouterr().out


def test_a_pool_within_the_budget_s_interval_agrees_and_beyond_it_the_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert on_plan(tmp_path, on_h200(off=-64 * MIB))[0] == 0
    capsys.readouterr()
    receipt = read_receipt(tmp_path / "evidence" / "chat-h200-sxm-141gb-vllm.json").receipt
    found = {figure.name: figure for figure in receipt.figures}
    plan, pool = found["engine_requests"], found["engine_requests_in_its_pool"]
    assert plan.predicted == on_h200()["requests"]["admitted"]  # whatever pool the engine came to
    assert plan.measured == pool.predicted == pool.measured
    assert (plan.low or 0) <= (plan.measured or 0) <= (plan.high or 0)
    code, _ = on_plan(tmp_path, on_h200(off=-(6 << 30), activations=6 << 30), "-v")
    out = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "engine_consumed_bytes: " in out
    assert "outside its interval" in out


def test_memory_that_runs_out_in_the_engine_refutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = {
        **on_h200(),
        "in": "determine_available_memory",
        "raise": ["OutOfMemoryError", "CUDA out of memory"],
    }
    code, _ = on_plan(tmp_path, says)
    assert code == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "memory ran out in the stage `pool`" in out


def test_fewer_layers_are_no_evidence_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    says = on_h200()
    group = says["measured"][3][1]["groups"][0]
    group["layers"] = 4
    own = kvplan.size(
        reduced(load_model("llama-3.1-8b"), 4), engine="vllm@0.32", gpu="h200", tokens=4096,
        max_model_len=8192, kv_cache_memory=says["measured"][1][1][0],
    )  # fmt: skip
    assert own.pool is not None
    says["measured"][3][1]["num_blocks"] = own.pool.num_blocks
    says["measured"][2][1][0].update(
        cache_bytes=own.pool.num_blocks * own.pool.bytes_per_block, parameter_bytes=None
    )
    says["requests"]["admitted"] = own.pool.max_running
    code, plan = on_plan(tmp_path, says, "--layers", "4")
    assert code == 0, capsys.readouterr().out
    receipt = read_receipt(tmp_path / "evidence" / "chat-h200-sxm-141gb-vllm-layers-4.json").receipt
    assert receipt.engine_run["layers"] == 4
    plan.write_text(
        PLAN + "evidence: [{path: evidence/chat-h200-sxm-141gb-vllm-layers-4.json}]\n", encoding="utf-8"
    )
    assert main(["check", str(plan)]) == 1
    assert "4 layers" in capsys.readouterr().out


TARGET: Target = _target(kv_cache_memory="64MiB", tokens=1000, max_model_len=2048)


def told(**workers: int) -> Measured:
    assert TARGET.result.pool is not None
    pool = TARGET.result.pool
    groups = [{"kind": "a", "layers": one.layers, "block_size": one.block_size, "page_bytes": one.page_bytes}
              for one in pool.groups]  # fmt: skip
    return measured_of(hello_of(HERE), [
        {"event": "measured", "of": "available", "values": [64 * MIB]},
        {"event": "measured", "of": "workers", "values": [workers]},
        {"event": "measured", "of": "cache", "values": {"num_blocks": pool.num_blocks, "groups": groups}},
    ])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.integers(-40, 40))
def test_blocks_agree_exactly_where_they_are_equal(off: int) -> None:
    """The law: no difference is small enough to be overlooked, and none is seen where there is none."""
    found = told()
    from dataclasses import replace

    assert found.num_blocks is not None
    result = judged(TARGET, replace(found, num_blocks=found.num_blocks + off), on_gpu=False)
    wrong = {one.name for one in result.figures if not one.agrees}
    assert wrong == ({"engine_blocks_in_its_pool", "engine_num_blocks"} if off else set())
    assert [one.code for one in result.findings] == (["engine-differs"] if off else [])


@given(st.integers(0, 10**12), st.integers(0, 10**11), st.integers(0, 10**10), st.integers(0, 10**10))
def test_the_engine_s_own_lines_add_up(available: int, consumed: int, activations: int, graphs: int) -> None:
    worker = {"requested_memory": available + consumed + activations + graphs, "total_consumed": consumed,
              "cudagraph_memory_estimate": graphs, "graphs_applied_bytes": graphs}  # fmt: skip
    lines = measured_lines(worker, available)
    if consumed and worker["requested_memory"]:
        assert lines["activation_bytes"] == activations


def test_fewer_layers_cut_what_has_an_entry_a_layer() -> None:
    model = load_model({**CONFIG, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
                        "num_hidden_layers": 8, "layer_types": ["full_attention"] * 8})  # fmt: skip
    cut = reduced(model, 3)
    assert cut.config is not None
    assert (cut.config["num_hidden_layers"], len(cut.config["layer_types"])) == (3, 3)
    assert cut.config["torch_dtype"] == "bfloat16"  # eight letters, and no pattern of layers
    assert sum(one.count for one in cut.runs) == 3
    assert reduced(model, None) is model
    with pytest.raises(KvplanError, match="the model has 8"):
        reduced(model, 0)


def test_what_an_engine_measured_becomes_a_card_s_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of the engine's own memory are computed in that memory, not in the plan's estimate of it."""
    card = tmp_path / "card.yaml"
    card.write_bytes((data_dir("model_cards") / "llama-3.1-8b.yaml").read_bytes())
    assert on_plan(tmp_path, on_h200(off=-64 * MIB))[0] == 0
    receipt = tmp_path / "evidence" / "chat-h200-sxm-141gb-vllm.json"
    assert main(["cards", "add-evidence", str(card), str(receipt)]) == 0, capsys.readouterr().err
    assert "vllm@0.32" in card.read_text()


def test_a_rehearsal_takes_a_length_that_the_engine_s_own_blocks_hold(tmp_path: Path) -> None:
    """vLLM's blocks on a CPU are of 128 tokens: 1 MiB has 16 of them, and one is nobody's."""
    asked = tmp_path / "asked.json"
    words = ("--with", "vllm", "--device", "cpu", "--kv-cache-memory", "1MiB")
    run(tmp_path, {**MEASURED, "asked": str(asked)}, words=words)
    words = tuple(json.loads(asked.read_text())["words"])
    assert int(words[words.index("--max-model-len") + 1]) == 15 * 128
