"""Write `gpu_specs/*.yaml` and its index from a table of GPU facts.

    python -m scripts.make_gpu_specs FACTS.yaml [--out gpu_specs]

The facts have, for each GPU, figures of the form {value, source, note}. After the first run the spec files
are the source of truth: correct them by hand, then write the index again with

    python -m scripts.make_gpu_specs --index-only
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from kvplan.errors import KvplanError
from kvplan.files.gpus.listed import INDEX, build_index, index_text
from kvplan.files.yaml.scalars import read_plain
from kvplan.units import GB, GIB, MIB
from scripts.gpu_spec_tables import (
    CARD_NOTES,
    CARDS,
    FP16_TFLOPS,
    MIG_SLICES,
    MIG_TWINS,
    NOTES,
    UNIFIED,
    Card,
    Slice,
)

UNVERIFIED = "unverified"
NOT_PUBLISHED = "no published figure was found"
TFLOPS = {"bf16": "bf16_tflops", "fp8": "fp8_tflops", "fp4": "fp4_tflops", "int8": "int8_tops"}
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ()/._-]*")

# Finer than the facts: whole MiB, as torch prints the properties of a device.
SHARPER_MIB = {"H200-SXM-141GB": (143156, "torch device properties in a public repository: 143156MB")}

Figure = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("facts", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "gpu_specs")
    parser.add_argument("--index-only", action="store_true", help="leave the specs alone, write the index")
    options = parser.parse_args()
    if not options.index_only:
        if options.facts is None:
            parser.error("give the facts file, or --index-only")
        options.out.mkdir(exist_ok=True)
        facts = yaml.safe_load(options.facts.read_text(encoding="utf-8"))
        for slug, spec in specs(facts):
            write(options.out / f"{slug}.yaml", "\n".join(emit(spec)) + "\n")
    try:
        write(options.out / INDEX, index_text(build_index(options.out)))
    except KvplanError as error:
        parser.exit(2, f"{error.format()}\n")


def write(path: Path, text: str) -> None:
    # Bytes, so that Windows writes the same file.
    path.write_bytes(text.encode())


def specs(facts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each spec, whole cards first."""
    sources = {key: short_source(text) for key, text in facts["sources"].items()}
    for row in facts["gpus"]:
        card = CARDS[row["name"]]
        spec = card_spec(row, card, sources)
        yield card.slug, spec
        for part in MIG_SLICES.get(row["name"], ()):
            yield f"{card.slug}-mig-{part.profile}", slice_spec(part, card, spec)


def card_spec(row: dict[str, Any], card: Card, sources: dict[str, str]) -> dict[str, Any]:
    """One row of the facts in the layout of a spec file."""
    share = 2 if row["name"] == "MI250X" else 1

    def figure(key: str, convert: Any) -> Figure | None:
        fact = row.get(key)
        if fact is None:
            return None
        source = sources.get(fact["source"], fact["source"])
        return tidy(convert(fact["value"]), source, NOTES.get((row["name"], key)))

    def rate(value: Any) -> int:
        return int(exact(value) * GB) // share

    def number(value: Any) -> float | int:
        shared = exact(value) / share
        return int(shared) if shared == shared.to_integral_value() else float(shared)

    unknown = tidy(None, UNVERIFIED, NOT_PUBLISHED)
    tflops = {dtype: figure(key, number) for dtype, key in TFLOPS.items()}
    if row["name"] in FP16_TFLOPS:
        tflops = {"fp16": tidy(number(FP16_TFLOPS[row["name"]]), UNVERIFIED), **tflops}
    is_nvidia = row["vendor"] == "nvidia"
    nvml_names = card.nvml_names or ((card.name,) if is_nvidia else ())
    return {
        "slug": card.slug,
        "name": card.name,
        "vendor": row["vendor"],
        "arch": row["arch"],
        "note": CARD_NOTES.get(row["name"]),
        "aliases": list(card.aliases),
        "nvml_names": list(nvml_names),
        "default_for": list(card.default_for),
        "unified_memory": row["name"] in UNIFIED,
        "memory_marketing": figure("memory_gb", lambda gb: f"{gb} GB"),
        "memory_total_bytes": total_memory(row, sources) or unknown,
        "memory_nvml_bytes": figure("memory_mib_smi", lambda mib: mib * MIB) or unknown,
        "bandwidth_bytes_per_second": figure("mem_bw_gbs", rate) or unknown,
        "compute_capability" if is_nvidia else "device_target": figure("compute_capability", str),
        "dense_tflops": tflops,
        "fp8_tensor_cores": figure("fp8_tensor", bool),
        "fp4_tensor_cores": figure("fp4_tensor", bool),
        "interconnect": {
            "nvlink_bytes_per_second": figure("nvlink_gbs_bidir", lambda gbs: int(exact(gbs) * GB)),
            "pcie_generation": figure("pcie_gen", int),
            "pcie_bytes_per_second": figure("pcie_gbs_per_direction", lambda gbs: int(exact(gbs) * GB)),
        },
        "gpus_per_node": figure("gpus_per_node", lambda count: count * share),
    }


def total_memory(row: dict[str, Any], sources: dict[str, str]) -> Figure | None:
    """The runtime's total in bytes, with a note that says how exactly it is known."""
    note = NOTES.get((row["name"], "torch_total_gib"))
    if row["name"] in SHARPER_MIB:
        mib, source = SHARPER_MIB[row["name"]]
        return tidy(mib * MIB, source, join("known to 1 MiB", note))
    fact = row["torch_total_gib"]
    if fact is None:
        return None
    gib = exact(fact["value"])
    # Logs print two decimals; a figure from memory is as exact as it was typed.
    decimals = max(0 if fact["source"] == UNVERIFIED else 2, -int(gib.as_tuple().exponent))
    half = Decimal(5) / Decimal(10) ** (decimals + 1)
    low, high = (int((gib + sign * half) * GIB) for sign in (-1, 1))
    known = f"read as {gib:.{decimals}f} GiB, so between {low:,} and {high:,} bytes"
    return tidy(round(gib * GIB), sources.get(fact["source"], fact["source"]), join(known, note))


def slice_spec(part: Slice, card: Card, parent: dict[str, Any]) -> dict[str, Any]:
    """A MIG profile as a device of its own."""
    total = None if part.total_mib is None else part.total_mib * MIB
    total_note = part.note
    if total is None:
        total_note = (
            "not published for this profile; where a slice's runtime total was published, "
            "it is the figure of nvidia-smi"
        )
    family = card.default_for[0]
    return {
        "slug": f"{card.slug}-mig-{part.profile}",
        "name": f"{card.name} MIG {part.profile}",
        "vendor": parent["vendor"],
        "arch": parent["arch"],
        "note": f"A MIG slice with {part.memory_slices} of the 8 memory slices of its GPU.",
        "aliases": [f"{family}-{part.profile}", f"{family}-mig-{part.profile}"],
        "nvml_names": [f"{name} MIG {part.profile}" for name in (card.name, *MIG_TWINS.get(card.slug, ()))],
        "default_for": [],
        "unified_memory": False,
        "mig": {"parent": card.slug, "profile": part.profile},
        "memory_marketing": tidy(re.sub(r".*\.(\d+)gb", r"\1 GB", part.profile), "NVIDIA MIG user guide"),
        "memory_total_bytes": tidy(total, part.total_source, total_note),
        "memory_nvml_bytes": tidy(part.nvml_mib * MIB, part.nvml_source, part.note),
        "bandwidth_bytes_per_second": tidy(None, UNVERIFIED, "not published for MIG slices"),
        "compute_capability": parent["compute_capability"],
        "fp8_tensor_cores": parent["fp8_tensor_cores"],
        "fp4_tensor_cores": parent["fp4_tensor_cores"],
    }


def exact(value: Any) -> Decimal:
    """A figure as it was written: 112.5 is not the float nearest to it."""
    return Decimal(str(value))


def short_source(text: str) -> str:
    """`owner/repo` with the file or issue; what follows is left to the facts."""
    short = re.split(r" \(|, which|: ", text, maxsplit=1)[0]
    short = re.sub(r", \S*/systems/<gpu>\.yaml", " systems/*.yaml", short)
    return re.sub(r" at commit ([0-9a-f]{7})[0-9a-f]*", r" @ \1", short).replace(", ", " ")


def join(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


def tidy(value: Any, source: str, note: str | None = None) -> Figure:
    return {"value": value, "source": source, **({"note": note} if note else {})}


def emit(mapping: dict[str, Any], indent: str = "") -> Iterator[str]:
    """YAML lines; absent values, empty lists and empty groups are left out."""
    for key, value in mapping.items():
        if isinstance(value, dict):
            inner = list(emit(value, indent + "  "))
            if inner:
                yield f"{indent}{key}:"
                yield from inner
        elif isinstance(value, list):
            if value:
                yield f"{indent}{key}: [{', '.join(map(scalar, value))}]"
        elif value is not None or key == "value":
            yield f"{indent}{key}: {scalar(value)}"


def scalar(value: Any) -> str:
    """A scalar that the strict reader reads back as the same value."""
    if isinstance(value, str):
        is_plain = PLAIN.fullmatch(value) and value == value.strip() and read_plain(value) == value
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


if __name__ == "__main__":
    main()
