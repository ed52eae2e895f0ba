"""Kinds of Kubernetes' objects that start servers, a row each: where their pods stand, how many there are.

A path is keys with dots; ``[]`` goes through a list, whose entries are called by their ``name``, ``{}``
through a mapping, whose entries are called by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvplan.files.launch.trees import OwnTree, Tree, entries_of, mapping, merged, text_of
from kvplan.named import NamedTuple
from kvplan.record import record, replace

ALL, LEADER, WORKER = "all", "leader", "worker"


@record()
class Pods:
    """One template of pods in an object."""

    at: str
    """its path"""
    times: tuple[str, ...] = ()
    """paths of the numbers that multiply its groups"""
    size: str | None = None
    """path of the number of pods in a group, which one engine may span"""
    plus: int = 0
    """pods of a group beside that number"""
    share: str = ALL
    """its part of a group: the first pod, the others, all"""
    leader: str | None = None
    """path of the first pod's template; where nothing is there the others' is its template too"""
    gang: bool = False
    """a group is made for one engine"""
    one: bool = False
    """it is one engine, whatever the flags say"""
    called: str | None = None
    """its servers' name after the object's, in place of the names on the way"""
    told: tuple[str, ...] = ()
    """variables that are the number of pods in a group"""
    note: str = ""
    """on each server"""
    shape: Callable[[Tree], Tree] | None = None
    """makes a template of pods of what stands there"""


class Row(NamedTuple):
    """A kind of object. groups: of its apiVersion, any where it has none. source: of its form."""

    kinds: str
    groups: str
    pods: tuple[Pods, ...]
    source: str
    prepared: Callable[[Tree], Tree] | None = None
    """the object with what its parts refer to inside it"""


def _with_templates(group: Tree) -> Tree:
    """A role-based group, or a set of them, in whose roles ``templateRef`` is the template that it names, and
    whose patches of leaders and workers are templates."""
    spec = dict(mapping(group.get("spec")))
    templates = {
        str(one.get("name")): mapping(one.get("template")) for one in entries_of(spec.get("roleTemplates"))
    }
    if "roles" in spec:
        roles = [_patched(_with_template(role, templates)) for role in entries_of(spec.get("roles"))]
        spec["roles"] = roles
    if isinstance(mapping(spec.get("template")).get("roles"), list):
        spec["template"] = mapping(_with_templates({"spec": spec["template"]}).get("spec"))
    inner = mapping(spec.get("groupTemplate"))
    if "spec" in inner:
        spec["groupTemplate"] = {**inner, **_with_templates({"spec": inner["spec"]})}
    return {**group, "spec": spec}


_PATCHES = (
    ("leaderTemplate", ("patchLeaderTemplate", "leaderPatch", "leaderTemplatePatch")),
    ("workerTemplate", ("patchWorkerTemplate", "workerPatch", "workerTemplatePatch")),
)
"""Template of a group's pods, the keys whose patch makes it of the role's (v1alpha1, v1alpha2)."""


def _patched(role: Tree) -> Tree:
    """A role whose leader and workers are its template with a patch each."""
    found = dict(role)
    for pattern in ("leaderWorkerSet", "leaderWorkerPattern"):
        own = dict(mapping(found.get(pattern)))
        given = [(name, patch) for name, keys in _PATCHES for key in keys if (patch := mapping(own.get(key)))]
        base = mapping(own.get("template")) or mapping(found.get("template"))
        if not given or not base:
            continue
        own.pop("template", None)
        found.pop("template", None)
        patches = dict(given)
        for name, _ in _PATCHES:
            own[name] = merged(base, patches.get(name, {}))
        found[pattern] = own
    return found


def _with_template(role: Tree, templates: Mapping[str, Tree]) -> Tree:
    found = dict(role)
    for key, pattern in role.items():
        reference = mapping(mapping(pattern).get("templateRef"))
        named = templates.get(str(reference.get("name")))
        if named is not None:
            whole = merged(named, mapping(reference.get("patch")))
            found[key] = {**mapping(pattern), "template": whole}
    return found


def _dynamo(service: Tree) -> Tree:
    """A service of Dynamo's first form as a pod; its HTTP server and its planner start no engine."""
    if service.get("componentType") in ("frontend", "planner", "epp") or service.get("type") in (
        "frontend", "planner", "epp",
    ):  # fmt: skip
        return {}
    if "podTemplate" in service:
        return mapping(service.get("podTemplate"))
    extra = mapping(service.get("extraPodSpec"))
    main = dict(mapping(extra.get("mainContainer")))
    main["env"] = [*entries_of(service.get("envs")), *entries_of(main.get("env"))]
    main.setdefault("resources", _dynamo_resources(mapping(service.get("resources"))))
    if not main.get("command"):  # the entry point of its images starts no engine
        main["command"], main["args"] = main.get("args"), []
    labels = {"annotations": service.get("annotations"), "labels": service.get("labels")}
    return {"metadata": labels, "spec": {**extra, "containers": [main, *entries_of(extra.get("containers"))]}}


def _dynamo_resources(given: Tree) -> OwnTree:
    """Those of a service with its GPUs under their own name (api/v1alpha1/common.go, gpuType)."""
    found: OwnTree = dict(given)
    for part in ("limits", "requests"):
        own = dict(mapping(given.get(part)))
        if (kind := own.pop("gpuType", None)) is not None and "gpu" in own:
            own[str(kind)] = own.pop("gpu")
        if own:
            found[part] = own
    return found


def _args(container: Tree) -> list[object]:
    args = container.get("args")
    return args if isinstance(args, list) else [args] if isinstance(args, str) else []


def _ray(template: Tree) -> Tree:
    """A pod of a Ray cluster: KubeRay runs a container's words in a shell, before ``ray start``
    (ray-operator/controllers/ray/common/pod.go, convertCmdToString)."""
    spec = mapping(template.get("spec"))
    containers = [
        one
        if one.get("command")
        else {**one, "command": ["bash", "-c", " ".join(map(text_of, _args(one)))], "args": []}
        for one in entries_of(spec.get("containers"))
    ]
    return {**template, "spec": {**spec, "containers": containers}}


_TEMPLATE, _REPLICAS = "spec.template", "spec.replicas"
_LWS = ("LWS_GROUP_SIZE",)
_RAY = (
    Pods("headGroupSpec.template", share=LEADER, called="", gang=True, one=True, shape=_ray),
    Pods(
        "workerGroupSpecs[].template",
        (),
        "workerGroupSpecs[].replicas",
        share=WORKER,
        plus=1,
        called="",
        shape=_ray,
    ),
)


def _below(head: str, pods: tuple[Pods, ...], times: tuple[str, ...] = ()) -> tuple[Pods, ...]:
    """The same pods below a path, in groups that further numbers multiply."""
    return tuple(
        replace(
            one, at=f"{head}.{one.at}", times=times, size=None if one.size is None else f"{head}.{one.size}"
        )
        for one in pods
    )


def lws_pods(
    head: str, times: tuple[str, ...], called: str | None = None, key: str = "leaderWorkerTemplate"
) -> tuple[Pods, ...]:
    """A leader and its workers under ``leaderWorkerTemplate``."""
    below = f"{head}.{key}"
    return tuple(
        Pods(f"{below}.{share}Template", times, f"{below}.size", share=share,
             leader=f"{below}.leaderTemplate", gang=True, called=called, told=_LWS)
        for share in (LEADER, WORKER)
    )  # fmt: skip


def _patched_pods(head: str, times: tuple[str, ...]) -> tuple[Pods, ...]:
    """Leader and workers of a role whose template has a patch for each."""
    return tuple(
        replace(one, called=None, told=told)
        for key, told in (("leaderWorkerSet", _LWS), ("leaderWorkerPattern", ("RBG_LWP_GROUP_SIZE", *_LWS)))
        for one in lws_pods(head, times, None, key)
    )


_ROLE = "spec.roles[]"
_GROUPS = (_REPLICAS, "spec.template.roles[].replicas")
ROWS: tuple[Row, ...] = (
    Row("Pod", "", (Pods(""),), "kubernetes/api core/v1/types.go"),
    Row("PodTemplate", "", (Pods("template"),), "kubernetes/api core/v1/types.go"),
    Row(
        "Deployment ReplicaSet ReplicationController StatefulSet CloneSet Rollout AdvancedStatefulSet",
        "apps extensions apps.kruise.io argoproj.io apps.openshift.io",
        (Pods(_TEMPLATE, size=_REPLICAS),), "kubernetes/api apps/v1/types.go",
    ),
    Row("DaemonSet", "apps apps.kruise.io", (Pods(_TEMPLATE, note="one runs on each node: 1 counted"),),
        "kubernetes/api apps/v1/types.go"),
    Row("Job", "batch", (Pods(_TEMPLATE, size="spec.parallelism"),), "kubernetes/api batch/v1/types.go"),
    Row(
        "CronJob", "batch",
        (Pods("spec.jobTemplate.spec.template", size="spec.jobTemplate.spec.parallelism"),),
        "kubernetes/api batch/v1/types.go",
    ),
    Row(
        "JobSet", "jobset.x-k8s.io",
        (Pods("spec.replicatedJobs[].template.spec.template", ("spec.replicatedJobs[].replicas",),
              "spec.replicatedJobs[].template.spec.parallelism", gang=True),),
        "kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go",
    ),
    Row(
        "Job", "batch.volcano.sh", (Pods("spec.tasks[].template", size="spec.tasks[].replicas", gang=True),),
        "volcano-sh/apis pkg/apis/batch/v1alpha1/job.go",
    ),
    Row(
        "PyTorchJob MPIJob TFJob", "kubeflow.org",
        (Pods("spec.pytorchReplicaSpecs{}.template", size="spec.pytorchReplicaSpecs{}.replicas", gang=True),
         Pods("spec.mpiReplicaSpecs{}.template", size="spec.mpiReplicaSpecs{}.replicas", gang=True)),
        "kubeflow/training-operator pkg/apis/kubeflow.org/v1",
    ),
    Row(
        "LeaderWorkerSet", "leaderworkerset.x-k8s.io",
        lws_pods("spec", (_REPLICAS,), ""),
        "kubernetes-sigs/lws api/leaderworkerset/v1/leaderworkerset_types.go",
    ),
    Row(
        "DisaggregatedSet", "disaggregatedset.x-k8s.io",
        lws_pods("spec.roles[].spec", ("spec.slices", "spec.roles[].spec.replicas")),
        "kubernetes-sigs/lws api/disaggregatedset/v1",
    ),
    Row("Service Revision", "serving.knative.dev", (Pods(_TEMPLATE),), "knative/serving pkg/apis/serving/v1"),
    Row("RayCluster", "ray.io", _below("spec", _RAY), "ray-project/kuberay ray-operator/apis/ray/v1"),
    Row(
        "RayJob", "ray.io", _below("spec.rayClusterSpec", _RAY),
        "ray-project/kuberay ray-operator/apis/ray/v1/rayjob_types.go",
    ),
    Row(
        "RayClusterFleet RayClusterReplicaSet", "orchestration.aibrix.ai",
        _below("spec.template.spec", _RAY, (_REPLICAS,)),
        "vllm-project/aibrix api/orchestration/v1alpha1/rayclusterfleet_types.go",
    ),
    Row(
        "StormService", "orchestration.aibrix.ai",
        (Pods("spec.template.spec.roles[].template", (_REPLICAS, "spec.template.spec.roles[].replicas"),
              "spec.template.spec.roles[].podGroupSize", gang=True, told=("POD_GROUP_SIZE",)),),
        "vllm-project/aibrix api/orchestration/v1alpha1/stormservice_types.go",
    ),
    Row(
        "RoleSet", "orchestration.aibrix.ai",
        (Pods("spec.roles[].template", ("spec.roles[].replicas",), "spec.roles[].podGroupSize", gang=True,
              told=("POD_GROUP_SIZE",)),),
        "vllm-project/aibrix api/orchestration/v1alpha1/roleset_types.go",
    ),
    Row(
        "PodSet", "orchestration.aibrix.ai",
        (Pods(_TEMPLATE, size="spec.podGroupSize", gang=True, told=("POD_GROUP_SIZE",)),),
        "vllm-project/aibrix api/orchestration/v1alpha1/podset_types.go",
    ),
    Row(
        "ModelServing", "workload.serving.volcano.sh",
        tuple(
            Pods(f"spec.template.roles[].{part}Template", _GROUPS, "spec.template.roles[].workerReplicas",
                 plus=1, share=share, leader="spec.template.roles[].entryTemplate", gang=True,
                 told=("GROUP_SIZE",))
            for part, share in (("entry", LEADER), ("worker", WORKER))
        ),
        "volcano-sh/kthena pkg/apis/workload/v1alpha1/model_serving_types.go",
    ),
    Row(
        "RoleBasedGroup RoleBasedGroupSet", "workloads.x-k8s.io",
        tuple(
            one for head, times in ((_ROLE, ()), ("spec.template.roles[]", (_REPLICAS,)),
                                    ("spec.groupTemplate.spec.roles[]", (_REPLICAS,)))
            for one in (
                Pods(f"{head}.template", (*times, f"{head}.replicas"), f"{head}.leaderWorkerSet.size",
                     gang=True, told=_LWS),
                Pods(f"{head}.standalonePattern.template", (*times, f"{head}.replicas")),
                *_patched_pods(head, (*times, f"{head}.replicas")),
                Pods(f"{head}.leaderWorkerPattern.template", (*times, f"{head}.replicas"),
                     f"{head}.leaderWorkerPattern.size", gang=True,
                     told=("RBG_LWP_GROUP_SIZE", "LWS_GROUP_SIZE")),
                Pods(f"{head}.customComponentsPattern.components[].template",
                     (*times, f"{head}.replicas", f"{head}.customComponentsPattern.components[].size")),
            )
        ),
        "sgl-project/rbg api/workloads/v1alpha1, v1alpha2", _with_templates,
    ),
    Row(
        "DynamoGraphDeployment", "nvidia.com",
        (Pods("spec.services{}", ("spec.services{}.replicas",), "spec.services{}.multinode.nodeCount",
              one=True, shape=_dynamo),
         Pods("spec.components[]", ("spec.components[].replicas",), "spec.components[].multinode.nodeCount",
              one=True, shape=_dynamo)),
        "ai-dynamo/dynamo deploy/operator/api/v1alpha1, v1beta1",
    ),
    Row(
        "DynamoComponentDeployment", "nvidia.com",
        (Pods("spec", (_REPLICAS,), "spec.multinode.nodeCount", one=True, shape=_dynamo, called=""),),
        "ai-dynamo/dynamo deploy/operator/api/v1alpha1",
    ),
    Row(
        "PodCliqueSet", "grove.io",
        (Pods("spec.template.cliques[].spec.podSpec", (_REPLICAS,), "spec.template.cliques[].spec.replicas",
              gang=True),),
        "ai-dynamo/grove operator/api/core/v1alpha1",
    ),
    Row(
        "Workflow WorkflowTemplate ClusterWorkflowTemplate CronWorkflow", "argoproj.io",
        tuple(
            Pods(f"{head}.templates[]", shape=lambda one: {"spec": {
                **one, "containers": [mapping(one[key]) for key in ("container", "script") if key in one]
                + entries_of(mapping(one.get("containerSet")).get("containers"))
                + entries_of(one.get("sidecars"))}})
            for head in ("spec", "spec.workflowSpec")
        ),
        "argoproj/argo-workflows pkg/apis/workflow/v1alpha1/workflow_types.go",
    ),
    Row(
        "Task", "tekton.dev", (Pods("spec", shape=lambda one: {"spec": {"containers": [
            {**step, "source": step["script"]} if "script" in step else step
            for step in entries_of(one.get("steps"))]}}, called=""),),
        "tektoncd/pipeline pkg/apis/pipeline/v1/task_types.go",
    ),
    Row(
        """InferencePool ModelServer ModelRoute InferenceModel InferenceObjective AIServiceBackend
        AIGatewayRoute ServingRuntime ClusterServingRuntime BackendRuntime LLMInferenceServiceConfig
        ClusterBaseModel BaseModel OpenModel TrainedModel InferenceGraph ClusterStorageContainer CacheServer
        KVCache VLLMRouter NIMCache ClusterEngineRuntimeProfile BenchmarkJob AcceleratorClass FineTunedWeight
        RAGEngine ModelAdapter LoraAdapter PodAutoscaler VariantAutoscaling ModelWarmup
        RoleBasedGroupScalingAdapter CoordinatedPolicy RoleBasedGroupWarmup""",
        "", (), "objects beside a server: what they say of it, other rows read",
    ),
)  # fmt: skip
