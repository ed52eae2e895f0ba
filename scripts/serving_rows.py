"""Published serving runs (scripts/serving_rows.yaml) and what kvplan simulates of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import exp, log1p, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import kvplan
from kvplan.api.simulating import deployment
from kvplan.files.speed import speed_inputs
from kvplan.files.yaml.strict import load_yaml_file
from kvplan.planning.speed import speed_profile
from kvplan.plans.arrival import Arrival
from kvplan.record import record, replace
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, percentile
from kvplan.simulation.results import SimulationResult
from kvplan.simulation.served import LIKELY, Speeds, likely_fast_slow
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.units import SECOND
from scripts.speed_rows import release_of

FILE = Path(__file__).parent / "serving_rows.yaml"
MOST = 2000
"""Requests of a load that are simulated; of one that keeps up more say nothing new."""
FAR = 600 * SECOND
"""Between what fills the cache and what is measured: nothing of the first is left but the cache."""
WIDE = 16
SEED = 7
CHAT_SPREAD = (1.2, 1.0)
"""Standard deviation / mean of ShareGPT's prompts and answers, taken as lognormal and cut as `vllm bench
serve` cuts them (vllm-project/vllm vllm/benchmarks/datasets.py: at most 1,024 and 2,048 in all). No page
says them."""
CHAT_LENGTHS = (4, 1024, 2048)
MS = 10**6


class Source(NamedTuple):
    where: str
    date: str


class Left(NamedTuple):
    """A row of the study that is not replayed."""

    row: str
    what: str
    why: str


@record(eq=False)
class Row:
    """One served load. figures: name and measured value."""

    raw: dict[str, Any]
    figures: dict[str, float]

    @property
    def kind(self) -> str:
        return str(self.raw["row"])

    @property
    def load(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["load"]
        return found


class Found(NamedTuple):
    """What is simulated: the likely run's figure, the least and the most of all runs."""

    value: float
    low: float
    high: float


def _document(path: Path) -> Any:
    return load_yaml_file(path, name=path.name).data


def read_sources(path: Path = FILE) -> dict[str, Source]:
    return {name: Source(one["where"], str(one["date"])) for name, one in _document(path)["sources"].items()}


def read_left(path: Path = FILE) -> list[Left]:
    return [Left(one["row"], one["what"], one["why"]) for one in _document(path)["not_replayed"]]


def read_rows(path: Path = FILE) -> list[Row]:
    """In the file's order. Raises ValueError for a figure that is not known."""
    data = _document(path)
    found = []
    for raw in data["rows"]:
        figures = {name: float(value) for name, value in raw["figures"].items()}
        if raw["source"] not in data["sources"] or not figures or not figures.keys() <= FIGURES.keys():
            raise ValueError(f"no source, or no figure that is known: {raw}")
        found.append(Row(raw, figures))
    return found


def prompts(load: dict[str, Any]) -> Iterator[tuple[int, ...]]:
    """Identities of one prompt after another, all different, or the same ones over and over."""
    tokens, start = int(load["input"]), 0
    blocks = -(-(CHAT_LENGTHS[1] * 2 if "lengths" in load else tokens) // WIDE)
    if "groups" not in load:
        while True:
            yield tuple(range(start, start + blocks))
            start += blocks
    shared = int(load["shared"]) // WIDE
    every = []
    for _ in range(int(load["groups"])):
        begin = tuple(range(start, start + shared))
        start += shared
        for _ in range(int(load["each"])):
            every.append((*begin, *range(start, start + blocks - shared)))
            start += blocks - shared
    random.Random(SEED).shuffle(every)
    while True:
        yield from every


def lengths(load: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Tokens of one prompt and answer after another."""
    means = int(load["input"]), int(load["output"])
    if "lengths" not in load:
        while True:
            yield means
    chance = random.Random(SEED)
    drawn = [_chat(chance, means) for _ in range(min(MOST, int(load["requests"])))]
    scale = [mean * len(drawn) / sum(row[part] for row in drawn) for part, mean in enumerate(means)]
    yield from (
        (max(1, round(prompt * scale[0])), max(1, round(answer * scale[1]))) for prompt, answer in drawn
    )


def _chat(chance: random.Random, means: tuple[int, int]) -> tuple[float, float]:
    least, most, whole = CHAT_LENGTHS
    while True:
        prompt, answer = (
            mean * exp(sqrt(log1p(spread * spread)) * chance.gauss(0, 1) - log1p(spread * spread) / 2)
            for mean, spread in zip(means, CHAT_SPREAD)
        )
        if min(prompt, answer) >= least and prompt <= most and prompt + answer <= whole:
            return prompt, answer


def arrivals_of(load: dict[str, Any]) -> tuple[list[Arrival], int]:
    """The requests, and how many of them come before to fill the cache."""
    ids, chance = prompts(load), random.Random(SEED)
    rate, sizes = float(load.get("rate", 0)), lengths(load)
    gap = SECOND / rate if rate else 0.0
    warm = int(load["groups"]) * int(load["each"]) if load.get("again") else 0
    clock, rows = 0.0, []
    for number in range(warm + min(MOST, int(load["requests"]))):
        if number == warm and warm:
            clock += FAR
        tokens, answer = next(sizes)
        rows.append(Arrival(round(clock), tokens, answer, next(ids)[: -(-tokens // WIDE)]))
        clock += chance.expovariate(1 / gap) if gap and load.get("poisson") else gap
    return rows, warm


def simulated(row: Row) -> dict[str, Found]:
    """The row's figures as kvplan says them."""
    rows, warm = arrivals_of(row.load)
    whole = _served(row, rows)
    before = _served(row, rows[:warm]) if warm else None
    runs = [(after, None if before is None else dict(before.runs)[case]) for case, after in whole.runs]
    found = {}
    for name in row.figures:
        values = [FIGURES[name](row, after, earlier) for after, earlier in runs]
        found[name] = Found(values[0], min(values), max(values))
    return found


def speeds_of_release(row: Row) -> Speeds | None:
    """Step times of the row's own release, where it says one: only newer ones have a scheduler here."""
    release = release_of(row.raw)
    if not release:
        return None
    served, _ = deployment(
        row.raw["model"], pool=None, step_time=None, offload=None, split=None, **options_of(row)
    )
    clock, gpu = served.speeds.clock(LIKELY), served.settings.gpu
    if not isinstance(clock, SpeedClock) or gpu is None:
        return None
    inventory, per_token, table = speed_inputs(served.model, served.settings.quantization)
    own = replace(clock.profile.deployment, release=release)
    return likely_fast_slow(speed_profile(served.model, gpu, inventory, per_token, own, table))


def _served(row: Row, rows: list[Arrival]) -> SimulationResult:
    raw = row.raw
    at_once = None if "rate" in row.load else int(row.load.get("concurrency", len(rows)))
    return kvplan.simulate(
        raw["model"], trace=Load(tuple(rows), WIDE, "published"), replicas=raw.get("replicas", 1),
        router=raw.get("router"), search=False, helps=False, concurrency=at_once,
        step_time=speeds_of_release(row), **options_of(row),
    ).outcome  # fmt: skip


def options_of(row: Row) -> dict[str, Any]:
    """What the server was started with. Its pool is its own release's, where kvplan knows that release; the
    scheduler is today's."""
    raw = row.raw
    options = {
        "gpu": raw["gpu"], "tensor_parallel_size": raw.get("tp", 1), "engine": raw.get("engine", "vllm"),
        **raw.get("serve", {}),
    }  # fmt: skip
    if options["engine"] == "vllm" and "release" in raw and "kv_cache_memory" not in options:
        release = ".".join(str(raw["release"]).split(".")[:2])
        pool = kvplan.size(raw["model"], tokens=1, **options | {"engine": f"vllm@{release}"}).pool
        if pool is not None:
            options["num_gpu_blocks_override"] = pool.num_blocks
    return options


def _left(after: Sequence[int], before: Sequence[int]) -> list[int]:
    """What came in addition, sorted."""
    return sorted((Counter(after) - Counter(before)).elements())


def _mean(values: list[int]) -> float:
    return sum(values) / len(values) / MS if values else 0.0


def _ttft(run: Outcome, before: Outcome | None) -> list[int]:
    return _left(run.ttft, () if before is None else before.ttft)


def _tpot(run: Outcome, before: Outcome | None) -> list[int]:
    return _left(run.tpot, () if before is None else before.tpot)


def _total(row: Row, run: Outcome, _: Outcome | None) -> float:
    load = row.load
    tokens = (int(load["input"]) + int(load["output"])) * min(MOST, int(load["requests"]))
    return tokens * SECOND / run.end_ns


def _output(row: Row, run: Outcome, before: Outcome | None) -> float:
    """Answer tokens a second from the first arrival that counts to the last answer."""
    rows, warm = arrivals_of(row.load)
    made = run.answer_tokens - (0 if before is None else before.answer_tokens)
    return made * SECOND / (run.end_ns - rows[warm].at_ns)


FIGURES: dict[str, Callable[[Row, Outcome, Outcome | None], float]] = {
    "ttft_ms": lambda _, run, before: _mean(_ttft(run, before)),
    "ttft_p99_ms": lambda _, run, before: percentile(_ttft(run, before), 0.99) / MS,
    "tpot_ms": lambda _, run, before: _mean(_tpot(run, before)),
    "output_tps": _output,
    "total_tps": _total,
    "grows": lambda _, run, __: float(run.saturated),
}
"""Each of the load's own requests, without those that filled the cache. Times in ms."""
