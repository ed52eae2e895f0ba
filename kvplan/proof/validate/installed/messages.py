"""A child's messages, as values: read strictly, because a process of another project wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvplan.errors import CannotRunHere
from kvplan.files.gpus.nvml import Process
from kvplan.record import Json, field, record

Event = Json
"""A JSON object that a child sent."""
MAX_LINE = 1 << 23
"""Bytes of one line; a longer one is a broken child."""


@record()
class Seen:
    """One GPU as its driver describes it, None for what was not told. used: bytes that anybody held;
    processes: those that the driver names."""

    name: str
    total: int
    used: int | None = None
    processes: tuple[Process, ...] = ()
    compute_capability: tuple[int, int] | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None


@record()
class Told:
    """The driver's own words before the engine runs. devices: the GPUs that its process sees, in order."""

    driver: str | None = None
    runtime: str | None = None
    devices: tuple[Seen, ...] = ()


@record()
class Hello:
    """The installed engine and where it runs. nvml_total: bytes of the device; None: not told, or a CPU.
    server: what starts its server, after the interpreter. note: what of kvplan's driving was never tried.
    hardware: the driver's own words. flashinfer: its release, None where it is not installed."""

    version: str
    torch: str | None
    python: str
    device: str
    kind: str
    nvml_total: int | None = None
    server: tuple[str, ...] = ()
    note: str = ""
    hardware: Told = Told()
    flashinfer: str | None = None


@record()
class Group:
    """Layers with one block table, as the engine has them."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    window: int | None = None
    """tokens that its layers see, where the engine says so; 0: all"""


@record()
class Failure:
    """The error that ended the engine. traceback: its last lines."""

    stage: str
    type: str
    message: str
    traceback: tuple[str, ...] = ()

    @property
    def out_of_memory(self) -> bool:
        """Whether a device had no memory left: the error's own name or words."""
        text = f"{self.type}: {self.message}".lower()
        return "outofmemory" in text or "out of memory" in text or "alloc_failed" in text


@record()
class Measured:
    """All that was measured."""

    hello: Hello
    settings: Json = field(default_factory=dict, hash=False)
    """as the engine resolved them"""
    available: tuple[int, ...] = ()
    """bytes for the cache on each rank"""
    workers: tuple[Mapping[str, int | None], ...] = field(default=(), hash=False)
    """each rank's own figures (None: the platform has none)"""
    num_blocks: int | None = None
    groups: tuple[Group, ...] = ()
    requests: Json = field(default_factory=dict, hash=False)
    """what its block manager admitted"""
    running: int | None = None
    """how many its scheduler ran together"""
    kept: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    """bytes of the cache that it keeps without a pool, after requests of so many tokens. What was not
    reached is None or empty."""
    grown: int | None = None
    """bytes that other processes took of the GPUs meanwhile; None: nobody could tell"""
    failure: Failure | None = None
    stages: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The last one that began."""
        return self.stages[-1] if self.stages else "start"


def parse_line(line: bytes) -> Event | None:
    """One event; None for a line that is none (a library printed it)."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) and isinstance(data.get("event"), str) else None


def hello_of(event: Event) -> Hello:
    """Raises CannotRunHere(engine-failed) for a greeting that lacks something."""
    with _Read("hello"):
        return Hello(
            str(event["version"]),
            None if event.get("torch") is None else str(event["torch"]),
            str(event["python"]),
            str(event["device"]),
            str(event["kind"]),
            None if event.get("nvml_total") is None else int(event["nvml_total"]),
            tuple(str(word) for word in event.get("server") or ()),
            str(event.get("note") or ""),
            _told(event.get("hardware") or {}),
            None if event.get("flashinfer") is None else str(event["flashinfer"]),
        )


def _told(values: Event) -> Told:
    named = (values.get("driver"), values.get("runtime"))
    driver, runtime = (None if one is None else str(one) for one in named)
    return Told(driver, runtime, tuple(_seen(one) for one in values.get("devices") or ()))


def _seen(values: Event) -> Seen:
    def mode(name: str) -> bool | None:
        return None if values.get(name) is None else bool(values[name])

    others = values.get("processes") or ()
    major, minor = values.get("compute_capability") or (None, None)
    return Seen(
        str(values["name"]),
        int(values["total"]),
        None if values.get("used") is None else int(values["used"]),
        tuple(Process(int(pid), None if used is None else int(used)) for pid, used in others),
        None if major is None or minor is None else (int(major), int(minor)),
        mode("ecc"),
        mode("mig"),
        mode("persistence"),
    )


def failure_of(event: Event) -> Failure:
    with _Read("failed"):
        lines = tuple(str(line) for line in event.get("traceback", ()))
        return Failure(str(event["stage"]), str(event["type"]), str(event["message"]), lines)


def measured_of(hello: Hello, events: list[Event]) -> Measured:
    """The events of one run in their order. Raises CannotRunHere(engine-failed) for one that is malformed."""
    said = {str(event.get("of")): event.get("values") for event in events if event["event"] == "measured"}
    failed = [event for event in events if event["event"] == "failed"]
    cache: Event = said.get("cache") or {}
    with _Read("measured"):
        running = said.get("running")
        return Measured(
            hello,
            dict(said.get("settings") or {}),
            tuple(int(one) for one in said.get("available") or ()),
            tuple(_counts(one) for one in said.get("workers") or ()),
            None if cache.get("num_blocks") is None else int(cache["num_blocks"]),
            tuple(_group(one) for one in cache.get("groups", ())),
            dict(said.get("requests") or {}),
            None if running is None else int(running["running"]),
            _counts(said.get("kept") or {}),
            _counts(said.get("others") or {}).get("grown"),
            failure_of(failed[0]) if failed else None,
            tuple(str(event.get("name")) for event in events if event["event"] == "stage"),
        )


def _group(one: Event) -> Group:
    window = None if one.get("window") is None else int(one["window"])
    return Group(str(one["kind"]), int(one["layers"]), int(one["block_size"]), int(one["page_bytes"]), window)


def _counts(values: Event) -> dict[str, int | None]:
    return {str(name): None if value is None else int(value) for name, value in values.items()}


class _Read:
    """Turns what a malformed message raises into one clear error."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError)):
            raise CannotRunHere(
                "engine-failed",
                f"the engine's process said something that cannot be read ({self.what}: {error})",
                help="the engine's interpreter must run this kvplan's own file: --engine-python",
            ) from error
