"""A receipt takes the place of its like alone, and says how it came about."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.cli import main
from kvplan.errors import KvplanError
from kvplan.files.plans.receipts import read_receipt
from kvplan.plans.receipt import PROOF, REHEARSAL, STOPPED, Figure, Receipt
from kvplan.proof.validate import provenance
from kvplan.proof.validate.provenance import SET, environment
from kvplan.proof.validate.receipts import By, by_of, check_place, default_path, write_receipt
from kvplan.record import replace
from tests.proof.test_engine_run import MEASURED, run
from tests.proof.test_receipt_files import _receipt, _target

KINDS = [
    By(kind, who, layers, served)
    for kind in (PROOF, REHEARSAL)
    for who, layers, served in (
        ("kvplan", None, False), ("vllm", None, False), ("vllm", None, True), ("vllm", 4, False),
        ("vllm", 4, True), ("vllm-attached", None, False), ("transformers", None, False),
    )
]  # fmt: skip


def receipt_by(by: By) -> Receipt:
    run: dict[str, Any] = {
        "name": by.who.removesuffix("-attached"), "version": "0.32.0", "torch": None, "python": None,
        "device": "cpu", "layers": by.layers, "taken": {}, "settings": {},
    }  # fmt: skip
    figures = (Figure("served_requests", "requests", 1, 1, 0, "serve", None, independent=True),)
    made = _receipt(Figure("engine_num_blocks", "blocks", 5, 5, 0, "engine", independent=True))
    return replace(
        made,
        kind=by.kind,
        engine_run={} if by.who == "kvplan" else run | ({"attached": True} if "-" in by.who else {}),
        figures=(*made.figures, *(figures if by.served else ())),
    )


def test_no_two_kinds_have_the_same_default_file(tmp_path: Path) -> None:
    target = _target()
    planned = replace(target, plan=replace(target.plan, path=str(tmp_path / "chat.yaml")))
    assert [by_of(receipt_by(one)) for one in KINDS] == KINDS
    paths = [default_path(planned, receipt_by(one)) for one in KINDS]
    assert len(set(paths)) == len(KINDS)


@pytest.mark.parametrize(("theirs", "mine"), list(itertools.product(KINDS, KINDS)))
def test_a_file_is_kept_for_its_own_kind(theirs: By, mine: By, tmp_path: Path) -> None:
    """A run with the engine's server holds all that one without has; no other holds another's."""
    path = tmp_path / "r.json"
    write_receipt(receipt_by(theirs), path)
    may = theirs == mine or theirs == mine._replace(served=False)
    if may:
        check_place(str(path), mine)
        return
    with pytest.raises(KvplanError) as caught:
        check_place(str(path), mine)
    assert caught.value.code == "other-receipt"
    assert caught.value.exit_code == 2


def test_kvplan_s_own_run_leaves_the_engine_s_receipt_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "r.json"
    assert run(tmp_path, MEASURED, "--output", str(output)) == 0
    before = output.read_bytes()
    own = [
        "validate",
        str(tmp_path),
        "--device",
        "cpu",
        "--kv-cache-memory",
        "16MiB",
        "--output",
        str(output),
    ]
    assert main(own) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "error[other-receipt]" in said
    assert "a rehearsal by vllm, this is a rehearsal by kvplan" in said
    assert output.read_bytes() == before
    assert run(tmp_path, MEASURED, "--layers", "1", "--output", str(output)) == 2
    assert output.read_bytes() == before


def test_a_run_that_was_stopped_leaves_a_proof_where_it_is(tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    words = [
        "validate",
        "qwen3-0.6b",
        "--device",
        "cpu",
        "--kv-cache-memory",
        "16MiB",
        "--output",
        str(output),
    ]
    assert main(words) == 0
    before = output.read_bytes()
    assert main([*words, "--time-limit", "0"]) == 3
    assert output.read_bytes() == before
    assert read_receipt(tmp_path / "r-stopped.json").receipt.verdict == STOPPED


def test_a_receipt_says_how_it_came_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's variables are those of its own process; the file reads as it was written."""
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "0")
    monkeypatch.setenv("VLLM_API_KEY", "sk-very-secret")
    says: dict[str, Any] = {**MEASURED, "hello": {**MEASURED["hello"], "flashinfer": "0.7.2"}}
    says["measured"] = [
        [of, [{**values[0], "graphs_compiled": 0, "graphs_from_cache": 12}] if of == "workers" else values]
        for of, values in MEASURED["measured"]
    ]
    output = tmp_path / "r.json"
    assert run(tmp_path, says, "--output", str(output)) == 0
    read = read_receipt(output)
    assert read.intact
    facts, engine = read.receipt.run, read.receipt.engine_run
    assert facts["kvplan_commit"] == provenance.commit()
    assert 0 <= facts["seconds"] < 600
    assert facts["environment"]["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert facts["environment"]["CUDA_VISIBLE_DEVICES"] == ""  # a rehearsal's process sees none
    assert facts["environment"]["VLLM_API_KEY"] == SET
    assert "very-secret" not in output.read_text()
    assert (engine["flashinfer"], engine["compile_cache"], engine["gpus"]) == ("0.7.2", "warm", 1)


@given(st.sampled_from(["VLLM_X", "CUDA_Y", "PYTORCH_ALLOC_CONF", "NCCL_Z"]), st.text(max_size=30))
def test_no_path_address_or_device_number_is_written(name: str, value: str) -> None:
    for private in (f"/home/{value}", f"http://{value}", f"GPU-{value}", f"me@{value}"):
        assert environment({name: private}) == {name: SET}
    assert environment({"HOME": value, "HF_TOKEN": value}) == {}
    assert environment({"VLLM_HF_TOKEN": "abc", "VLLM_USE_V1": "1"}) == {
        "VLLM_HF_TOKEN": SET,
        "VLLM_USE_V1": "1",
    }


def test_the_commit_is_of_the_repository_that_holds_kvplan_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation inside somebody's repository is not theirs."""
    import subprocess

    package = tmp_path / "kvplan"
    package.mkdir()
    (package / "version.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    try:
        subprocess.run([*git, "init", "-q"], check=True)
    except OSError:
        pytest.skip("git is not installed")
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert provenance._of_checkout(package) is None
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "y"], check=True)
    head = provenance._of_checkout(package)
    assert head is not None
    assert len(head) == 40
    (package / "version.py").write_text("x = 1\n", encoding="utf-8")
    assert provenance._of_checkout(package) == f"{head}+"
