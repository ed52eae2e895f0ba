"""Names, remarks and MIG profiles that `make_gpu_specs.py` adds to the table of facts."""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """How one row of the facts is called here."""

    slug: str
    name: str
    aliases: tuple[str, ...] = ()
    default_for: tuple[str, ...] = ()
    nvml_names: tuple[str, ...] = ()


CARDS: dict[str, Card] = {
    "P100-PCIe-16GB": Card("p100-pcie-16gb", "NVIDIA Tesla P100", (), ("p100",), ("Tesla P100-PCIE-16GB",)),
    "T4": Card("t4-16gb", "NVIDIA T4", ("tesla-t4",), ("t4",), ("Tesla T4",)),
    "V100-SXM2-16GB": Card(
        "v100-sxm-16gb", "NVIDIA V100 SXM2 16GB", ("v100-16gb",), ("v100",), ("Tesla V100-SXM2-16GB",)
    ),
    "V100-SXM2-32GB": Card(
        "v100-sxm-32gb", "NVIDIA V100 SXM2 32GB", ("v100-32gb",), (), ("Tesla V100-SXM2-32GB",)
    ),
    "A10": Card("a10-24gb", "NVIDIA A10", (), ("a10",)),
    "A10G": Card("a10g-24gb", "NVIDIA A10G", (), ("a10g",)),
    "A16": Card("a16-16gb", "NVIDIA A16", (), ("a16",)),
    "A30": Card("a30-24gb", "NVIDIA A30", (), ("a30",)),
    "A40": Card("a40-48gb", "NVIDIA A40", (), ("a40",)),
    "A100-PCIe-40GB": Card("a100-pcie-40gb", "NVIDIA A100-PCIE-40GB"),
    "A100-SXM4-40GB": Card("a100-sxm-40gb", "NVIDIA A100-SXM4-40GB", ("a100-40gb", "a100-sxm4-40gb")),
    "A100-PCIe-80GB": Card("a100-pcie-80gb", "NVIDIA A100 80GB PCIe", ("a100-pcie",)),
    "A100-SXM4-80GB": Card(
        "a100-sxm-80gb", "NVIDIA A100-SXM4-80GB", ("a100-80gb", "a100-sxm", "a100-sxm4-80gb"), ("a100",)
    ),
    "L4": Card("l4-24gb", "NVIDIA L4", (), ("l4",)),
    "L20": Card("l20-48gb", "NVIDIA L20", (), ("l20",)),
    "L40": Card("l40-48gb", "NVIDIA L40", (), ("l40",)),
    "L40S": Card("l40s-48gb", "NVIDIA L40S", (), ("l40s",)),
    "RTX-3090": Card("rtx-3090-24gb", "NVIDIA GeForce RTX 3090", ("3090", "rtx3090"), ("rtx-3090",)),
    "RTX-4090": Card("rtx-4090-24gb", "NVIDIA GeForce RTX 4090", ("4090", "rtx4090"), ("rtx-4090",)),
    "RTX-5090": Card("rtx-5090-32gb", "NVIDIA GeForce RTX 5090", ("5090", "rtx5090"), ("rtx-5090",)),
    "RTX-A6000": Card("rtx-a6000-48gb", "NVIDIA RTX A6000", ("a6000",), ("rtx-a6000",)),
    "RTX-6000-Ada": Card(
        "rtx-6000-ada-48gb", "NVIDIA RTX 6000 Ada Generation", ("6000-ada",), ("rtx-6000-ada",)
    ),
    "RTX-PRO-6000-Blackwell-Server": Card(
        "rtx-pro-6000-blackwell-96gb",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        ("rtx-pro-6000-blackwell",),
        ("rtx-pro-6000",),
    ),
    "H100-PCIe-80GB": Card("h100-pcie-80gb", "NVIDIA H100 PCIe", ("h100-pcie",)),
    "H100-SXM5-80GB": Card(
        "h100-sxm-80gb", "NVIDIA H100 80GB HBM3", ("h100-80gb", "h100-sxm", "h100-sxm5-80gb"), ("h100",)
    ),
    "H100-NVL-94GB": Card("h100-nvl-94gb", "NVIDIA H100 NVL", ("h100-nvl",)),
    "H20-96GB": Card("h20-96gb", "NVIDIA H20", (), ("h20",)),
    "H200-SXM-141GB": Card("h200-sxm-141gb", "NVIDIA H200", ("h200-141gb", "h200-sxm"), ("h200",)),
    "H200-NVL-141GB": Card("h200-nvl-141gb", "NVIDIA H200 NVL", ("h200-nvl",)),
    "GH200-96GB": Card("gh200-96gb", "NVIDIA GH200 96GB", (), ("gh200",), ("NVIDIA GH200 480GB",)),
    "GH200-144GB": Card("gh200-144gb", "NVIDIA GH200 144GB", (), (), ("NVIDIA GH200 144G HBM3e",)),
    "B100": Card("b100-192gb", "NVIDIA B100", (), ("b100",)),
    "B200-SXM-180GB": Card("b200-sxm-180gb", "NVIDIA B200", ("b200-180gb", "b200-sxm"), ("b200",)),
    "B300-SXM": Card("b300-sxm-288gb", "NVIDIA B300", ("b300-sxm",), ("b300",), ("NVIDIA B300 SXM6 AC",)),
    "GB200": Card("gb200-186gb", "NVIDIA GB200", (), ("gb200",)),
    "GB300": Card("gb300-288gb", "NVIDIA GB300", (), ("gb300",)),
    "GB10-DGX-Spark": Card("gb10-128gb", "NVIDIA GB10", ("dgx-spark",), ("gb10",)),
    "Jetson-AGX-Orin-64GB": Card(
        "jetson-agx-orin-64gb", "NVIDIA Jetson AGX Orin 64GB", ("orin",), ("jetson-agx-orin",)
    ),
    "Jetson-AGX-Thor-128GB": Card(
        "jetson-agx-thor-128gb", "NVIDIA Jetson AGX Thor", ("thor",), ("jetson-agx-thor",)
    ),
    "MI210": Card("mi210-64gb", "AMD Instinct MI210", (), ("mi210",)),
    "MI250X": Card("mi250x-64gb", "AMD Instinct MI250X", ("mi250x-128gb",), ("mi250x",)),
    "MI300X": Card("mi300x-192gb", "AMD Instinct MI300X", (), ("mi300x",)),
    "MI308X": Card("mi308x-192gb", "AMD Instinct MI308X", (), ("mi308x",)),
    "MI325X": Card("mi325x-256gb", "AMD Instinct MI325X", (), ("mi325x",)),
    "MI350X": Card("mi350x-288gb", "AMD Instinct MI350X", (), ("mi350x",)),
    "MI355X": Card("mi355x-288gb", "AMD Instinct MI355X", (), ("mi355x",)),
    "RX-7900-XTX": Card("rx-7900-xtx-24gb", "AMD Radeon RX 7900 XTX", ("7900-xtx",), ("rx-7900-xtx",)),
    "Gaudi2": Card("gaudi2-96gb", "Intel Gaudi 2", (), ("gaudi2",)),
    "Gaudi3": Card("gaudi3-128gb", "Intel Gaudi 3", (), ("gaudi3",)),
    "Arc-Pro-B60": Card("arc-pro-b60-24gb", "Intel Arc Pro B60", ("b60",), ("arc-pro-b60",)),
    "TPU-v5e": Card("tpu-v5e-16gb", "Google TPU v5e", ("v5e",), ("tpu-v5e",)),
    "TPU-v5p": Card("tpu-v5p-95gb", "Google TPU v5p", ("v5p",), ("tpu-v5p",)),
    "TPU-v6e": Card("tpu-v6e-32gb", "Google TPU v6e", ("v6e", "trillium"), ("tpu-v6e",)),
    "TPU-v7x": Card("tpu-v7x-192gb", "Google TPU v7x", ("v7x", "ironwood"), ("tpu-v7x",)),
    "M2-Ultra": Card("m2-ultra-192gb", "Apple M2 Ultra", (), ("m2-ultra",)),
    "M3-Max": Card("m3-max-128gb", "Apple M3 Max", (), ("m3-max",)),
    "M3-Ultra": Card("m3-ultra-512gb", "Apple M3 Ultra", (), ("m3-ultra",)),
    "M4-Pro": Card("m4-pro-64gb", "Apple M4 Pro", (), ("m4-pro",)),
    "M4-Max": Card("m4-max-128gb", "Apple M4 Max", (), ("m4-max",)),
    "Inferentia2": Card("inferentia2-32gb", "AWS Inferentia2", ("inf2",), ("inferentia2",)),
    "Trainium2": Card("trainium2-96gb", "AWS Trainium2", ("trn2",), ("trainium2",)),
}

UNIFIED = frozenset(
    {"GB10-DGX-Spark", "Jetson-AGX-Orin-64GB", "Jetson-AGX-Thor-128GB"}
    | {"M2-Ultra", "M3-Max", "M3-Ultra", "M4-Pro", "M4-Max"}
)

# FP16 rates of the GPUs that have no BF16 units; the table of facts has them in its remarks only.
FP16_TFLOPS = {"P100-PCIe-16GB": "18.7", "T4": "65", "V100-SXM2-16GB": "125", "V100-SXM2-32GB": "125"}

_WIRED = "macOS lets the GPU wire about three quarters of this memory by default (unverified)"
CARD_NOTES = {
    "P100-PCIe-16GB": "No tensor cores and no BF16; current vLLM does not support compute capability 6.0.",
    "T4": "No BF16 tensor cores.",
    "V100-SXM2-16GB": "No BF16.",
    "V100-SXM2-32GB": "No BF16.",
    "A16": "One of the four GPUs of a board.",
    "B100": "Announced, hardly ever shipped.",
    "GB10-DGX-Spark": "nvidia-smi shows no memory total on this part.",
    "MI250X": "One of the two dies of a package: the runtime shows each as a device of its own.",
    "MI308X": "A cut-down MI300X whose throughput is not known.",
    **dict.fromkeys(("M2-Ultra", "M3-Max", "M3-Ultra", "M4-Pro", "M4-Max"), _WIRED + "."),
}

_NVL2 = "over a bridge between two cards"
_LARGEST = "the largest memory it is sold with"
_ACC32 = "with FP32 accumulation"
_IF = "Infinity Fabric"
NOTES: dict[tuple[str, str], str] = {
    ("P100-PCIe-16GB", "memory_mib_smi"): "older drivers show 16276 to 16280 MiB",
    ("T4", "memory_mib_smi"): "older drivers show 15109 MiB (unverified)",
    ("T4", "torch_total_gib"): "14.56 to 14.76 GiB seen, depending on the driver",
    ("V100-SXM2-16GB", "memory_mib_smi"): "older drivers show 16160 MiB",
    ("V100-SXM2-16GB", "nvlink_gbs_bidir"): "the source has 150 GB/s for each direction",
    ("V100-SXM2-32GB", "memory_mib_smi"): "older drivers show 32510 MiB",
    ("V100-SXM2-32GB", "nvlink_gbs_bidir"): "the source has 150 GB/s for each direction",
    ("A10", "memory_mib_smi"): "older drivers show 22731 MiB (unverified)",
    ("A10", "torch_total_gib"): "OpenBMB/MiniCPM-V issue 640 has an A10 with 22.18 GiB",
    ("A10G", "memory_mib_smi"): "older drivers show 22731 MiB (unverified)",
    ("A10G", "torch_total_gib"): "21.98 to 22.20 GiB seen, depending on the driver",
    ("A30", "nvlink_gbs_bidir"): _NVL2,
    ("A40", "memory_mib_smi"): "with ECC on; 49140 MiB with ECC off",
    ("A100-PCIe-40GB", "memory_mib_smi"): "older drivers show 40536 MiB",
    ("A100-PCIe-40GB", "nvlink_gbs_bidir"): _NVL2,
    ("A100-SXM4-40GB", "memory_mib_smi"): "older drivers show 40536 MiB",
    ("A100-SXM4-40GB", "torch_total_gib"): "39.39 to 39.59 GiB seen",
    ("A100-PCIe-80GB", "torch_total_gib"): "the log does not say which card of 80 GB it was",
    ("A100-PCIe-80GB", "nvlink_gbs_bidir"): _NVL2,
    ("A100-SXM4-80GB", "torch_total_gib"): "79.25 and 79.318 GiB also seen, depending on the driver",
    ("A100-SXM4-80GB", "nvlink_gbs_bidir"): "the source has 300 GB/s for each direction",
    ("L4", "torch_total_gib"): "22.03 to 22.17 GiB seen",
    ("L40", "memory_mib_smi"): "with ECC on",
    ("L40S", "torch_total_gib"): "44.39 to 44.43 GiB seen on cards of this chip with 46068 MiB",
    ("RTX-3090", "memory_mib_smi"): "older drivers show 24268 MiB",
    ("RTX-3090", "torch_total_gib"): "23.56 to 23.69 GiB seen; the log names no card",
    ("RTX-3090", "bf16_tflops"): _ACC32 + "; twice that with FP16 accumulation",
    ("RTX-3090", "nvlink_gbs_bidir"): _NVL2,
    ("RTX-4090", "torch_total_gib"): "23.53 to 23.65 GiB seen",
    ("RTX-4090", "fp8_tflops"): _ACC32,
    ("RTX-5090", "fp8_tflops"): _ACC32,
    ("RTX-A6000", "memory_mib_smi"): "with ECC off; 46068 MiB with ECC on (unverified)",
    ("RTX-A6000", "torch_total_gib"): "with ECC off, like the nvidia-smi figure",
    ("RTX-A6000", "nvlink_gbs_bidir"): _NVL2,
    ("RTX-6000-Ada", "memory_mib_smi"): "with ECC on; 49140 MiB with ECC off (unverified)",
    ("RTX-6000-Ada", "torch_total_gib"): "with ECC on; about 47.5 GiB with ECC off (unverified)",
    ("RTX-PRO-6000-Blackwell-Server", "bf16_tflops"): "the source scales it to a clock of 2430 MHz",
    ("H100-PCIe-80GB", "nvlink_gbs_bidir"): _NVL2,
    (
        "H100-SXM5-80GB",
        "torch_total_gib",
    ): "79.18 to 79.19 GiB seen (device properties print 81082 and 81089 MiB); "
    "79.22 in vllm-project/vllm pull request 10511, card not named",
    ("H100-SXM5-80GB", "nvlink_gbs_bidir"): "the source has 450 GB/s for each direction",
    ("H100-NVL-94GB", "nvlink_gbs_bidir"): _NVL2,
    ("H20-96GB", "torch_total_gib"): "95.00 to 95.22 GiB seen",
    ("H200-SXM-141GB", "torch_total_gib"): "139.72, 139.80 and 139.81 GiB seen in out-of-memory messages",
    ("H200-NVL-141GB", "nvlink_gbs_bidir"): "over a bridge between two or four cards",
    ("GH200-96GB", "nvlink_gbs_bidir"): "NVLink-C2C to the Grace CPU",
    ("GH200-144GB", "memory_gb"): "stas00/ml-engineering has 141 GB",
    ("GH200-144GB", "nvlink_gbs_bidir"): "NVLink-C2C to the Grace CPU",
    ("B100", "memory_gb"): "llm-d-incubation/llm-d-planner has 80 GB, which is wrong",
    ("B200-SXM-180GB", "torch_total_gib"): "a CUDA device listing with 182642 MiB gives 178.36 GiB",
    ("B200-SXM-180GB", "mem_bw_gbs"): "sources disagree: 8000 GB/s in stas00/ml-engineering",
    ("B200-SXM-180GB", "pcie_gen"): "ai-dynamo/aiconfigurator assumes the rates of generation 6",
    ("B200-SXM-180GB", "pcie_gbs_per_direction"): "sources disagree: 128 GB/s in ai-dynamo/aiconfigurator",
    ("B300-SXM", "mem_bw_gbs"): "sources disagree: 8000 GB/s in stas00/ml-engineering",
    ("B300-SXM", "fp4_tflops"): "sources disagree: 12600 in stas00/ml-engineering",
    ("B300-SXM", "int8_tops"): "sources disagree: 4500 in stas00/ml-engineering",
    ("GB200", "nvlink_gbs_bidir"): "72 GPUs share one NVLink domain",
    ("GB300", "int8_tops"): "sources disagree: 5000 in stas00/ml-engineering",
    ("GB300", "nvlink_gbs_bidir"): "72 GPUs share one NVLink domain",
    ("GB10-DGX-Spark", "memory_gb"): "LPDDR5X that the CPU uses too",
    ("GB10-DGX-Spark", "torch_total_gib"): "the CPU takes part of it: 101.3 to 102.2 GiB were free at boot",
    ("GB10-DGX-Spark", "bf16_tflops"): "low confidence",
    ("GB10-DGX-Spark", "fp8_tflops"): "low confidence",
    ("GB10-DGX-Spark", "fp4_tflops"): "sold as 1000 with sparsity",
    ("Jetson-AGX-Orin-64GB", "int8_tops"): "sold as 275 with sparsity",
    ("Jetson-AGX-Thor-128GB", "torch_total_gib"): "low confidence",
    ("Jetson-AGX-Thor-128GB", "fp4_tflops"): "sold as 2070 with sparsity",
    ("MI210", "nvlink_gbs_bidir"): _IF + " bridge",
    ("MI250X", "memory_gb"): "the package of two dies; a device has half of it",
    ("MI250X", "mem_bw_gbs"): "half of the package's 3280 GB/s",
    ("MI250X", "bf16_tflops"): "half of the package's 383",
    ("MI250X", "int8_tops"): "half of the package's 383",
    ("MI250X", "nvlink_gbs_bidir"): _IF + ", the whole package",
    ("MI250X", "gpus_per_node"): "two devices for each of the 4 packages",
    ("MI300X", "memory_mib_smi"): "as rocm-smi and amd-smi show it",
    ("MI300X", "torch_total_gib"): "191.69 GiB also seen",
    ("MI300X", "bf16_tflops"): "the source's own summary table has 1300",
    ("MI300X", "nvlink_gbs_bidir"): _IF + ", seven links",
    ("MI325X", "nvlink_gbs_bidir"): _IF,
    ("MI350X", "nvlink_gbs_bidir"): _IF,
    ("MI355X", "nvlink_gbs_bidir"): _IF,
    ("Gaudi2", "nvlink_gbs_bidir"): "24 Ethernet links of 100 Gbit/s",
    ("Gaudi3", "nvlink_gbs_bidir"): "24 Ethernet links of 200 Gbit/s",
    ("Gaudi3", "bf16_tflops"): "at the running clock; the maker's white paper has 1835",
    ("Arc-Pro-B60", "pcie_gbs_per_direction"): "8 lanes",
    ("TPU-v5e", "nvlink_gbs_bidir"): "ICI",
    ("TPU-v5p", "nvlink_gbs_bidir"): "ICI",
    ("TPU-v6e", "nvlink_gbs_bidir"): "ICI",
    **{(name, "memory_gb"): _LARGEST for name in ("M2-Ultra", "M3-Max", "M3-Ultra", "M4-Pro", "M4-Max")},
}


class Slice(NamedTuple):
    """One MIG profile; memory in MiB, as the runtime (`total`) and nvidia-smi (`nvml`) show it."""

    profile: str
    memory_slices: int
    total_mib: int | None
    nvml_mib: int
    nvml_source: str
    total_source: str = "unverified"
    note: str | None = None


_A100_SMI = "nvidia-smi of a divided A100 80 GB, seen in public logs"
_A100_LGIP = "nvidia-smi mig -lgip of an A100 80 GB, seen in public logs"
_H100_LGIP = "jbarrow.ai field notes on MIG: nvidia-smi mig -lgip of an H100 80 GB"
_H200_LGIP = "NVIDIA/mig-parted issue 120: nvidia-smi mig -lgip of an H200"
_B200_LGIP = "NVIDIA/mig-parted pull requests 166 and 187: nvidia-smi mig -lgip of a B200"
_OOM = "out-of-memory message seen in public logs"
_OLDER = "older drivers show 39.25 GiB (40192 MiB)"
# Cards with the same chip and memory, whose slices have the same sizes.
MIG_TWINS = {"a100-sxm-80gb": ("NVIDIA A100 80GB PCIe",)}
MIG_SLICES: dict[str, tuple[Slice, ...]] = {
    "A100-SXM4-80GB": (
        Slice("1g.10gb", 1, None, 9728, _A100_SMI),
        Slice(
            "2g.20gb", 2, 19968, 19968, "XuehaiPan/nvitop pull request 8", _OOM, "the message names no card"
        ),
        Slice(
            "3g.40gb",
            4,
            40192,
            40192,
            _A100_SMI,
            _OOM,
            "the PCIe card with driver 570; newer drivers list 39.50 GiB",
        ),
        Slice(
            "4g.40gb",
            4,
            40448,
            40448,
            _A100_LGIP,
            "a public test report of the PCIe card: 42,412,802,048 bytes, driver 595.71",
            _OLDER,
        ),
        Slice("7g.80gb", 8, None, 80640, _A100_LGIP, note="78.75, 79.00 and 79.25 GiB seen, by driver"),
    ),
    "H100-SXM5-80GB": (
        Slice("1g.10gb", 1, None, 9984, _H100_LGIP),
        Slice("1g.20gb", 2, None, 20096, _H100_LGIP),
        Slice("2g.20gb", 2, None, 20096, _H100_LGIP),
        Slice("3g.40gb", 4, None, 40448, _H100_LGIP, note="39.38 GiB also seen"),
        Slice("4g.40gb", 4, None, 40448, _H100_LGIP, note="39.38 GiB also seen"),
        Slice("7g.80gb", 8, None, 81152, _H100_LGIP, note="79.12 GiB also seen"),
    ),
    "H200-SXM-141GB": (
        Slice("1g.18gb", 1, 16384, 16384, _H200_LGIP, "16.0 GiB in a public project's notes on its machine"),
        Slice("1g.35gb", 2, None, 33024, _H200_LGIP),
        Slice("2g.35gb", 2, None, 33024, _H200_LGIP),
        Slice("3g.71gb", 4, None, 71168, _H200_LGIP),
        Slice("4g.71gb", 4, None, 71168, _H200_LGIP),
        Slice("7g.141gb", 8, None, 143104, _H200_LGIP),
    ),
    "B200-SXM-180GB": (
        Slice(
            "1g.23gb", 1, None, 22528, _B200_LGIP, note="22.00 GiB in one listing, 20.50 GiB in a later one"
        ),
        Slice("1g.45gb", 2, None, 45312, _B200_LGIP),
        Slice("2g.45gb", 2, None, 45312, _B200_LGIP),
    ),
}
