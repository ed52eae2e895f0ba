"""Which GPU a cloud's or a cluster's own word means.

Sources: NVIDIA/k8s-device-plugin gpu-feature-discovery (``nvidia.com/gpu.product``: NVML's name with
hyphens); cloud.google.com/kubernetes-engine/docs/how-to/gpus (``cloud.google.com/gke-accelerator``);
aws.amazon.com/ec2/instance-types (accelerated computing);
learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated.
"""

from __future__ import annotations

import re

from kvplan.files.gpus.listed import find_slugs

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
)
"""(how an instance's type begins, its GPU)."""


def gpu_of_label(text: str) -> str | None:
    """The slug of the GPU that a label, an instance's type or a product's name means; None for any other."""
    word = text.strip().lower()
    if word in ACCELERATORS:
        return _slug(ACCELERATORS[word])
    for pattern, gpu in INSTANCES:
        if re.match(pattern, word):
            return _slug(gpu)
    shared = re.sub(r"-shared$", "", text.strip(), flags=re.IGNORECASE)
    for name in (shared, shared.replace("-", " ")):
        if (slug := _slug(name)) is not None:
            return slug
    return None


def _slug(name: str) -> str | None:
    slugs = find_slugs(name)
    return slugs[0] if len(slugs) == 1 else None
