"""The screen of ``kvplan doctor``."""

from __future__ import annotations

from kvplan.engines.folders import title_of
from kvplan.record import Json
from kvplan.report.layout import BLANK, Piece, Screen, Span, line, table, wrapped
from kvplan.report.words import count, size_words


def doctor_screen(data: Json) -> Screen:
    """The answer first: what this is and whether a GPU can be read; then the details for a bug report."""
    return [
        *_sentence(data),
        BLANK,
        *_packages(data),
        BLANK,
        *_gpus(data["gpus"]),
        BLANK,
        *_rules(data),
        BLANK,
        *_settings(data),
        BLANK,
        line(Span("more:   kvplan doctor --json (for a bug report)", "dim"), indent=1),
    ]


def _sentence(data: Json) -> Screen:
    missing = [
        name for name, packages in data["extras"].items() if any(found is None for found in packages.values())
    ]
    extras = "every extra is installed" if not missing else f"without the extras {', '.join(missing)}"
    return wrapped(
        f"kvplan {data['kvplan']} on {data['implementation']} {data['python']}, {data['platform']}: {extras}."
    )


def _packages(data: Json) -> Screen:
    rows: list[list[Piece]] = [[Span("packages", "bold")]]
    rows += [[name, found or "not installed"] for name, found in data["packages"].items()]
    for extra, packages in data["extras"].items():
        rows += [
            [name, found or Span(f"not installed: pip install 'kvplan[{extra}]'", "dim")]
            for name, found in packages.items()
        ]
    return table(rows, "ll")


def _gpus(gpus: Json) -> Screen:
    if gpus["error"] is not None:
        return [line(Span("GPUs", "bold"), indent=1), *wrapped(gpus["error"], indent=1)]
    driver = f", driver {gpus['driver']}" if gpus["driver"] else ""
    rows: list[list[Piece]] = [[Span(f"GPUs{driver}", "bold")]]
    for device in gpus["devices"]:
        capability = device["compute_capability"]
        rows.append(
            [
                device["name"],
                size_words(device["memory_bytes"]) if device["memory_bytes"] is not None else "not told",
                f"capability {capability}" if capability else "",
            ]
        )
    return table(rows, "lrl") if gpus["devices"] else [*table(rows, "l"), line("none", indent=1)]


def _rules(data: Json) -> Screen:
    rows: list[list[Piece]] = [[Span("data and rules", "bold")]]
    for name, title, one in (("model_cards", "model cards", "card"), ("gpu_specs", "GPU specs", "file")):
        entry = data["data"][name]
        rows.append([title, f"{count(entry['count'], one)}, {entry['fingerprint']}"])
    for name, versions in data["engines"].items():
        shown = versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
        rows.append([title_of(name), shown])
    return table(rows, "ll")


def _settings(data: Json) -> Screen:
    config, environment = data["config"], data["environment"]
    screen = [line(Span("settings in force", "bold"), indent=1)]
    if config["error"] is not None:
        screen += wrapped(f"config file: {config['error']}", style="bad", indent=1)
    elif config["path"] is None:
        screen.append(line("config file: none", indent=1))
    else:
        screen += wrapped(f"config file: {config['path']}", indent=1)
        screen += [line(f"{name}: {value}", indent=2) for name, value in config["values"].items()]
    screen += [line(f"{name}={value}", indent=1) for name, value in environment.items()]
    if not environment:
        screen.append(line("KVPLAN_*: none", indent=1))
    return screen
