"""The screens of ``kvplan list models`` and ``kvplan list gpus``: all of them, or one in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from kvplan.api.runs_on import RunsOn
from kvplan.engines.budget.parts import memory_of
from kvplan.files.cards.card import Weights
from kvplan.files.cards.index import CardSummary
from kvplan.files.hub.search import Found
from kvplan.gpu import UNVERIFIED, Gpu, under_wsl
from kvplan.model import Model
from kvplan.report.layout import BLANK, Piece, Screen, Span, columns, line, shorten, table, wrapped
from kvplan.report.notes import warning_lines
from kvplan.report.words import billions, count, engine_title, of_bytes, size_words
from kvplan.results import EngineRef
from kvplan.units import GB

_NAME_WIDTH = 32
_LEAST_FAMILIES = 12


def data_of(value: Any) -> Any:
    """Dataclasses, mappings, tuples and enums as plain data for JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: data_of(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): data_of(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [data_of(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


def models_screen(cards: Sequence[CardSummary], total: int) -> Screen:
    """One line a card: name, layers, longest request, families by number of layers."""
    facts: list[list[Piece]] = [[Span(word, "dim") for word in ("name", "layers", "tokens")]]
    facts += [
        [
            shorten(card.slug, _NAME_WIDTH),
            f"{card.num_layers:,}",
            f"{card.max_model_len:,}" if card.max_model_len else "",
        ]
        for card in cards
    ]
    left = table(facts, "lrr", gap="  ")
    room = columns() - 2 - max(len("".join(piece.text for piece in row)) for row in left)
    rows: Screen = left if cards else []
    if cards and room >= _LEAST_FAMILIES:
        right = [Span("families", "dim"), *(Span(shorten(_families(card.families), room)) for card in cards)]
        rows = [(*row, Span("  "), families) for row, families in zip(left, right)]
    names = sum(1 + len(card.variants) for card in cards)
    found = count(len(cards), "card") if len(cards) == total else f"{len(cards)} of {count(total, 'card')}"
    return [
        *wrapped(f"{found}, {count(names, 'model')} with the variants that share their layers."),
        BLANK,
        *rows,
        *([BLANK] if rows else []),
        line(Span("one in full: kvplan list models NAME   its cache: kvplan size NAME", "dim"), indent=1),
    ]


def found_screen(found: Found) -> Screen:
    """Models of the hub, one a line; those that kvplan knows need no network."""
    if not found.models:
        return wrapped(f"No: {found.hub} has no model with the words {found.search!r}.", style="bad")
    rows: list[list[Piece]] = [[Span(word, "dim") for word in ("name", "parameters", "downloads", "for", "")]]
    for one in found.models:
        marks = [*["card"] * one.has_card, *["gated"] * one.gated]
        rows.append(
            [
                one.id,
                "" if one.parameters is None else billions(one.parameters),
                "" if one.downloads is None else f"{one.downloads:,}",
                shorten(one.library or "", _LIBRARY_WIDTH),
                Span(", ".join(marks), "dim"),
            ]
        )
    name = next((one.id for one in found.models if not one.has_card), None)
    known = next((one.id for one in found.models if one.has_card), None)
    ways = [f"kvplan size {known}"] if known is not None else []
    ways += [f"kvplan size hf:{name} (reads the hub)"] if name is not None else []
    head = (
        f"{count(len(found.models), 'model')} of {found.hub} for {found.search!r}, the most downloaded first."
    )
    return [
        *wrapped(f"{head}, the most downloaded first."),
        BLANK,
        *table(rows, "lrrll", gap="  "),
        BLANK,
        *wrapped("; ".join(ways), style="dim", indent=1, first="next: "),
    ]


_LIBRARY_WIDTH = 14


def _families(families: Mapping[str, int]) -> str:
    return "+".join(sorted(families, key=lambda name: (-families[name], name)))


def model_screen(model: Model, card: CardSummary, weights: Weights) -> Screen:
    """One model: what its layers are, what else it is called, and where the facts come from."""
    rows: list[list[Piece]] = [
        ["card", card.slug],
        ["model type", model.model_type],
        ["longest request", count(model.max_model_len, "token") if model.max_model_len else "not stated"],
        ["dtype", model.dtype or "not stated"],
        ["weights", _weights(weights)],
    ]
    screen: Screen = [line(Span(model.id, "bold")), *table(rows, "ll")]
    screen += [BLANK, line(Span("layers", "bold"), indent=1)]
    kinds: list[list[Piece]] = [
        [f"{number:,}", f"× {layer.family}", Span(_numbers(layer.parts), "dim")]
        for layer, number in model.distinct().items()
    ]
    for row in kinds:
        screen += wrapped(f"{row[0]} {row[1]}: {row[2][0]}".rstrip(": "), indent=2, hang=4)
    for title, names in (("also called", card.aliases), ("variants", card.variants)):
        if names:
            screen += [BLANK, *wrapped(", ".join(names), indent=1, first=f"{title}: ", hang=4)]
    screen += [BLANK, *wrapped(model.provenance.how or model.source, style="dim", indent=1, first="from: ")]
    if model.warnings:
        screen += [BLANK, *warning_lines(model.warnings)]
    return [*screen, BLANK, line(Span(f"its cache: kvplan size {card.slug}", "dim"), indent=1)]


def _weights(weights: Weights) -> str:
    amount = sum(weights.bytes_by_dtype.values())
    if not amount:
        return "unknown" if not weights.parameters else f"{weights.parameters:,} parameters"
    return f"{size_words(amount)} ({', '.join(weights.bytes_by_dtype)}; from {weights.how})"


def _numbers(parts: Sequence[Any]) -> str:
    return "; ".join(
        ", ".join(
            f"{entry.name} {value:,}" if isinstance(value, int) else f"{entry.name} {value}"
            for entry in fields(part)
            if (value := getattr(part, entry.name)) not in (None, False, 0)
        )
        for part in parts
    )


def gpus_screen(gpus: Sequence[Gpu], total: int, hidden: int) -> Screen:
    """One line a GPU; ``hidden`` MIG slices are only mentioned."""
    heads = ("name", "sold as", "CUDA total", "GB/s", "W", "capability")
    rows: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    rows += [
        [
            shorten(gpu.slug, _NAME_WIDTH),
            gpu.memory_marketing,
            _total(gpu),
            f"{gpu.bandwidth_bytes_per_second // GB:,}" if gpu.bandwidth_bytes_per_second else "",
            f"{gpu.power_watts:,g}" if gpu.power_watts else "",
            _capability(gpu),
        ]
        for gpu in gpus
    ]
    shown = (
        count(len(gpus), "GPU") if len(gpus) + hidden == total else f"{len(gpus)} of {count(total, 'GPU')}"
    )
    also = f", and {count(hidden, 'MIG slice')} (kvplan list gpus mig)" if hidden else ""
    return [
        *wrapped(f"{shown}{also}."),
        BLANK,
        *table(rows, "lrrrrr", gap="  ", spare=("sold as", "W", "capability")),
        BLANK,
        line(Span("one in full: kvplan list gpus NAME", "dim"), indent=1),
    ]


def _total(gpu: Gpu) -> Piece:
    """The total that the runtime reports; an estimate from GPUs of its class where nobody published it."""
    if gpu.is_announced:
        return Span("announced", "dim")
    if gpu.memory_total_bytes:
        return size_words(gpu.memory_total_bytes)
    total, lines, _ = memory_of(gpu)
    if total is None:
        return Span("unknown", "dim")
    return Span(f"about {size_words(total - sum(one.bytes for one in lines))}", "dim")


def _capability(gpu: Gpu) -> str:
    if gpu.compute_capability is not None:
        return ".".join(str(number) for number in gpu.compute_capability)
    return gpu.device_target or ""


def gpu_screen(gpu: Gpu, engines: Sequence[RunsOn] = ()) -> Screen:
    """One GPU: every figure, then its source or that nobody checked it; what each engine serves there."""
    screen: Screen = [line(Span(gpu.name, "bold"), Span(f"   {gpu.slug}", "dim"))]
    if gpu.note:
        screen += wrapped(gpu.note, indent=1)
    screen.append(BLANK)
    for name, shown in gpu_figures(gpu):
        screen.append(line(f"{name:<27}  {shown}", indent=1))
        source = gpu.provenance.get(name, UNVERIFIED)
        style = "warn" if source == UNVERIFIED else "dim"
        screen += wrapped(source, style=style, indent=1, first=" " * 29)
        if name in gpu.notes:
            screen += wrapped(gpu.notes[name], style="dim", indent=1, first=" " * 29)
    names = [name for name in (*gpu.aliases, *gpu.nvml_names) if name != gpu.slug]
    if names:
        screen += [BLANK, *wrapped(", ".join(names), indent=1, first="also called: ", hang=4)]
    if " RTX " in gpu.name and (seen := under_wsl(gpu)).memory_total_bytes != gpu.memory_total_bytes:
        text = f"{seen.slug}, {size_words(seen.memory_total_bytes or 0)} in all"
        screen += [BLANK, *wrapped(text, indent=1, first="under WSL: ", hang=4)]
    if engines:
        screen.append(BLANK)
    for one in engines:
        title = engine_title(EngineRef(one.engine, one.version))
        screen += wrapped(_serves(one), indent=1, first=f"{title}: ", hang=4)
    return screen


def _serves(one: RunsOn) -> str:
    if one.why_not is not None:
        return f"no: {one.why_not}"
    parts = [
        f"computes in {one.dtype}" if one.dtype else "",
        f"cache {', '.join(one.kv_dtypes)}" if one.kv_dtypes else "",
        f"weights {', '.join(one.weights)}" if one.weights else "",
    ]
    return "; ".join(part for part in parts if part) or "yes"


def gpu_figures(gpu: Gpu) -> list[tuple[str, str]]:
    figures: list[tuple[str, str]] = []
    always = ("memory_marketing", "memory_total_bytes", "memory_nvml_bytes", "bandwidth_bytes_per_second")
    figures += [(name, _figure(name, getattr(gpu, name))) for name in always]
    if gpu.compute_capability is not None:
        figures.append(("compute_capability", _capability(gpu)))
    if gpu.multiprocessors is not None:
        figures.append(("multiprocessors", _figure("multiprocessors", gpu.multiprocessors)))
    if gpu.device_target is not None:
        figures.append(("device_target", gpu.device_target))
    figures.append(("power_watts", "unknown" if gpu.power_watts is None else f"{gpu.power_watts:,g} W"))
    figures += [(f"dense_tflops.{name}", f"{value:,} TFLOPS") for name, value in gpu.dense_tflops.items()]
    for name in ("fp8_tensor_cores", "fp4_tensor_cores"):
        if getattr(gpu, name) is not None:
            figures.append((name, "yes" if getattr(gpu, name) else "no"))
    for name in ("nvlink_bytes_per_second", "pcie_generation", "pcie_bytes_per_second", "gpus_per_node"):
        if getattr(gpu, name) is not None:
            figures.append((name, _figure(name, getattr(gpu, name))))
    return figures


def _figure(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if not isinstance(value, int):
        return str(value)
    if name.endswith("_bytes"):
        return f"{of_bytes(value)}   {size_words(value)}"
    return f"{value:,} B/s" if name.endswith("per_second") else f"{value:,}"
