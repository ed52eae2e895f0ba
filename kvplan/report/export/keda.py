"""A KEDA ScaledObject: one to all of the plan's replicas, by what each of them holds.

kedacore/keda apis/keda/v1alpha1/scaledobject_types.go and pkg/scalers/prometheus_scaler.go, 2.14 and newer.
With ``metricType: AverageValue`` the pods that run are the query's value over the threshold, rounded up; of
several triggers the one that asks for most pods wins.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.container import slug
from kvplan.report.export.prometheus import head
from kvplan.report.export.watched import Watched, shown, watched
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

_WINDOW = "2m"
_SETTLE_SECONDS = 600
"""A pod that is gone takes minutes to load its weights again: scale down only after so long below."""
KV_CACHE_THRESHOLD = Fraction(4, 5)
"""kvCacheThreshold of llm-d's autoscaler, where its ConfigMap says no other."""
Trigger = dict[str, Any]


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """The object beside the Deployment that ``--to kubernetes`` writes. Raises KvplanError."""
    del settings, image
    found = watched(plan, model)
    name = slug(plan.name)
    behavior = {"scaleDown": {"stabilizationWindowSeconds": _SETTLE_SECONDS}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicaCount": 1,
        "maxReplicaCount": plan.replicas,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
        "triggers": triggers(found),
    }
    meta = {"name": name, "annotations": {"kvplan/plan": one_line(plan.name), **_capacities(found)}}
    document = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta, "spec": spec}
    return "".join(f"# {one}\n" for one in _head(found)) + yaml_text(document)


def _head(found: Watched) -> list[str]:
    rows = [*head(found), "set serverAddress to your Prometheus"]
    if found.plan.replicas == 1:
        rows.append("the plan has one replica: raise maxReplicaCount to the GPUs that are there")
    return rows


def _capacities(found: Watched) -> dict[str, str]:
    """Capacities of one engine, in tokens, under the names of llm-d's autoscaler, which learns them late.

    MemoryBoundCapacity = KV tokens · kvCacheThreshold; ComputeBoundCapacity = N · (I + O / 2) with
    N = min(max_num_batched_tokens · O / (I + O), max_num_seqs), I and O the mean prompt and answer: its first
    figure from the flags of the Deployment (llm-d/llm-d-workload-variant-autoscaler at 256df39
    internal/engines/analyzers/saturation_v2/analyzer.go; the threshold: its ConfigMap). It counts a
    data-parallel rank as an engine.
    """
    figures, workload = found.figures, found.plan.workload
    if "kv_tokens" not in figures:
        return {}
    rows = {
        "TotalKvCapacityTokens": figures["kv_tokens"],
        "MemoryBoundCapacity": int(figures["kv_tokens"] * KV_CACHE_THRESHOLD),
    }
    step, most = figures.get("max_num_batched_tokens"), figures.get("max_num_seqs")
    if workload is not None and step and most:
        prompt, answer = workload.mean(name="input_tokens"), workload.mean(name="output_tokens")
        steady = min(step * answer / (prompt + answer), Fraction(most))
        rows["ComputeBoundCapacity"] = int(steady * (prompt + answer / 2))
        rows["EffectiveCapacity"] = min(rows["MemoryBoundCapacity"], rows["ComputeBoundCapacity"])
    return {f"kvplan/{name}": str(value) for name, value in rows.items()}


def _each(found: Watched) -> int:
    """Requests that one replica is to run at once: of the plan's mix what fits its pool, else of its length
    what fits safely; 0 where no pool is known."""
    figures = found.figures
    whole = figures.get("max_requests_in_flight", figures.get("safe_max_requests", 0))
    return int(whole // found.plan.replicas * (1 - found.plan.require.headroom))


def triggers(found: Watched) -> list[Trigger]:
    """One for each figure of the plan that a replica can run out of."""
    rows, replicas, workload = [], found.plan.replicas, found.plan.workload
    requests = _each(found)
    if requests:
        query = f"sum({found.gauge('running')}) + sum({found.gauge('waiting')})"
        rows.append(_trigger("requests", query, str(requests)))
    else:
        rows.append(_trigger("waiting", f"sum({found.gauge('waiting')})", "1"))
    if found.full is not None and found.has("usage"):
        # A pod of several ranks has a pool each: its fullest one decides.
        query = f"sum(max by (instance) ({found.names['usage']}{found.selector}))"
        rows.append(_trigger("kv-cache", query, shown(found.full)))
    rate = workload.requests_per_second if workload is not None else None
    if rate is not None and found.has("finished"):
        rows.append(_trigger("rate", found.rate("finished", _WINDOW), _decimal(rate / replicas)))
    return rows


def _decimal(value: Fraction) -> str:
    return f"{float(value):.4g}"


def _trigger(name: str, query: str, threshold: str) -> Trigger:
    metadata = {"serverAddress": "http://prometheus:9090", "query": query, "threshold": threshold}
    return {"type": "prometheus", "name": name, "metricType": "AverageValue", "metadata": metadata}
