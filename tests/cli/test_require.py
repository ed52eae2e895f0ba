"""Requirements given beside plans: read as a plan's own, before them, and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.plans.schema import RequireEntry
from tests.cli.conftest import Run
from tests.cli.test_stdin import PLAN, TEXTS

VALUES = {
    "requests": "60", "tokens": "8k", "headroom": "10%", "max_model_len": "16k", "max_cost_per_hour": "2.5",
    "prefix_cache": "2GiB", "host_memory": "64GiB", "shm": "1GiB", "goodput": "99%", "hit_rate": "50%",
    "preemptions": "1%", "ttft": "2s", "tpot": "50ms", "pool": "safe",
}  # fmt: skip


def test_every_key_of_a_plan_can_be_given() -> None:
    assert VALUES.keys() == RequireEntry.model_fields.keys()


@pytest.mark.parametrize("key", VALUES)
def test_a_value_is_read_as_the_plan_reads_it(tmp_path: Path, key: str) -> None:
    """The same report, whether the plan or the option says it."""
    more = {"requests": ["tokens"], "tokens": ["requests"]}.get(key, [])
    given = {name: VALUES[name] for name in (key, *more)}
    rows = "".join(f"  {name}: {value}\n" for name, value in given.items())
    said, plain = tmp_path / "said.yaml", tmp_path / "plain.yaml"
    said.write_text(f"{PLAN}require:\n{rows}")
    plain.write_text(PLAN)
    text = ",".join(f"{name.replace('_', '-')}={value}" for name, value in given.items())
    [own] = kvplan.check(said).plans
    [asked] = kvplan.check(plain, require=text).plans
    assert [one.message for one in asked.findings] == [one.message for one in own.findings]
    assert asked.facts == own.facts
    assert (asked.error is None) == (own.error is None)


@pytest.mark.parametrize("file", [name for name in TEXTS if name != "plan.yaml"])
def test_what_starts_a_server_gets_a_verdict(run: Run, tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.write_text(TEXTS[file])
    words = ("check", str(path), "--gpu", "h100", "--require")
    assert run(*words, "requests=4,tokens=8k").code == 0
    failed = run(*words, "requests=4000,tokens=8k", "--json")
    assert failed.code == 1
    data = json.loads(failed.out)
    assert data["require"] == "requests=4000,tokens=8k"
    [finding] = [one for one in data["plans"][0]["findings"] if one["severity"] == "error"]
    assert finding["code"] == "requests-do-not-fit"
    assert finding["place"]["path"] == str(path)  # an annotation needs a line of a file
    report = kvplan.check(path, gpu="h100", require={"requests": 4000, "tokens": "8k"})
    assert report.exit_code == 1
    assert [one.message for one in report.plans[0].findings if one.severity.value == "error"] == [
        finding["message"]
    ]


def test_it_counts_before_the_plans_own_in_every_environment_and_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    own = "require: {requests: 2, tokens: 8k}\nenvironments: {prod: {require: {requests: 3}}}\n"
    path.write_text(PLAN + own)
    assert run("check", str(path), "--env", "prod").code == 0
    for environment in ((), ("--env", "prod")):
        ran = run("check", str(path), *environment, "--require", "requests=4000")
        assert (ran.code, "4,000 requests of 8,192 tokens are required" in ran.out) == (1, True), ran.out
        assert "with --require requests=4000." in ran.out
        assert f"counts before the plan's own {3 if environment else 2}" in ran.out
    assert "plan's own" not in run("check", str(path), "--require", "tokens=8k").out  # the same again


def test_a_wrong_key_or_value_points_at_the_option(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    ran = run("check", str(tmp_path / "plan.yaml"), "--require", "request=60,tokens=8kk")
    assert ran.code == 2
    for part in (
        "did you mean `requests`?",
        "--require:2:3",
        "'8kk' is not a number of tokens",
        "--require:3:11",
    ):
        assert part in ran.out
    for text in ("requests", "=60", "requests=", "requests=1,,tokens=2", "requests: 1"):
        wrong = run("check", str(tmp_path / "plan.yaml"), "--require", text)
        assert (wrong.code, "KEY=VALUE" in wrong.err) == (2, True), text


def test_a_value_is_never_more_than_a_value(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    for value in ("1\n  pool: safe", "{a: 1}", "- 1", "", "#"):
        [plan] = kvplan.check(tmp_path / "plan.yaml", require={"requests": value, "tokens": 1}).plans
        assert plan.error is not None
    with pytest.raises(KvplanError, match="KEY=VALUE"):
        kvplan.check(tmp_path / "plan.yaml", require={})
