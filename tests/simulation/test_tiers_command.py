"""Tiers, disaggregated prefill and the fleet of a plan, as they are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.simulation.offload_tiers import AskedOffload, AskedTier, asked_offload
from kvplan.simulation.shown import shown as shown_as
from tests.simulation.outcomes import simulated

TRACE = "examples/traces/chat-sessions.jsonl.gz"
ASKED: dict[str, Any] = {
    "trace": TRACE, "gpu": "h100", "kv_cache_memory": "4GiB", "max_model_len": 16384, "rate": 10,
    "first": 120,
    "search": False, "helps": False, "step_time": "6ms+25us*tokens+25ns*context",
}  # fmt: skip


def test_words_of_tiers() -> None:
    assert asked_offload("cpu:64GiB") == AskedOffload((AskedTier("cpu", 64 << 30),), text="cpu:64GiB")
    found = asked_offload("cpu:1.5GiB@50GB/s,nvme:2TiB,policy=arc,chunk=64,load=cheaper")
    assert found.tiers == (AskedTier("cpu", 3 << 29, 50 * 10**9), AskedTier("nvme", 2 << 40))
    assert (found.policy, found.chunk, found.cheaper) == ("arc", 64, True)


@pytest.mark.parametrize(
    "text",
    ["", "nvme:2TiB", "cpu:64GiB,cpu:1GiB", "cpu", "cpu:0GiB", "cpu:64GiB@0GB/s", "cpu:64GiB,disk:1TiB",
     "cpu:64GiB,policy=lfu", "cpu:64GiB,chunk=0", "cpu:64GiB,chunks=4", "cpu:64GiB,load=often,load=always"],
)  # fmt: skip
def test_bad_words_of_tiers(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        asked_offload(text)
    assert caught.value.help


def test_a_tier_brings_hits_and_a_shorter_wait() -> None:
    plain = simulated("llama-3.1-8b", replicas=1, **ASKED)
    tiered = simulated("llama-3.1-8b", replicas=1, offload="cpu:16GiB", **ASKED)
    assert tiered.hit_rate.value > plain.hit_rate.value + 0.1
    assert tiered.ttft(0.5).value < plain.ttft(0.5).value
    shown = shown_as(tiered).model_dump()["offload"]
    assert shown["tiers"][0]["name"] == "cpu"
    assert shown["tiers"][0]["loaded_bytes"] > 0
    assert shown_as(plain).model_dump()["offload"] is None
    cheaper = simulated("llama-3.1-8b", replicas=1, offload="cpu:16GiB@1MB/s,load=cheaper", **ASKED)
    assert cheaper.hit_rate.value == pytest.approx(plain.hit_rate.value, abs=0.05)


def test_host_memory_is_among_what_would_help() -> None:
    """As large as the GPU's own, and with the figures that it has where it is asked for."""
    asked = {**ASKED, "helps": True}
    found = simulated("llama-3.1-8b", replicas=1, **asked)
    (tier,) = [one for one in found.helps if one.what.startswith("offload ")]
    assert tier.what == "offload cpu:64GiB"
    assert tier.hit_rate > found.hit_rate.value + 0.1
    same = simulated("llama-3.1-8b", replicas=1, offload="cpu:64GiB", **ASKED)
    assert same.hit_rate.value == tier.hit_rate
    assert same.ttft(0.99).value == tier.ttft_p99_seconds
    again = simulated("llama-3.1-8b", replicas=1, offload="cpu:1GiB", **asked)
    assert not [one for one in again.helps if one.what.startswith("offload ")]


def test_host_memory_is_not_proposed_where_it_cannot_be() -> None:
    """Of a model with windows, and where the pool has all that can be had."""
    for model, memory in (("gemma-3-4b", "3GiB"), ("llama-3.1-8b", "40GiB")):
        asked = {**ASKED, "helps": True, "kv_cache_memory": memory}
        found = simulated(model, replicas=1, **asked)
        assert not [one for one in found.helps if one.what.startswith("offload ")]


def test_lmcache_has_chunks_of_256_and_says_what_it_assumes() -> None:
    found = simulated("llama-3.1-8b", replicas=1, offload="cpu:16GiB,nvme:1TiB,backend=lmcache", **ASKED)
    assert any("nvme is taken to move" in note for note in found.notes)
    assert found.likely.tiers[0].hits % 256 == 0 or found.likely.tiers[0].hits > 0


def test_prefill_and_decode_replicas() -> None:
    found = simulated("llama-3.1-8b", prefill_replicas=1, decode_replicas=2, link="50GB/s", **ASKED)
    shown = shown_as(found).model_dump()["disaggregated"]
    assert (shown["prefill_replicas"], shown["decode_replicas"]) == (1, 2)
    assert shown["transfers"] == 120
    assert shown["mean_transfer_seconds"] > 0
    assert found.replicas == 3


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"prefill_replicas": 1}, "bad-usage"),
        ({"link": "50GB/s"}, "bad-usage"),
        ({"prefill_replicas": 0, "decode_replicas": 1}, "bad-replicas"),
        ({"prefill_replicas": "auto", "decode_replicas": 1}, "bad-replicas"),
        ({"prefill_replicas": 1, "decode_replicas": 1, "link": "0GB/s"}, "bad-size"),
        ({"prefill_replicas": 1, "decode_replicas": 1, "offload": "cpu:1GiB"}, "not-simulated"),
        ({"offload": "cpu:1KiB"}, "bad-offload"),
        ({"offload": "cpu:1GiB,chunk=17"}, "bad-offload"),
        ({"router": "llm-d:cache=2"}, "bad-router"),
        ({"router": "lmd"}, "bad-router"),
    ],
)
def test_refused(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(KvplanError) as caught:
        simulated("llama-3.1-8b", **{**ASKED, "replicas": 1, **asked})
    assert caught.value.code == code
    assert caught.value.help


def test_the_screens(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "llama-3.1-8b", "--gpu", "h100", "--trace", TRACE, "--first", "100", "--rate", "4",
             "--kv-cache-memory", "4GiB", "--max-model-len", "16k", "--quick"]  # fmt: skip
    assert main([*words, "--replicas", "1", "--offload", "cpu:16GiB"]) == 0
    screen = capsys.readouterr().out
    assert "of these cpu" in screen
    assert "stored" in screen
    assert main([*words, "--prefill-replicas", "1", "--decode-replicas", "1"]) == 0
    screen = capsys.readouterr().out
    assert "1 prefill and 1 decode replicas" in " ".join(screen.split())
    assert "transfer" in screen
    assert main([*words, "--replicas", "2", "--router", "dynamo:weight=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["router"] == "dynamo:weight=2"


def test_a_plan_says_its_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    head = (
        "kvplan: plan/v1\nmodel: llama-3.1-8b\nengine: vllm@0.33\ngpu: h100\n"
        "serve: {max_model_len: 16384, kv_cache_memory_bytes: 4294967296}\n"
        f"workload: {{trace: {Path(TRACE).resolve()}}}\n"
    )
    plan.write_text(head + "fleet: {offload: 'cpu:16GiB', router: session}\nreplicas: 2\n")
    assert main(["simulate", str(plan), "--json", "--quick", "--first", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["router"] == "session"
    assert found["offload"]["tiers"][0]["name"] == "cpu"
    plan.write_text(head + "fleet: {prefill_replicas: 1, decode_replicas: 1, link: 50GB}\ngpus: 2\n")
    assert main(["simulate", str(plan), "--json", "--quick", "--first", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["disaggregated"]["decode_replicas"] == 1
    plan.write_text(head + "fleet: {prefill_replicas: 1}\n")
    assert main(["simulate", str(plan), "--quick"]) == 2
    assert "decode_replicas" in capsys.readouterr().err


def test_vllms_own_flag_of_a_plan_is_a_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "kvplan: plan/v1\nmodel: llama-3.1-8b\nengine: vllm@0.33\ngpu: h100\n"
        "serve: {max_model_len: 16384, kv_cache_memory_bytes: 4294967296, kv_offloading_size: 8}\n"
        f"workload: {{trace: {Path(TRACE).resolve()}}}\n"
    )
    assert main(["simulate", str(plan), "--json", "--quick", "--first", "60"]) == 0
    assert json.loads(capsys.readouterr().out)["offload"]["tiers"][0]["name"] == "cpu"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "abc"], "--rate: 'abc/s' is not a rate"), (["--rate", "0"], "write --rate 3/s"),
        (["--goodput", "most"], "--goodput: 'most' is not a share"),
        (["--goodput", "120%"], "goodput is 1.2: a share of 1"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_own_option(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--generate", "requests=5,rate=1", "--quick", "--replicas", "1"]
    assert main(["simulate", "llama-3.1-8b", "--gpu", "h100", *load, *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
