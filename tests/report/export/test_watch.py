"""Prometheus rules, Grafana boards and KEDA scalers: their queries parsed, their names the engines'."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api import load_model, size
from kvplan.checking import facts_of
from kvplan.checking.case import Case
from kvplan.errors import KvplanError
from kvplan.files.launch.scalers import scalers_in
from kvplan.plans.plan import Plan, Requirements
from kvplan.plans.workload import Shape, Workload
from kvplan.report.export import export
from tests.report.export.plans import plan
from tests.report.export.test_deployments import HOSTILE

promql = pytest.importorskip("promql_parser", reason="promql-parser comes with the test extras")
LLAMA = load_model("llama-3.1-8b")
REQUIRED = Requirements(
    requests=20, tokens=8192, preemptions=Fraction(1, 100), hit_rate=Fraction(1, 2),
    ttft_seconds=Fraction(2), tpot_seconds=Fraction(1, 20),
)  # fmt: skip


def chat(engine: str = "vllm@0.32", **more: Any) -> Plan:
    fields = {name: more.pop(name) for name in ("name", "serve", "gpus") if name in more}
    made = plan(engine, model="llama-3.1-8b", max_model_len=8192, **fields)
    return replace(made, require=more.pop("require", REQUIRED), **more)


PLANS = {
    "vllm": chat(), "vllm-old": chat("vllm@0.9"), "vllm-replicas": chat(gpus=3),
    "sglang": chat("sglang@0.5.23"), "sglang-old": chat("sglang@0.5.9"), "llamacpp": chat("llamacpp@0.5"),
    "hostile": chat(name="{{ .x }} " + HOSTILE, serve=(("served_model_name", (HOSTILE, "b")),)),
    "bare": chat(require=Requirements()),
}  # fmt: skip


def rules(of: Plan) -> list[dict[str, Any]]:
    file = yaml.safe_load(export(of, "prometheus", model=LLAMA))
    assert list(file) == ["groups"]
    (group,) = file["groups"]
    assert set(group) == {"name", "rules"}
    found: list[dict[str, Any]] = group["rules"]
    return found


def board(of: Plan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(export(of, "grafana", model=LLAMA))
    return found


def scaler(of: Plan) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(export(of, "keda", model=LLAMA))
    return found


def queries(of: Plan) -> list[str]:
    drawn = [one["expr"] for panel in board(of)["panels"] for one in panel.get("targets", ())]
    scaled = [one["metadata"]["query"] for one in scaler(of)["spec"]["triggers"]]
    drawn = [one.replace("$__rate_interval", "1m") for one in drawn]
    return [*(rule["expr"] for rule in rules(of)), *drawn, *scaled]


def selected(expr: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """(name, matched labels) of every series that a query asks for."""
    found: list[Any] = []

    def keep(node: Any) -> bool:
        found.append(node)
        return True

    promql.walk(expr, keep)
    for node in found:
        if isinstance(node, promql.VectorSelector):
            yield node.name, {one.name: one.value for one in node.matchers.matchers}


@pytest.mark.parametrize("which", PLANS)
def test_every_query_is_promql(which: str) -> None:
    for text in queries(PLANS[which]):
        promql.parse(text)


@pytest.mark.parametrize("which", PLANS)
def test_a_rule_has_what_prometheus_wants_and_no_more(which: str) -> None:
    found = rules(PLANS[which])
    assert len({rule["alert"] for rule in found}) == len(found) >= 3
    for rule in found:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[a-zA-Z_]\w*", rule["alert"])
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        texts = [*rule["labels"].values(), *rule["annotations"].values()]
        assert all("{{" not in text.replace('{{"{{"}}', "") for text in texts)


@pytest.mark.parametrize("which", PLANS)
def test_promtool_takes_the_rules(which: str, tmp_path: Path) -> None:
    """Where there is one: the queries are parsed above in any case."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    path = tmp_path / "rules.yaml"
    path.write_text(export(PLANS[which], "prometheus", model=LLAMA), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_change_with_the_release() -> None:
    assert "vllm:gpu_cache_usage_perc" in " ".join(queries(PLANS["vllm-old"]))
    assert "vllm:gpu_cache_usage_perc" not in " ".join(queries(PLANS["vllm"]))
    assert "sglang:inter_token_latency_seconds_bucket" in " ".join(queries(PLANS["sglang-old"]))


def test_the_thresholds_are_the_plans() -> None:
    """By hand: 8,192 tokens of Llama 3.1 8B are 1 GiB; so much of the safe pool is free below the line."""
    facts = {fact.name: fact.value for fact in facts_of(Case(PLANS["vllm"], LLAMA))}
    assert facts["kv_bytes_per_request"] == 2**30
    found = {rule["alert"]: rule["expr"] for rule in rules(PLANS["vllm"])}
    assert found["KvplanAboveSafe"].endswith(f" > {facts['safe_max_requests']}")
    assert found["KvplanAbovePlan"].endswith(" > 20")
    share = float(found["KvplanCacheFull"].rpartition(" > ")[2])
    assert share == pytest.approx(1 - 2**30 / facts["kv_pool_low_bytes"], abs=5e-4)
    assert found["KvplanPreemptions"].endswith(" > 0.01")
    assert found["KvplanFirstTokenLate"].endswith(" > 2")
    assert found["KvplanTokensSlow"].endswith(" > 0.05")
    assert found["KvplanHitRateLow"].endswith(" < 0.5")
    steps = {
        panel["title"]: [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        for panel in board(PLANS["vllm"])["panels"]
        if panel["type"] == "timeseries"
    }
    assert steps["Requests"] == [None, facts["safe_max_requests"], facts["max_requests"]]
    assert steps["KV cache in use"] == [None, share]
    assert steps["Time to first token"] == [None, 2.0]


def test_headroom_counts_where_it_is_more_than_one_request() -> None:
    wanted = chat(require=Requirements(requests=20, tokens=8192, headroom=Fraction(1, 5)))
    found = {rule["alert"]: rule for rule in rules(wanted)}
    assert found["KvplanCacheFull"]["expr"].endswith(" > 0.8")
    assert "headroom" in found["KvplanCacheFull"]["annotations"]["description"]


def test_replicas_are_counted_by_server() -> None:
    (first, *_) = rules(PLANS["vllm-replicas"])
    assert first["alert"] == "KvplanServersMissing"
    assert first["expr"].endswith(" < 3")


def test_a_plan_without_a_pool_has_no_invented_threshold() -> None:
    """No model: no figure; only what needs none is left."""
    text = export(chat(serve=(("served_model_name", "chat"),)), "prometheus")
    assert "no pool is known" in text
    alerts = {rule["alert"] for rule in yaml.safe_load(text)["groups"][0]["rules"]}
    assert not alerts & {"KvplanAboveSafe", "KvplanCacheFull"}


@pytest.mark.parametrize("which", PLANS)
def test_a_board_that_grafana_reads(which: str) -> None:
    found = board(PLANS[which])
    assert len(found["uid"]) <= 40
    assert [panel["id"] for panel in found["panels"]] == list(range(1, len(found["panels"]) + 1))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in found["panels"])
    for panel in found["panels"][1:]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert [one["refId"] for one in panel["targets"]] == ["A", "B"][: len(panel["targets"])]


def test_only_the_served_model_is_asked_for() -> None:
    for which, served in (("vllm", "meta-llama/Llama-3.1-8B"), ("hostile", HOSTILE)):
        for text in queries(PLANS[which]):
            for _, labels in selected(promql.parse(text)):
                assert labels == {"model_name": served}
    assert all(
        labels == {} for text in queries(PLANS["llamacpp"]) for _, labels in selected(promql.parse(text))
    )
    text = export(PLANS["llamacpp"], "prometheus", model=LLAMA)
    assert "start the servers with --metrics" in text
    assert "name the job" in text


@given(name=st.text(max_size=60), served=st.text(min_size=1, max_size=60))
@settings(max_examples=40)
def test_any_name_is_only_a_name(name: str, served: str) -> None:
    """Whatever a plan and its model are called, the rules select that model and nothing is expanded."""
    made = chat(name=name, serve=(("served_model_name", served),), require=Requirements())
    for rule in yaml.safe_load(export(made, "prometheus"))["groups"][0]["rules"]:
        assert {labels["model_name"] for _, labels in selected(promql.parse(rule["expr"]))} == {served}
    assert "$" not in json.dumps(json.loads(export(made, "grafana"))).replace("${datasource}", "").replace(
        "$__rate_interval", ""
    )


def test_a_scaler_holds_each_replica_to_the_plans_figures() -> None:
    """KEDA starts the pods that the query's value over the threshold comes to."""
    wanted = chat(
        gpus=3,
        require=Requirements(requests=20, tokens=8192, headroom=Fraction(1, 5)),
        workload=Workload((Shape(1000, 200),), requests_per_second=Fraction(9)),
    )
    facts = {fact.name: fact.value for fact in facts_of(Case(wanted, LLAMA))}
    found = scaler(wanted)
    assert (found["apiVersion"], found["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert (found["spec"]["minReplicaCount"], found["spec"]["maxReplicaCount"]) == (1, 3)
    rows = {one["name"]: one for one in found["spec"]["triggers"]}
    assert {one["metricType"] for one in rows.values()} == {"AverageValue"}
    thresholds = {name: float(one["metadata"]["threshold"]) for name, one in rows.items()}
    assert thresholds["requests"] == facts["max_requests_in_flight"] // 3 * 4 // 5
    assert thresholds["kv-cache"] == 0.8
    assert thresholds["rate"] == 3
    notes = found["metadata"]["annotations"]
    pool = size(LLAMA, kv_cache_memory=facts["kv_pool_bytes"], engine="vllm@0.32", max_model_len=8192)
    assert pool.pool is not None
    assert int(notes["kvplan/TotalKvCapacityTokens"]) == pool.pool.kv_tokens
    assert int(notes["kvplan/MemoryBoundCapacity"]) == pool.pool.kv_tokens * 4 // 5
    limits = [pool.settings[name] for name in ("max_num_batched_tokens", "max_num_seqs")]
    steady = min(Fraction(limits[0] * 200, 1200), Fraction(limits[1]))
    assert int(notes["kvplan/ComputeBoundCapacity"]) == int(steady * 1100)
    assert int(notes["kvplan/EffectiveCapacity"]) == min(pool.pool.kv_tokens * 4 // 5, int(steady * 1100))


def test_a_scaler_of_an_unknown_pool_waits_for_the_queue_alone() -> None:
    file = yaml.safe_load(export(chat(serve=(("served_model_name", "chat"),)), "keda"))
    assert [one["name"] for one in file["spec"]["triggers"]] == ["waiting"]


def test_the_scaler_is_that_of_the_deployment_and_read_back() -> None:
    both = export(PLANS["vllm-replicas"], "kubernetes", model=LLAMA)
    (deployment, *_), one = list(yaml.safe_load_all(both)), scaler(PLANS["vllm-replicas"])
    target = one["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (deployment["kind"], deployment["metadata"]["name"])
    (counted,) = scalers_in([one]).values()
    assert counted == (1, f"ScaledObject {target['name']} runs 1 to 3 pods of it: 1 counted")


def test_an_engine_without_known_names_is_refused() -> None:
    with pytest.raises(KvplanError) as raised:
        export(chat("trtllm@1.2"), "prometheus", model=LLAMA)
    assert raised.value.code == "no-metrics"
    assert "vllm" in str(raised.value.help)
