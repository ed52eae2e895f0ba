"""KV connectors and the hybrid KV cache manager, by release and class, and as vLLM itself has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.release_rules import within
from kvplan.engines.vllm.start import connectors
from kvplan.engines.vllm.versions import VERSIONS, rules_of
from kvplan.errors import KvplanError
from kvplan.results import SizeResult
from tests.engines.test_vllm_live import RELEASE
from tests.engines.vllm_cases import CONFIGS, question
from tests.engines.vllm_compare import check
from tests.engines.vllm_release_cases import card_configs, case_of, connected

PROGRAM = Path(__file__).parent / "vllm_ask.py"
NAMES = tuple(sorted({*connectors._rows()}))
BOTH = "kv_both"
GEMMA, LLAMA, HYBRID = "gemma-3-4b", "llama-3.2-1b", "qwen3-next-80b-a3b"
INSTALLED = pytest.mark.skipif(
    RELEASE is None or not RELEASE.startswith("0.32."), reason="vLLM 0.32 is not installed: make vllm"
)


def transfer(name: str, **more: Any) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": BOTH, **more}


def sized(model: str, release: str, config: object = None, **more: Any) -> SizeResult:
    given = {"kv_transfer_config": config} if config is not None else {}
    return kvplan.size(
        model, engine=f"vllm@{release}", kv_cache_memory="16GiB", **{"max_model_len": 32768, **given, **more},
    )  # fmt: skip


def is_off(result: SizeResult) -> bool:
    return bool(result.settings["disable_hybrid_kv_cache_manager"])


@pytest.mark.parametrize(("release", "name", "off"), [
    ("0.9", "NixlConnector", True), ("0.17", "NixlConnector", True), ("0.21", "NixlConnector", True),
    ("0.22", "NixlConnector", False), ("0.33", "NixlConnector", False), ("0.33", "LMCacheConnectorV1", True),
    ("0.29", "MoRIIOConnector", True), ("0.30", "MoRIIOConnector", False),
    ("0.22", "OffloadingConnector", False), ("0.21", "OffloadingConnector", True),
])  # fmt: skip
def test_a_connector_and_the_hybrid_manager(release: str, name: str, off: bool) -> None:
    found, plain = sized(GEMMA, release, transfer(name)), sized(GEMMA, release)
    assert is_off(found) is off
    assert found.pool is not None
    assert plain.pool is not None
    assert (found.pool.max_concurrency < plain.pool.max_concurrency) is off
    assert any("turns the hybrid KV cache manager" in said for said in found.warnings) is off


@pytest.mark.parametrize("release", ["0.10", "0.17", "0.21", "0.33"])
@pytest.mark.parametrize("name", ["NixlConnector", "LMCacheConnectorV1"])
def test_without_windows_nothing_changes(release: str, name: str) -> None:
    found, plain = sized(LLAMA, release, transfer(name)), sized(LLAMA, release)
    assert found.pool == plain.pool
    assert not [said for said in found.warnings if "hybrid" in said]


@pytest.mark.parametrize(("release", "name", "starts"), [
    ("0.17", "NixlConnector", False), ("0.33", "NixlConnector", True), ("0.33", "LMCacheConnectorV1", False),
])  # fmt: skip
def test_states_beside_attention_need_the_manager(release: str, name: str, starts: bool) -> None:
    assert (sized(HYBRID, release, transfer(name)).refusal is None) is starts


def test_asked_on_beside_a_connector_that_cannot() -> None:
    """create_connector: "does not support HMA but HMA is enabled"."""
    found = sized(GEMMA, "0.33", transfer("LMCacheConnectorV1"), disable_hybrid_kv_cache_manager=False)
    assert found.refusal is not None
    assert found.refusal.help == ("--disable-hybrid-kv-cache-manager",)
    kept = sized(GEMMA, "0.18", transfer("NixlConnector"), disable_hybrid_kv_cache_manager=False)
    assert kept.refusal is None
    assert not is_off(kept)


def test_offloading_by_its_size_stops_under_the_manager_until_0_21() -> None:
    """_post_init_kv_transfer_config ran behind the check of the manager, which stayed on (0.14 to 0.20)."""
    for release, starts in (("0.14", False), ("0.20", False), ("0.21", True), ("0.33", True)):
        found = sized(LLAMA, release, kv_offloading_size=4)
        assert (found.refusal is None) is starts, release
    assert sized(LLAMA, "0.20", kv_offloading_size=4, disable_hybrid_kv_cache_manager=True).refusal is None


def test_a_multi_connector_is_as_its_children() -> None:
    def multi(*names: str) -> dict[str, Any]:
        inner = {"connectors": [transfer(name) for name in names]}
        return transfer("MultiConnector", kv_connector_extra_config=inner)

    assert not is_off(sized(GEMMA, "0.33", multi("NixlConnector", "OffloadingConnector")))
    assert is_off(sized(GEMMA, "0.33", multi("NixlConnector", "LMCacheConnectorV1")))


@pytest.mark.parametrize("config", [
    {"kv_connector": "NixlConnector"}, {"kv_role": BOTH}, transfer("NixlConnector", kv_role="both"),
    transfer("SharedStorageConnector"), transfer("NixlConector"),
])  # fmt: skip
def test_what_the_engine_does_not_take(config: dict[str, Any]) -> None:
    found = sized(LLAMA, "0.33", config)
    assert found.refusal is not None
    assert found.refusal.help


def test_a_class_that_is_not_vllms_leaves_both_ends() -> None:
    config = transfer("OursConnector", kv_connector_module_path="ours.connector")
    found = sized(GEMMA, "0.33", config)
    [said] = [one for one in found.warnings if "is not known: the longest" in one]
    assert "--no-disable-hybrid-kv-cache-manager" in said
    assert is_off(found)  # the end that takes the most
    assert not is_off(sized(GEMMA, "0.33", config, disable_hybrid_kv_cache_manager=False))
    assert sized(HYBRID, "0.33", config).refusal is None
    assert not [one for one in sized(LLAMA, "0.33", config).warnings if "hybrid" in one]


def test_events_turned_it_off_until_0_19() -> None:
    for release, off in (("0.19", True), ("0.20", False)):
        assert is_off(sized(GEMMA, release, kv_events_config={"enable_kv_cache_events": True})) is off


@pytest.mark.parametrize(("config", "words"), [
    (transfer("LMCacheConnectorV1"), "copies through 0.01 GiB"),
    (
        transfer(
            "LMCacheConnectorV1",
            kv_connector_extra_config={
                "lmcache.enable_nixl": True, "lmcache.nixl_buffer_size": 2**30,
                "lmcache.nixl_buffer_device": "cuda",
            },
        ),
        "1.00 GiB of each GPU",
    ),
    (transfer("NixlConnector", kv_buffer_device="cpu"), "copy of the whole pool on the host"),
])  # fmt: skip
def test_what_lies_beside_the_pool_is_said(config: dict[str, Any], words: str) -> None:
    assert any(words in said for said in sized(LLAMA, "0.33", config).warnings), words


def test_p2p_keeps_what_it_receives() -> None:
    found = sized(LLAMA, "0.20", transfer("P2pNcclConnector", kv_buffer_size=5e9))
    assert any("4.66 GiB of what it receives" in said for said in found.warnings)


def test_the_host_line_of_a_tier_in_its_own_words() -> None:
    extra = {"kv_connector_extra_config": {"cpu_bytes_to_use": 4 * 2**30}}
    asked: dict[str, Any] = {"kv_transfer_config": transfer("OffloadingConnector", **extra)}
    found = kvplan.size(LLAMA, engine="vllm@0.33", gpu="h100", **asked)
    assert [line.bytes for line in found.host if line.name == "KV blocks off the GPU"] == [4 * 2**30]


def test_amds_own_kernels_serve_no_connector() -> None:
    for release, own in (("0.22", True), ("0.23", False), ("0.33", False)):
        found = sized(LLAMA, release, transfer("NixlConnector"), gpu="mi300x")
        assert (found.settings["attention_backend"] == "ROCM_ATTN") is own, release


def test_layer_by_layer_leaves_piecewise_graphs() -> None:
    config = transfer("LMCacheConnectorV1", kv_connector_extra_config={"use_layerwise": True})
    for release, pieces in (("0.16", False), ("0.17", True)):
        settings = kvplan.api.make_settings(kv_transfer_config=config)
        assert connectors.layer_by_layer(settings, rules_of(release)) is pieces


def test_hisparse_has_rules_of_its_own() -> None:
    with pytest.raises(KvplanError, match="not known here"):
        sized(LLAMA, "0.33", transfer("HiSparseConnector"))


def test_without_chunks_a_batch_holds_a_whole_prompt() -> None:
    whole = sized(LLAMA, "0.33", enable_chunked_prefill=False)
    assert whole.settings["max_num_batched_tokens"] == 32768
    few = sized(LLAMA, "0.33", enable_chunked_prefill=False, max_num_batched_tokens=2048)
    assert few.refusal is not None
    assert sized(LLAMA, "0.10", enable_chunked_prefill=False, max_num_batched_tokens=2048).refusal is None


@given(st.sampled_from(VERSIONS), st.sampled_from(NAMES))
def test_rows_are_whole(release: str, name: str) -> None:
    """At most one row of a name is in force; none supports the manager before it is registered."""
    rows = [row for row in connectors._rows()[name] if within(release, row.since, row.until)]
    assert len(rows) <= 1
    part = connectors.Part(name, "", BOTH, {})
    if not rows and name != "MultiConnector":
        assert connectors.supports_hybrid(part, release) is False


@given(st.sampled_from(VERSIONS[1:]), st.sampled_from(NAMES), st.sampled_from([GEMMA, LLAMA]))
def test_a_connector_never_makes_room(release: str, name: str, model: str) -> None:
    """A pool holds as many requests or fewer; with the manager asked off the same as without it."""
    if name in ("HiSparseConnector", "MultiConnector"):
        return
    found, plain = sized(model, release, transfer(name)), sized(model, release)
    assert (found.refusal is None) is (connectors.row_of(name, release) is not None)
    if found.pool is None or plain.pool is None:
        return
    assert found.pool.max_concurrency <= plain.pool.max_concurrency
    off = sized(model, release, disable_hybrid_kv_cache_manager=True).pool
    assert found.pool == (off if is_off(found) else plain.pool)
    always = rules_of(release).connector_ends_hybrid != "unsupported"
    assert is_off(found) or not always


@pytest.mark.vllm
@INSTALLED
def test_the_installed_engine_says_the_same() -> None:
    """Every case of the releases' record, asked of the installed configuration and its planner."""
    configs = {**CONFIGS, **card_configs()}
    asked = [case_of(name, gpu, configs[name], options) for name, gpu, options in connected()]
    lines = "\n".join(json.dumps(question(case)) for case in asked)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], input=lines, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(asked)
    known = [
        (case, answer)
        for case, answer in zip(asked, answers, strict=True)
        if "ModuleNotFoundError" not in answer.get("refused", "")
    ]
    assert len(known) > len(asked) * 3 // 4
    for case, answer in known:
        check(case, answer)


_REGISTERED = """
import json
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory as factory
from vllm.distributed.kv_transfer.kv_connector.v1.base import supports_hma
found = {}
for name, load in factory._registry.items():
    try:
        found[name] = supports_hma(load())
    except ImportError:
        found[name] = None
print(json.dumps(found))
"""


@pytest.mark.vllm
@INSTALLED
def test_the_installed_engines_connectors_are_the_rows() -> None:
    done = subprocess.run([sys.executable, "-c", _REGISTERED], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert set(theirs) == {name for name in NAMES if connectors.row_of(name, "0.32") is not None}
    for name, supports in theirs.items():
        row = connectors.row_of(name, "0.32")
        assert row is not None
        if supports is not None:
            assert supports is (row.hybrid != "never" and within("0.32", row.hybrid, "")), name
