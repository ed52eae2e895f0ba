"""The workload of a plan file: lengths, percentiles, histograms and traces as request shapes.

What building a plan needs of its file: the complaints that are kept, and the paths in it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.files.plans.merge import Files, directory_of
from kvplan.files.plans.schema import (
    PERCENTILES,
    HistogramEntry,
    PercentileEntry,
    PercentilesEntry,
    PlanFile,
    WorkloadEntry,
)
from kvplan.files.plans.values import some_tokens, whole
from kvplan.files.traces.lengths import read_lengths
from kvplan.files.yaml.marks import Located
from kvplan.files.yaml.marks import Path as Place
from kvplan.plans.joint import combined, from_percentiles
from kvplan.plans.serve import EngineFlags
from kvplan.plans.workload import Shape, Workload


class Parts:
    """Collects what is wrong with one plan while its parts are built."""

    def __init__(
        self, located: Located, file: PlanFile, engine_of: Callable[[str], EngineFlags], files: Files
    ) -> None:
        self.located, self.file, self.engine_of, self.files = located, file, engine_of, files
        self.errors: list[KvplanError] = []
        self.used: list[str] = []
        self.notes: list[str] = []

    def attempt(self, call: Callable[[], Any], place: Place, *, at_key: bool = False) -> Any:
        """The result of ``call``; its complaint gets the place and is kept, then None."""
        try:
            return call()
        except KvplanError as error:
            self.fail(error, place, at_key=at_key)
            return None

    def fail(self, error: KvplanError, place: Place, *, at_key: bool = False) -> None:
        where = self.located.where(place, at_key=at_key)
        places = (where, *(one for one in error.places if one != where))
        self.errors.append(
            KvplanError(
                error.code, error.message, where=places, detail=error.detail, help=error.help,
                exit_code=error.exit_code,
            )
        )  # fmt: skip

    def beside(self, text: str, place: Place) -> Path:
        """A path as it is meant: from the folder of the file that the value stands in."""
        node = self.located.node(place)
        path = (directory_of(node) if node is not None else Path()) / text
        self.files.bring(path)
        return path

    def missing(self, name: str, place: Place, *others: str) -> None:
        """The complaint about a key that is not there; place: the key that asks for it."""
        ways = " or ".join(f"`{key}:`" for key in (name.rpartition(".")[2], *others))
        error = self.located.error(
            "missing-key", f"the key `{name}` is missing", place, at_key=True, help=f"add {ways}"
        )
        self.errors.append(error)


class WorkloadParts(Parts):
    """Builds the workload of one plan."""

    def workload(self, entry: WorkloadEntry) -> Workload | None:
        shapes = self.trace(entry) if entry.trace is not None else self.lengths(entry)
        if shapes is None:
            return None
        if entry.shared_prefix_tokens > max(shape.input_tokens for shape in shapes):
            self.fail(
                KvplanError("invalid-plan", "the shared prefix is longer than every prompt"),
                ("workload", "shared_prefix_tokens"),
            )
        for name in ("burstiness", "seed"):
            if name in entry.model_fields_set and (entry.trace or entry.requests_per_second is None):
                said = "has times of its own" if entry.trace else "does not say how many requests come"
                wrong = f"{name} is of arrivals that are drawn at a rate, and the workload {said}"
                self.fail(KvplanError("invalid-plan", wrong), ("workload", name))
        for name in ("ttft", "tpot"):
            loads = (entry.requests_per_second, entry.requests_in_flight, entry.trace)
            if getattr(entry, name) is not None and not any(loads):
                self.fail(
                    KvplanError(
                        "invalid-plan",
                        f"{name} is a target under a load: say requests_in_flight, requests_per_second or a"
                        " trace",
                    ),
                    ("workload", name),
                )
        return Workload(
            shapes=shapes,
            requests_in_flight=entry.requests_in_flight,
            requests_per_second=entry.requests_per_second,
            burstiness=Fraction(1) if entry.burstiness is None else entry.burstiness,
            seed=entry.seed,
            ttft_seconds=entry.ttft or self.limit("ttft"),
            tpot_seconds=entry.tpot or self.limit("tpot"),
            shared_prefix_tokens=entry.shared_prefix_tokens,
            acceptance=None if entry.acceptance is None else str(entry.acceptance),
            samples=entry.samples,
            trace=entry.trace,
            trace_format=entry.trace_format,
            trace_columns=_columns(entry),
            trace_block=entry.trace_block or 0,
        )

    def limit(self, name: str) -> Fraction | None:
        """The time that ``require.ttft`` or ``require.tpot`` allows."""
        entry = getattr(self.file.require, name)
        limit: Fraction | None = entry.at_most if isinstance(entry, PercentileEntry) else entry
        return limit

    def trace(self, entry: WorkloadEntry) -> tuple[Shape, ...] | None:
        place = ("workload", "trace")
        for other in ("input_tokens", "output_tokens"):
            if getattr(entry, other) is not None:
                self.fail(
                    KvplanError("invalid-plan", f"a trace and {other}: one of them"), ("workload", other)
                )
        path = self.beside(str(entry.trace), place)
        self.used.append(str(path))

        def read() -> tuple[Shape, ...]:
            form, columns = entry.trace_format, _columns(entry)
            return read_lengths(path, name=str(path), form=form, columns=columns).shapes()

        found: tuple[Shape, ...] | None = self.attempt(read, place)
        return found

    def lengths(self, entry: WorkloadEntry) -> tuple[Shape, ...] | None:
        inputs, outputs = (self.side(entry, name) for name in ("input_tokens", "output_tokens"))
        if inputs is None or outputs is None:
            return None
        shapes = combined(inputs, outputs)
        if not any(shape.tokens for shape in shapes):
            self.fail(KvplanError("invalid-plan", "no request has a token"), ("workload",), at_key=True)
            return None
        return shapes

    def side(self, entry: WorkloadEntry, name: str) -> list[tuple[int, int]] | None:
        given = getattr(entry, name)
        if given is None:
            self.missing(f"workload.{name}", ("workload",), "trace")
            return None
        found: list[tuple[int, int]] | None = self.attempt(lambda: _bins(given), ("workload", name))
        return found


def _columns(entry: WorkloadEntry) -> tuple[str, ...] | None:
    said = entry.trace_columns
    if said is None:
        return None
    named = [str(said.input), str(said.output)]
    if said.time is not None or said.ids is not None:
        named.append(str(said.time or ""))
    return (*named, str(said.ids)) if said.ids is not None else tuple(named)


def _bins(given: int | PercentilesEntry | HistogramEntry) -> list[tuple[int, int]]:
    """(tokens, weight) of one side of the workload."""
    if isinstance(given, int):
        return [(given, 1)]
    if isinstance(given, PercentilesEntry):
        return from_percentiles([(PERCENTILES[name], value) for name, value in given.points()])
    found: dict[int, int] = {}
    for entry in given.histogram:
        length = some_tokens(entry[0])
        found[length] = found.get(length, 0) + whole(1, 10**12)(entry[1])
    return sorted(found.items())
