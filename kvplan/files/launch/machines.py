"""Which GPU a cloud's or a cluster's own word means, and how many of which part of it a pod is given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kvplan.files.gpus.listed import find_slugs, list_slugs
from kvplan.files.launch.trees import Tree, count_of, entries_of, mapping, mappings_in
from kvplan.later import regex
from kvplan.named import NamedTuple

# Sources: NVIDIA/k8s-device-plugin gpu-feature-discovery (``nvidia.com/gpu.product``: NVML's name with
# hyphens); cloud.google.com/kubernetes-engine/docs/how-to/gpus (``cloud.google.com/gke-accelerator``);
# aws.amazon.com/ec2/instance-types (accelerated computing);
# learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated; karpenter.sh/docs/concepts/scheduling
# (``karpenter.k8s.aws/instance-gpu-name``); docs.coreweave.com (``gpu.nvidia.com/class``); NVIDIA/mig-parted
# (profiles); Project-HAMi/HAMi docs/config.md (``nvidia.com/gpumem``); docs.run.ai (``gpu-fraction``).
ACCELERATORS = {
    "nvidia-tesla-t4": "t4",
    "nvidia-tesla-v100": "v100-sxm-16gb",
    "nvidia-tesla-p100": "p100",
    "nvidia-tesla-a100": "a100-sxm-40gb",
    "nvidia-a100-80gb": "a100-sxm-80gb",
    "nvidia-l4": "l4",
    "nvidia-h100-80gb": "h100-sxm-80gb",
    "nvidia-h100-mega-80gb": "h100-sxm-80gb",
    "nvidia-h200-141gb": "h200-sxm-141gb",
    "nvidia-b200": "b200-sxm-180gb",
    "nvidia-gb200": "gb200",
    "nvidia-gb300": "gb300",
    "nvidia-rtx-pro-6000": "rtx-pro-6000",
    "tpu-v5-lite-podslice": "tpu-v5e",
    "tpu-v5-lite-device": "tpu-v5e",
    "tpu-v5p-slice": "tpu-v5p",
    "tpu-v6e-slice": "tpu-v6e",
    "tpu-v6e-device": "tpu-v6e",
    "tpu7x": "tpu-v7x",
}
"""Google's labels → a GPU."""
_SEVERAL = ("a100", "v100")
"""Names of cards that are sold with two memories: no label that says no more names one of them."""
INSTANCES: tuple[tuple[str, str], ...] = (
    (r"p6-b200\.", "b200-sxm-180gb"),
    (r"p6-b300\.", "b300"),
    (r"p6e-gb200\.", "gb200"),
    (r"p5en?\.", "h200-sxm-141gb"),
    (r"p5\.", "h100-sxm-80gb"),
    (r"p4de\.", "a100-sxm-80gb"),
    (r"p4d\.", "a100-sxm-40gb"),
    (r"p3dn\.", "v100-sxm-32gb"),
    (r"p3\.", "v100-sxm-16gb"),
    (r"g4dn\.", "t4"),
    (r"g5\.", "a10g"),
    (r"g6e\.", "l40s"),
    (r"g6\.", "l4"),
    (r"standard_nc\d+ads_a100_v4", "a100-pcie-80gb"),
    (r"standard_nd96asr_(a100_)?v4", "a100-sxm-40gb"),
    (r"standard_nd96amsr_a100_v4", "a100-sxm-80gb"),
    (r"standard_nd96is_?r?_h100_v5", "h100-sxm-80gb"),
    (r"standard_nd96isr_h200_v5", "h200-sxm-141gb"),
    (r"standard_nc\d+adi?s_h100_v5", "h100-nvl-94gb"),
    (r"standard_nc\d+as_t4_v3", "t4"),
    (r"standard_nv\d+ads_a10_v5", "a10"),
    (r"standard_nd96isr_mi300x_v5", "mi300x"),
    (r"a2-highgpu-", "a100-sxm-40gb"),
    (r"a2-megagpu-", "a100-sxm-40gb"),
    (r"a2-ultragpu-", "a100-sxm-80gb"),
    (r"a3-(high|mega|edge)gpu-", "h100-sxm-80gb"),
    (r"a3-ultragpu-", "h200-sxm-141gb"),
    (r"a4-highgpu-", "b200-sxm-180gb"),
    (r"a4x-highgpu-", "gb200"),
    (r"g2-standard-", "l4"),
    (r"g4-standard-", "rtx-pro-6000"),
    (r"trn2u?\.", "trainium2"),
    (r"inf2\.", "inferentia2"),
    (r"bm\.gpu\.b200\.", "b200-sxm-180gb"),
    (r"bm\.gpu\.h200\.", "h200-sxm-141gb"),
    (r"bm\.gpu\.h100\.", "h100-sxm-80gb"),
    (r"bm\.gpu\.a100-v2\.|bm\.gpu\.gm4\.", "a100-sxm-80gb"),
    (r"bm\.gpu4\.|bm\.gpu\.b4\.", "a100-sxm-40gb"),
    (r"bm\.gpu\.l40s", "l40s"),
    (r"bm\.gpu\.mi300x\.", "mi300x"),
    (r"(vm|bm)\.gpu\.a10\.", "a10"),
    (r"ecs\.gn7i[ex]?-|ecs\.gn7i\.", "a10"),
    (r"ecs\.gn7e-", "a100-sxm-80gb"),
    (r"ecs\.gn6i-", "t4"),
    (r"ecs\.(ini2|pni2|gni2)\.", "a10"),
)
"""(how an instance's type begins, its GPU)."""
GPUS_OF_INSTANCE: tuple[tuple[str, int], ...] = (
    (
        r"standard_nc24ads_a100|standard_nc40ads_h100|standard_nc4as_t4|standard_nc8as_t4|standard_nc16as_t4",
        1,
    ),
    (r"standard_nc48ads_a100|standard_nc80adis_h100|standard_nv72ads_a10", 2),
    (r"standard_nc96ads_a100|standard_nc64as_t4", 4),
    (r"standard_nv36ads_a10", 1),
    (r"standard_nd96", 8),
    (r"p6-b200\.48|p6-b300\.48|p5en?\.48|p4de?\.24|p3dn\.24|p3\.16|g4dn\.metal|g5\.48|g6e?\.48", 8),
    (r"g5\.(12|24)|g6e?\.(12|24)|g4dn\.12|p3\.8", 4),
    (r"p5\.4|g5\.(2|4|8|16)?xl|g6e?\.(2|4|8|16)?xl|g4dn\.(2|4|8|16)?xl|p3\.2", 1),
)
"""(how a machine's type begins, its GPUs): learn.microsoft.com/azure/virtual-machines/sizes, and
aws.amazon.com/ec2/instance-types."""
_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/pgpu", "amd.com/gpu", "gpu.intel.com/i915",
    "gpu.intel.com/xe", "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron",
    "aws.amazon.com/neurondevice", "volcano.sh/vgpu-number", "gpu", "nvidia.com/gpus",
)  # fmt: skip
"""Resources that are whole GPUs."""
_ASCEND = regex(r"huawei\.com/ascend[\w.-]*", re.IGNORECASE)
_NEURON_CORES = "aws.amazon.com/neuroncore"
_MIG = regex(r"nvidia\.com/mig-(\d+g\.\d+gb)(?:\.me)?(?:\.shared)?", re.ASCII)
_PARTS = (
    "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/gpu.shared",
    "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/gpu-memory", "aliyun.com/gpu-mem",
    "aliyun.com/gpu-core.percentage", "tencent.com/vcuda-memory", "tencent.com/vcuda-core",
    "k8s.amazonaws.com/vgpu", "amd.com/gpumem",
)  # fmt: skip
"""Resources that are a part of a GPU, in units of their own."""
_FRACTIONS = (
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "run.ai/gpu-fraction",
    "nos.nebuly.com/gpu",
)
"""Annotations and labels of run:ai and the KAI scheduler that give a part of a GPU."""
_OF_GPU = regex(
    r"gpu|accelerator|nvidia_name|instance[-.]?type|instance_type|machine[-_]?type|node-?flavor|hardware|device"
)
_NO_KIND = regex(
    r"(count|memory|mem|present|replicas|strategy|family|driver|compute|cores|enabled|installed|deploy\S*"
    r"|partition-size|vendor|manufacturer|topology|sharing\S*|mode|config|state|role|pool)$"
)
_SLICE_LABEL = "cloud.google.com/gke-gpu-partition-size"


def gpu_of_label(text: str) -> str | None:
    """The slug of the GPU that a label, an instance's type or a product's name means; None for any other."""
    word = text.strip().lower()
    if re.sub(r"^(nvidia|tesla)[- ]", "", word) in _SEVERAL:
        return None
    if word in ACCELERATORS:
        return _slug(ACCELERATORS[word])
    for pattern, gpu in INSTANCES:
        if re.match(pattern, word):
            return _slug(gpu)
    shared = re.sub(r"-shared$|_oam$|^(nvidia|amd)-gpu-", "", text.strip(), flags=re.IGNORECASE)
    shared = re.sub(r"_NVLINK(?=_|$)", "_SXM", re.sub(r"^AMD_Instinct_", "", shared))
    for name in (shared, shared.replace("-", " "), shared.replace("_", " ")):
        if (slug := _slug(name)) is not None:
            return slug
    return None


def _slug(name: str) -> str | None:
    slugs = find_slugs(name)
    return slugs[0] if len(slugs) == 1 else None


class Given(NamedTuple):
    """The GPUs of a container. gpus: None where nothing says. parts: ``key value`` of what is a part of a
    GPU. slice: the profile of a MIG slice."""

    gpus: int | None = None
    gpu: str | None = None
    slice: str | None = None
    parts: tuple[str, ...] = ()


def given_by(resources: object) -> Given:
    """The GPUs of a container's ``resources``: its limits, else its requests."""
    limits, requests = (mapping(mapping(resources).get(key)) for key in ("limits", "requests"))
    flat = mapping(resources) if not (limits or requests) else {}
    both = {**flat, **requests, **limits}
    parts = tuple(f"{key} {both[key]}" for key in _PARTS if key in both)
    for key, value in both.items():
        mig = _MIG.fullmatch(str(key))
        count = count_of(value)
        if count is None:
            continue
        if mig is not None:
            return Given(count, None, mig[1], parts)
        if key == _NEURON_CORES:
            return Given(max(1, count // 2), None, None, parts)
        if key in _RESOURCES or _ASCEND.fullmatch(str(key)):
            return Given(count, gpu_of_resource(str(key)), None, parts)
        if str(key).startswith("nvidia.com/") and (gpu := gpu_of_label(str(key)[11:])) is not None:
            return Given(count, gpu, None, parts)
    return Given(None, None, None, parts)


def gpu_of_resource(key: str) -> str | None:
    """The GPU that a resource's own name says (``huawei.com/Ascend910B4``); None for a plain one."""
    name = key.lower().rpartition("/")[2]
    return _slug(name.replace("ascend910", "ascend-910")) if _ASCEND.fullmatch(key) else None


def gpus_of_machine(kind: str) -> int | None:
    """How many GPUs a machine of that type has; None for one that is not known."""
    found = (count for pattern, count in GPUS_OF_INSTANCE if re.match(pattern, kind.strip().lower()))
    return next(found, None)


def fractions_in(*metadata: object) -> tuple[str, ...]:
    """``key value`` of the annotations and labels that give a part of a GPU."""
    found = []
    for one in metadata:
        for part in ("annotations", "labels"):
            told = mapping(mapping(one).get(part))
            found += [f"{key} {told[key]}" for key in _FRACTIONS if key in told]
    return tuple(dict.fromkeys(found))


def gpu_of(value: Mapping[str, object]) -> str | None:
    """The GPU that a mapping's own keys name (a selector's label, a type, an affinity's expression)."""
    for label, text in value.items():
        if isinstance(text, str) and names_gpus(str(label)) and (gpu := gpu_of_label(text)) is not None:
            return gpu
    key, values = value.get("key"), value.get("values")
    if isinstance(key, str) and isinstance(values, list) and names_gpus(key):
        named = {gpu_of_label(str(one)) for one in values}
        return named.pop() if len(named) == 1 and value.get("operator", "In") == "In" else None
    return None


def names_gpus(label: str) -> bool:
    """Whether a label's value may say which GPU it is: not how many, or how they are shared."""
    key = label.lower()
    return _OF_GPU.search(key) is not None and _NO_KIND.search(key.rpartition("/")[2]) is None


def gpu_below(value: object) -> str | None:
    """The one GPU that anything below names; None where it is none, or several."""
    kinds = {gpu for one in mappings_in(value) if (gpu := gpu_of(one)) is not None}
    return kinds.pop() if len(kinds) == 1 else None


def gpu_of_pod(spec: Tree) -> tuple[str | None, str | None]:
    """(GPU, slice) of the nodes on which a pod may run: its selector, then its affinity."""
    selector = mapping(spec.get("nodeSelector"))
    node = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    part = selector.get(_SLICE_LABEL)
    named = gpu_of(selector) or gpu_below(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    named = named or gpu_below(node.get("preferredDuringSchedulingIgnoredDuringExecution"))
    return named, part if isinstance(part, str) else None


_PRODUCT = regex(r"(?:product(?:Name)?|type)['\"\]]*[.\w()]*\s*==\s*['\"]([^'\"]+)", re.IGNORECASE)


def claimed(spec: Tree, objects: Mapping[tuple[str, str], Tree]) -> Iterator[tuple[int, str | None]]:
    """(number, GPU) of the devices that a pod claims (resource.k8s.io: ResourceClaimTemplate, ResourceClaim).

    objects: those of the same text by kind and name."""
    for claim in entries_of(spec.get("resourceClaims")):
        for kind in ("ResourceClaimTemplate", "ResourceClaim"):
            name = claim.get(f"{kind[0].lower()}{kind[1:]}Name")
            body = mapping(mapping(objects.get((kind, str(name)))).get("spec"))
            devices = mapping(mapping(body.get("spec")).get("devices") or body.get("devices"))
            for request in entries_of(devices.get("requests")):
                exact = mapping(request.get("exactly")) or request
                if str(exact.get("deviceClassName", "")).startswith(("gpu.", "mig.", "tpu.", "neuron")):
                    product = _PRODUCT.search(str(exact.get("selectors", "")))
                    yield count_of(exact.get("count")) or 1, gpu_of_label(product[1]) if product else None


def claimed_by(annotations: Tree) -> tuple[int | None, str | None]:
    """(number, GPU) of the devices that KServe claims for a service (kserve/kserve
    pkg/controller/v1alpha2/llmisvc: ``exp-dra-device-count``, ``exp-dra-cel-selector``)."""
    head = "serving.kserve.io/exp-dra-"
    if f"{head}device-class" not in annotations:
        return None, None
    product = _PRODUCT.search(str(annotations.get(f"{head}cel-selector", "")))
    return count_of(annotations.get(f"{head}device-count")) or 1, gpu_of_label(
        product[1]
    ) if product else None


def with_slice(gpu: str, profile: str) -> str:
    """A GPU's slug with that of its slice: ``a100-sxm-80gb-mig-3g.40gb``; of a card that has no file of the
    slice that of the same chip with as much memory."""
    if "-mig-" in gpu:
        return gpu
    slug = _slug(gpu) or gpu
    chip, memory, ending = slug.partition("-")[0], slug.rpartition("-")[2], f"-mig-{profile}"
    same = [one for one in list_slugs() if one.endswith(ending) and one.startswith(f"{chip}-")]
    same = [one for one in same if one.removesuffix(ending).endswith(f"-{memory}")]
    return slug + ending if slug + ending in same or len(same) != 1 else same[0]
