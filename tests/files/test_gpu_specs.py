from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kvplan.errors import KvplanError
from kvplan.files.gpus.file import gpu_from_located
from kvplan.files.gpus.find import load_gpu
from kvplan.files.gpus.listed import build_index, index_text, list_gpus, load_gpu_file
from kvplan.files.gpus.schema import gpu_spec_schema, lint_gpu_spec
from kvplan.files.yaml.strict import load_yaml, load_yaml_file
from kvplan.gpu import UNVERIFIED, Gpu
from kvplan.units import GB, GIB, MIB
from scripts.gpu_spec_tables import CARDS
from tests.laws.sampling import for_each
from tests.recorded import record

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "gpu_specs").glob("*.yaml"))
ALL = list_gpus()

MINIMAL = """\
slug: mine-1gb
name: My GPU
vendor: me
arch: Mine
memory_marketing: {value: "1 GB", source: unverified}
memory_total_bytes: {value: 1000000000, source: cudaMemGetInfo}
memory_nvml_bytes: {value: null, source: unverified, note: no tool}
bandwidth_bytes_per_second: {value: 5000000000, source: unverified}
"""


def spec_error(text: str) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        gpu_from_located(load_yaml(text, name="mine.yaml"))
    return caught.value


def test_the_index_is_not_stale() -> None:
    folder = ROOT / "gpu_specs"
    expected = index_text(build_index(folder))
    actual = (folder / "index.json").read_text(encoding="utf-8")
    assert actual == expected, "run: python -m scripts.make_gpu_specs --index-only"


@for_each("path", SPECS, ids=lambda path: path.stem)
def test_specs_keep_to_the_schema(path: Path) -> None:
    located = load_yaml_file(path)
    assert [error.format() for error in lint_gpu_spec(located)] == []
    assert gpu_from_located(located).slug == path.stem


def test_power_is_known_of_nearly_every_card() -> None:
    """TPUs, Macs and most accelerators of clouds have no published limit; a MIG slice has none of its own."""
    whole = [
        gpu
        for gpu in ALL
        if not gpu.is_mig_slice and gpu.vendor in ("nvidia", "amd") and not gpu.is_announced
    ]
    assert [gpu.slug for gpu in ALL if "power_watts" not in gpu.provenance] == []
    unknown = [gpu.slug for gpu in whole if gpu.power_watts is None]
    assert len(unknown) <= 5, unknown
    assert all(10 <= gpu.power_watts <= 2500 for gpu in whole if gpu.power_watts)
    assert load_gpu("h100").power_watts == 700
    # A half of the module, and a quarter of the board.
    assert (load_gpu("mi250x").power_watts, load_gpu("a16").power_watts) == (280, 62.5)


def test_there_are_enough_gpus() -> None:
    whole = [gpu for gpu in ALL if not gpu.is_mig_slice]
    assert len(whole) >= 160
    assert {gpu.mig_parent for gpu in ALL} >= {
        "a100-sxm-80gb",
        "h100-sxm-80gb",
        "h200-sxm-141gb",
        "b200-sxm-180gb",
    }


@for_each("gpu", ALL, ids=lambda gpu: gpu.slug)
def test_figures_are_plausible(gpu: Gpu) -> None:
    """Slips of unit or of a digit show as ratios that no GPU has."""
    sold = int(gpu.memory_marketing.split()[0]) * GB
    device = sold // 2 if gpu.slug == "mi250x-64gb" else sold
    for figure in (gpu.memory_total_bytes, gpu.memory_nvml_bytes):
        if figure is not None and not gpu.is_unified_memory:
            assert device * 85 // 100 < figure <= device * 110 // 100
    if gpu.memory_total_bytes is not None and gpu.memory_nvml_bytes is not None:
        assert gpu.memory_total_bytes <= gpu.memory_nvml_bytes
        assert gpu.memory_nvml_bytes - gpu.memory_total_bytes < 4 * GIB
    if gpu.bandwidth_bytes_per_second is not None:
        assert 60 * GB <= gpu.bandwidth_bytes_per_second <= (25_000 if gpu.is_announced else 10_000) * GB
    if gpu.pcie_bytes_per_second is not None:
        assert gpu.pcie_generation in {3, 4, 5, 6}
    assert (gpu.compute_capability is not None) == (gpu.vendor == "nvidia")
    assert not (gpu.vendor == "nvidia" and gpu.device_target)
    assert gpu.bandwidth_bytes_per_second is not None or gpu.is_mig_slice or gpu.is_announced


@for_each("gpu", ALL, ids=lambda gpu: gpu.slug)
def test_every_figure_has_a_source(gpu: Gpu) -> None:
    figures = {"memory_total_bytes", "memory_nvml_bytes", "bandwidth_bytes_per_second", "memory_marketing"}
    figures |= {f"dense_tflops.{dtype}" for dtype in gpu.dense_tflops}
    assert figures <= set(gpu.provenance)
    assert all(gpu.provenance.values())
    assert set(gpu.notes) <= set(gpu.provenance)
    if gpu.memory_total_bytes is None:
        assert gpu.provenance["memory_total_bytes"] == UNVERIFIED
        assert "memory_total_bytes" in gpu.notes
        assert not gpu.is_verified("memory_total_bytes")


def test_each_family_has_one_default() -> None:
    families = [family for gpu in ALL for family in gpu.default_for]
    assert len(families) == len(set(families))
    assert all(load_gpu(family).slug.startswith(f"{family}-") for family in families)
    assert load_gpu("h100").is_verified("memory_total_bytes")


def test_known_memory_figures() -> None:
    h200 = load_gpu("h200")
    assert h200.memory_total_bytes == 150_109_880_320  # torch prints 143156MB
    assert h200.memory_nvml_bytes == 143771 * MIB
    assert h200.compute_capability == (9, 0)
    assert h200.dense_tflops["bf16"] == 989
    assert load_gpu("rtx-3090").nvlink_bytes_per_second == 112_500_000_000
    assert load_gpu("gb10").is_unified_memory
    assert load_gpu("b300").memory_total_bytes is None
    assert "4500" in load_gpu("b300").notes["dense_tflops.int8"]
    assert load_gpu("mi300x").device_target == "gfx942"
    assert load_gpu("a100-4g.40gb").memory_total_bytes == 42_412_802_048


def test_slices_belong_to_a_gpu() -> None:
    for gpu in ALL:
        if gpu.mig_parent is not None:
            parent = load_gpu(gpu.mig_parent)
            assert gpu.slug == f"{parent.slug}-mig-{gpu.mig_profile}"
            assert gpu.compute_capability == parent.compute_capability


def test_a_gpu_is_a_value() -> None:
    gpu = load_gpu("h100")
    assert gpu == load_gpu_file(ROOT / "gpu_specs" / "h100-sxm-80gb.yaml")
    assert hash(gpu) == hash(dataclasses.replace(gpu))
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.slug = "other"  # type: ignore[misc]


def test_a_spec_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    gpu = load_gpu(str(path))
    assert (gpu.slug, gpu.memory_total_bytes, gpu.memory_nvml_bytes) == ("mine-1gb", 10**9, None)
    assert gpu.notes == {"memory_nvml_bytes": "no tool"}
    assert lint_gpu_spec(load_yaml_file(path)) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "part"),
    [
        ("arch: Mine\n", "", "missing-key", "`arch`"),
        ("arch: Mine\n", "arch: Mine\narhc: x\n", "unknown-key", "`arhc`"),
        ("source: cudaMemGetInfo", "sorce: x", "unknown-key", "`sorce` in `memory_total_bytes`"),
        (", source: cudaMemGetInfo", "", "missing-key", "`memory_total_bytes.source`"),
        ("value: 1000000000, ", "", "missing-key", "memory_total_bytes.value`"),
        ("value: 1000000000", "value: 1.5", "invalid-gpu-spec", "a whole number"),
        ("value: 1000000000", "value: -1", "invalid-gpu-spec", "greater than 0"),
        ("value: 1000000000", "value: true", "invalid-gpu-spec", "a whole number"),
        ("{value: 5000000000, source: unverified}", "5000000000", "invalid-gpu-spec", "`key: value` lines"),
        ("arch: Mine", "arch: 5", "invalid-gpu-spec", "this must be text"),
        ("arch: Mine", "arch: Mine\naliases: x", "invalid-gpu-spec", "a list"),
        ("arch: Mine", "arch: Mine\naliases: [1]", "invalid-gpu-spec", "this must be text"),
        ("arch: Mine", "arch: Mine\nmig: {parent: a}", "missing-key", "mig.profile"),
        ("arch: Mine", "arch: Mine\ndense_tflops: 5", "invalid-gpu-spec", "dense_tflops"),
        ("arch: Mine", "arch: Mine\ndense_tflops: {int4: 5}", "unknown-key", "int4"),
        ("arch: Mine", 'arch: Mine\ncompute_capability: {value: "9", source: x}', "invalid-gpu-spec", "form"),
        ("arch: Mine", "arch: Mine\ncompute_capability: {value: 9.0, source: x}", "invalid-gpu-spec", "text"),
        (MINIMAL, "- 1", "yaml-not-a-mapping", "GPU spec"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(old: str, new: str, code: str, part: str) -> None:
    text = MINIMAL.replace(old, new)
    assert text != MINIMAL
    error = spec_error(text)
    assert error.code == code
    assert part in error.message
    assert error.where is not None
    assert error.where.startswith("mine.yaml:")
    # The fast path and the schema refuse the same files.
    if code != "yaml-not-a-mapping":
        assert lint_gpu_spec(load_yaml(text, name="mine.yaml"))


def test_an_index_with_two_owners_of_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine-1gb.yaml").write_text(MINIMAL, encoding="utf-8")
    assert set(build_index(tmp_path)) == {"mine-1gb", "my-gpu"}
    other = MINIMAL.replace("mine-1gb", "other-1gb")
    (tmp_path / "other-1gb.yaml").write_text(other, encoding="utf-8")
    assert build_index(tmp_path)["my-gpu"] == ["mine-1gb", "other-1gb"], "one card, two memories"
    usual = other.replace("arch: Mine", "arch: Mine\ndefault_for: [other]")
    (tmp_path / "other-1gb.yaml").write_text(usual, encoding="utf-8")
    assert build_index(tmp_path)["my-gpu"] == "other-1gb"
    named = other.replace("My GPU", "Its GPU").replace("arch: Mine", 'arch: Mine\naliases: ["my gpu"]')
    (tmp_path / "other-1gb.yaml").write_text(named, encoding="utf-8")
    with pytest.raises(KvplanError, match="means both"):
        build_index(tmp_path)
    (tmp_path / "other-1gb.yaml").rename(tmp_path / "wrong.yaml")
    with pytest.raises(KvplanError, match="holds the GPU"):
        build_index(tmp_path)


def test_totals_under_other_drivers_are_of_the_same_device() -> None:
    """Within a fiftieth of the listed one, another one, and once each."""
    several = [gpu for gpu in list_gpus() if gpu.memory_totals_seen]
    assert {"a100-sxm-80gb", "gb10-128gb"} <= {gpu.slug for gpu in several}
    for gpu in several:
        assert gpu.memory_total_bytes is not None
        seen = [gpu.memory_total_bytes, *gpu.memory_totals_seen]
        assert len(set(seen)) == len(seen)
        assert max(seen) - min(seen) <= gpu.memory_total_bytes // 50


def test_the_schema_is_json_and_closed() -> None:
    schema = gpu_spec_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["additionalProperties"] is False
    assert {"slug", "memory_total_bytes", "dense_tflops"} <= set(schema["properties"])


PRINTED_SINCE = {"A100-PCIe-40GB": 39.49, "A100-SXM4-40GB": 39.49, "A100-SXM4-80GB": 79.25, "GB300": 277.04}
"""GiB that start-ups of vLLM 0.22 and later print, of drivers newer than those of the collected facts."""


def test_specs_agree_with_the_facts() -> None:
    """What was collected of each card (scripts/record_published.py) is what its spec says."""
    facts = record("gpu_facts")
    assert set(facts) == set(CARDS)
    for name, fact in facts.items():
        gpu = load_gpu(CARDS[name].slug)
        share = 2 if name == "MI250X" else 1
        assert gpu.vendor == fact["vendor"]
        assert gpu.bandwidth_bytes_per_second == round(fact["mem_bw_gbs"] * GB) // share
        mib, total = fact["memory_mib_smi"], PRINTED_SINCE.get(name, fact["torch_total_gib"])
        assert gpu.memory_nvml_bytes == (None if mib is None else mib * MIB)
        assert (gpu.memory_total_bytes is None) == (total is None)
        if total is not None and gpu.memory_total_bytes is not None:
            assert abs(gpu.memory_total_bytes - total * GIB) < GIB / 100
