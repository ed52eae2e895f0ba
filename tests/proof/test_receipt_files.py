"""Receipts as files: whole or not there, verdicts, names, and what a card takes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan import size
from kvplan.api import load_model, make_settings
from kvplan.cli import main
from kvplan.engines.budget import choose
from kvplan.errors import KvplanError
from kvplan.files.cards.evidence import add_evidence, appended, evidence_of
from kvplan.files.datafiles import data_dir
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.plan import Plan
from kvplan.plans.receipt import CONFIRMED, PROOF, REFUTED, REHEARSAL, STOPPED, Figure, Receipt
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.receipts import default_path, receipt_of, write_receipt
from kvplan.proof.validate.session import Outcome
from kvplan.proof.validate.target import Target, bare_plan, target_of

MIB = 1 << 20
NOW = "2026-01-02T03:04:05Z"
H200 = Hardware("NVIDIA H200", "cuda", slug="h200-sxm-141gb", driver="580.1", runtime="CUDA 13.0")
CPU = Hardware("x86_64", "cpu")


def _target(**options: Any) -> Target:
    model, choice = load_model("llama-3.1-8b"), choose("vllm@0.32")
    settings = make_settings(**{"kv_cache_memory": "64MiB", **options})
    plan = bare_plan(model, choice, settings)
    changes = {"kv_cache_memory": settings.kv_cache_memory}
    return target_of(plan, model, choice, asks_proof=False, on_gpu=False, changes=changes)


def _receipt(*figures: Figure, hardware: Hardware = H200, **more: Any) -> Receipt:
    target = more.pop("target", None) or _target()
    findings = tuple(more.pop("findings", ()))
    return receipt_of(Outcome(target, hardware, figures, findings, (), (), **more), created=NOW)


def _proof(target: Target) -> Receipt:
    pool = target.result.pool
    assert pool is not None
    figures = (
        Figure(
            "engine_num_blocks", "blocks", pool.num_blocks, pool.num_blocks, 0, "engine", independent=True
        ),
        Figure(
            "engine_requests", "requests", pool.max_running, pool.max_running, 0, "engine", independent=True
        ),
    )
    return _receipt(*figures, target=target)


def test_a_stopped_receipt_counts_where_nothing_was_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old ``-stopped.json`` beside a proof failed the command for ever."""
    good = Figure("a", "bytes", 10, 10, 0, independent=True)
    bad = replace(good, measured=11)
    stopped, proof = _receipt(good, stopped_by="time", stopped_at="fill"), _receipt(good)
    assert stopped.verdict == STOPPED

    def code(*receipts: Receipt) -> int:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for number, receipt in enumerate(receipts):
            write_receipt(receipt, folder / f"{number}.json")
        return main(["list", "receipts", str(folder)])

    assert code(stopped) == 1
    assert code(stopped, proof) == 0
    other = "sha256:" + "0" * 64  # the plan was changed since
    assert "stopped" in capsys.readouterr().out
    assert code(stopped, replace(proof, plan_hash=other)) == 0
    assert code(stopped, replace(proof, plan_hash=other, created="2025-01-02T03:04:05Z")) == 1
    assert code(stopped, replace(proof, plan_hash=other, plan_name="another")) == 1
    assert code(stopped, replace(proof, kind=REHEARSAL)) == 1  # a rehearsal proves no GPU
    assert code(stopped, proof, _receipt(bad)) == 1


def test_what_decides_the_verdict() -> None:
    good = Figure("a", "bytes", 10, 10, 0, independent=True)
    bad = replace(good, measured=11)
    assert _receipt(good).verdict == CONFIRMED
    assert _receipt(bad).verdict == REFUTED
    wrong = Finding("w", Severity.ERROR, "wrong")
    assert _receipt(good, findings=(wrong,)).verdict == REFUTED
    assert _receipt(good, findings=(replace(wrong, severity=Severity.WARNING),)).verdict == CONFIRMED
    assert _receipt(good, stopped_at="pool", stopped_by="time").verdict == STOPPED
    assert _receipt(bad, stopped_at="pool", stopped_by="time").verdict == REFUTED
    assert _receipt(good, stopped_at="pool", stopped_by="memory").verdict == REFUTED
    assert _receipt(good, stopped_at="graphs", stopped_by="memory").verdict == STOPPED
    assert (_receipt(good).kind, _receipt(good, hardware=CPU).kind) == (PROOF, REHEARSAL)


def test_a_receipt_reads_back_as_it_was_written(tmp_path: Path) -> None:
    receipt = _proof(_target())
    path = tmp_path / "new" / "receipt.json"
    write_receipt(receipt, path)
    assert read_receipt(path) == (receipt, True)
    assert [one.name for one in path.parent.iterdir()] == ["receipt.json"]
    before = path.read_bytes()
    write_receipt(receipt, path)
    assert path.read_bytes() == before
    path.write_text(path.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA H300"), encoding="utf-8")
    assert not read_receipt(path).intact


@pytest.mark.parametrize("nameless", [True, False], ids=["without a name", "beside"])
def test_a_write_that_fails_leaves_the_old_receipt(
    nameless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync fails, as a full disk makes it; with and without files that have no name yet."""
    path = tmp_path / "receipt.json"
    write_receipt(_proof(_target()), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvplan.files.writing.os.fsync", full)
    if not nameless:
        monkeypatch.delattr("kvplan.files.writing.os.O_TMPFILE", raising=False)
    with pytest.raises(KvplanError, match="No space left on device"):
        write_receipt(_receipt(Figure("a", "bytes", 1, 2, 0)), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["receipt.json"]


def test_where_a_receipt_goes(tmp_path: Path) -> None:
    target = _target()
    receipt = _proof(target)
    assert default_path(target, receipt) is None
    plan: Plan = replace(target.plan, path=str(tmp_path / "chat.yaml"))
    planned = replace(target, plan=plan)
    assert default_path(planned, receipt) == tmp_path / "evidence" / "chat-h200-sxm-141gb.json"
    stopped = _receipt(stopped_at="graphs", stopped_by="memory", target=target)
    assert default_path(planned, stopped) == tmp_path / "evidence" / "chat-h200-sxm-141gb-stopped.json"
    rehearsal = _receipt(hardware=CPU)
    assert default_path(planned, rehearsal) == tmp_path / "evidence" / "chat-rehearsal.json"


def test_the_hash_is_the_one_that_check_computes() -> None:
    """A receipt of a plan, also of a rehearsal with a smaller pool, belongs to that plan."""
    from kvplan.checking.case import Case
    from kvplan.checking.evidence import hash_of

    model, choice = load_model("llama-3.1-8b"), choose("vllm@0.32")
    plan = bare_plan(model, choice, make_settings(gpu="h200", max_model_len=32768))
    rehearsed = target_of(plan, model, choice, asks_proof=True, on_gpu=False)
    proved = target_of(plan, model, choice, asks_proof=True, on_gpu=True)
    assert rehearsed.hash == proved.hash == hash_of(Case(plan, model))
    other = target_of(plan, model, choice, asks_proof=True, on_gpu=True, changes={"kv_cache_memory": 2**33})
    assert other.hash != proved.hash  # with another pool it is another plan


def test_what_a_card_takes_of_a_receipt() -> None:
    target = _target(tensor_parallel_size=2)
    entries = evidence_of(_proof(target))
    assert [one.field for one in entries] == ["pool.num_blocks", "pool.max_running"]
    first = entries[0]
    assert first.engine == "vllm@0.32"
    assert first.settings["tensor_parallel_size"] == 2
    assert "pipeline_parallel_size" not in first.settings
    assert first.source is not None
    assert first.source.startswith("kvplan validate on NVIDIA H200, CUDA 13.0, driver 580.1, 2026-01-02")


@pytest.mark.parametrize("hardware", [H200, CPU])
def test_a_card_takes_confirmed_proofs_only(hardware: Hardware) -> None:
    wrong = Figure("num_blocks", "blocks", 10, 11, 0) if hardware is H200 else Figure("a", "bytes", 1, 1, 0)
    with pytest.raises(KvplanError, match="confirmed proofs"):
        evidence_of(_receipt(wrong, hardware=hardware))


def _card(folder: Path) -> Path:
    path = folder / "llama-3.1-8b.yaml"
    path.write_bytes((data_dir("model_cards") / "llama-3.1-8b.yaml").read_bytes())
    return path


def test_evidence_is_added_and_the_rest_of_the_card_stays(tmp_path: Path) -> None:
    card = _card(tmp_path)
    before = card.read_text(encoding="utf-8")
    first = add_evidence(card, _proof(_target()), size=size)
    text = card.read_text(encoding="utf-8")
    assert text.startswith(before.replace("evidence: []\n", "evidence:\n"))
    assert text.count("pool.num_blocks") == 1
    add_evidence(card, _proof(_target(kv_cache_memory="128MiB")), size=size)
    again = card.read_text(encoding="utf-8")
    assert again.startswith(text)
    assert again.count("pool.num_blocks") == 2
    with pytest.raises(KvplanError, match="has this evidence already"):
        add_evidence(card, _proof(_target()), size=size)
    assert [path.name for path in tmp_path.iterdir()] == [card.name]
    assert len(first) == 2


def test_numbers_that_todays_rules_do_not_give_are_refused(tmp_path: Path) -> None:
    card = _card(tmp_path)
    before = card.read_bytes()
    receipt = _receipt(Figure("engine_num_blocks", "blocks", 5, 5, 0, "engine", independent=True))
    with pytest.raises(KvplanError, match=r"by today's rules, 5 was measured"):
        add_evidence(card, receipt, size=size)
    with pytest.raises(KvplanError, match="the receipt is of org/other"):
        add_evidence(card, replace(receipt, model_id="org/other"), size=size)
    assert card.read_bytes() == before


def test_evidence_goes_where_the_card_has_it() -> None:
    entries = evidence_of(_proof(_target()))[:1]
    made = appended("id: x\n", entries)
    assert made.startswith("id: x\nevidence:\n  - engine: vllm@0.32\n")
    between = appended("id: x\nevidence:\n  - engine: a\n    value: 1\n\nexpect: []\n", entries)
    assert between.index("engine: a") < between.index("vllm@0.32") < between.index("expect: []")
    with pytest.raises(KvplanError, match="written in one line"):
        appended("evidence: [{engine: a}]\n", entries)


def test_the_name_of_a_gpu_is_no_number_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "qwen3-0.6b", "--gpu", "h100", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "validate measures GPUs of this machine" in " ".join(said.split())
    assert "--gpu 0: the first" in said
