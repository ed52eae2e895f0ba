"""``validate --with sglang``: its worker's parts over stand-ins, and the verdict of what it would say.

SGLang's kernels are built for GPUs: nothing here runs its model worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from kvplan.files.plans.receipts import read_receipt
from kvplan.proof.validate.installed.workers import sglang as worker
from tests.proof.test_engine_run import run

MIB = 1 << 20
TOKENS = 16 * MIB // 512
SAID: dict[str, Any] = {
    "hello": {
        "version": "0.5.23", "torch": "2.14.1", "python": "3.12.1", "device": "cpu", "kind": "cpu",
        "note": worker.UNTRIED,
    },
    "measured": [
        ["settings", {"dtype": "bfloat16", "page_size": 1}],
        ["available", [16 * MIB]],
        ["workers", [{"cache_bytes": 16 * MIB + 512}]],
        ["cache", {"num_blocks": TOKENS, "groups": [
            {"kind": "full", "layers": 2, "block_size": 1, "page_bytes": 512}]}],
    ],
    "requests": {"admitted": 32, "refused": True, "free_before": TOKENS, "free_after": TOKENS},
}  # fmt: skip
WORDS = ("--with", "sglang", "--device", "cpu", "--kv-cache-memory", "16MiB", "--tokens", "1000")


def pool(layers: int, slots: int, heads: int) -> Any:
    """Buffers as MHATokenToKVPool has them."""
    make: Callable[[], Any] = lambda: torch.zeros(slots, heads, 32, dtype=torch.bfloat16)  # noqa: E731
    return SimpleNamespace(k_buffer=[make() for _ in range(layers)], v_buffer=[make() for _ in range(layers)])


class Allocator:
    """Slots by number, as TokenToKVPoolAllocator hands them out."""

    def __init__(self, size: int) -> None:
        self.left = size

    def available_size(self) -> int:
        return self.left

    def alloc(self, need: int) -> Any:
        if need > self.left:
            return None
        self.left -= need
        return [0] * need

    def free(self, slots: Any) -> None:
        self.left += len(slots)


def runner(kv: Any, page: int = 1, tokens: int = 64) -> Any:
    return SimpleNamespace(
        token_to_kv_pool=kv, page_size=page, max_total_num_tokens=tokens, model=torch.nn.Linear(4, 4),
        token_to_kv_pool_allocator=Allocator(tokens),
    )  # fmt: skip


def test_the_worker_s_words_confirm_and_say_what_was_never_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    assert run(tmp_path, SAID, "--output", str(output), words=WORDS) == 0
    receipt = read_receipt(output).receipt
    assert receipt.verdict == "confirmed"
    assert {"engine_num_blocks", "engine_cache_bytes", "engine_requests_at_full_length"} <= set(
        receipt.confirmed_by
    )
    assert "never on a GPU" in " ".join(capsys.readouterr().out.split())


def test_a_token_more_refutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    says = {**SAID, "measured": [*SAID["measured"][:3], ["cache", dict(SAID["measured"][3][1])]]}
    says["measured"][3][1]["num_blocks"] += 1
    assert run(tmp_path, says, words=WORDS) == 1
    assert "engine_num_blocks: 32,769 measured, 32,768 predicted" in capsys.readouterr().out


def test_pages_and_bytes_of_a_pool() -> None:
    found = worker.cache_of(runner(pool(3, 80, 2), page=16))
    assert found == {
        "num_blocks": 4,
        "groups": [{"kind": "full", "layers": 3, "block_size": 16, "page_bytes": 3 * 2 * 2 * 32 * 2 * 16}],
    }
    assert worker.look(runner(pool(3, 80, 2)))["cache_bytes"] == 3 * 2 * 80 * 2 * 32 * 2


def test_a_window_s_pool_is_a_kind_of_its_own() -> None:
    both = SimpleNamespace(full_kv_pool=pool(1, 65, 2), swa_kv_pool=pool(4, 33, 2))
    found = worker.cache_of(runner(both))
    assert [(one["kind"], one["layers"]) for one in found["groups"]] == [("full", 1), ("window", 4)]


def test_requests_until_one_gets_no_slots() -> None:
    found = worker.admitted(runner(pool(1, 65, 1), page=16), {"tokens": 17, "most": 10})
    assert found == {"admitted": 2, "tokens": 17, "refused": True, "free_before": 64, "free_after": 64}


def test_several_ranks_and_unknown_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class ServerArgs:
        @staticmethod
        def add_cli_args(parser: Any) -> None:
            parser.add_argument("--model-path")
            parser.add_argument("--tp-size", type=int, default=1)

        @staticmethod
        def from_cli_args(found: Any) -> Any:
            return SimpleNamespace(tp_size=found.tp_size, pp_size=1, dp_size=1, dtype="bfloat16")

    module = ModuleType("sglang.srt.server_args")
    module.ServerArgs = ServerArgs  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.server_args", module)
    assert worker.settings_of(worker.configured(["--model-path", "m"])) == {"dtype": "bfloat16"}
    with pytest.raises(ValueError, match="a server of 2"):
        worker.configured(["--tp-size", "2"])
    with pytest.raises(ValueError, match="does not take --nonsense"):
        worker.configured(["--nonsense"])


def test_without_a_gpu_it_says_so() -> None:
    speaker = SimpleNamespace(begin=lambda stage: None)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="driven on a GPU alone"):
            worker.run({"words": []}, speaker)  # type: ignore[arg-type]
