"""vLLM's printed lines as settings, and other explanations of a printed figure.

Which release a build is nearest to, by the source lines that its log prints: ``[gpu_worker.py:508]``.

``data/source_lines.tsv`` has the lines of every release (vllm-project/vllm, scripts/record_source_lines.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from kvplan.engines import choose_engine
from kvplan.engines.base import Choice
from kvplan.engines.observed import Count, Observation, Ratio, placed
from kvplan.engines.observed.reading import MOST, Build, Guessing, Hypothesis, Reading, size_of, sizes_told
from kvplan.engines.vllm.start.connectors import MULTI, OFFLOADING, P2P
from kvplan.engines.vllm.versions import rules_of
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.record import Json
from kvplan.results import Pool
from kvplan.settings import Settings

TOKENS_CHANGED = "0.20"
"""Release since which the tokens line is concurrency × length (v1/core/kv_cache_utils.py), its first patch
aside."""
_AS_BEFORE = regex(r"v?0\.20\.0(?!\d)", re.ASCII)
"""The patch of 0.20 that still prints one group's share."""
_DRAFTS_UNSEEN = ("draft_model", "dflash", "dspark")
"""Methods whose draft has a cache that nothing but its own config tells."""
_SEEN = {
    "compile_cache": ("compiled_graphs", "loaded_graphs"),
    "model_runner": ("model_runner",),
    "flashinfer": ("flashinfer",),
    "estimate_cudagraphs": ("estimate_cudagraphs",),
    "max_cudagraph_capture_size": ("max_cudagraph_capture_size", "graphs_largest"),
}
"""A setting → the figures that reveal it: one graph that was compiled is enough for a cold cache."""
RULES_CHANGED = ("0.19", "0.20", "0.22", "0.26", "0.28", "0.29", "0.33", "0.10", "0.8")
_WORKER = "gpu_worker.py"
_SHOWN = ("kv_cache_utils.py", _WORKER)
_FOURTH = Fraction(1, 10**9)
_TOO_OPEN = 6
"""A memory that is open by more than a sixth of itself tells no GPU."""
_DEVELOPED = regex(r"v?0\.(\d{1,4})\.\d{1,4}\S{0,12}\.dev\d", re.ASCII)


def _length(observation: Observation) -> Count | None:
    """The max_model_len that the engine used: of its concurrency line, or of its refusal."""
    found = observation.count("max_concurrency_tokens")
    if found is None and observation.refusal is not None:
        found = observation.refusal.max_model_len
    return found if found is not None and found.value > 0 else None


def cpu_defaults(ranks: int, *, block_size: int = 128, usage: str = "server") -> dict[str, Any]:
    """Settings of vLLM's CPU build that differ (0.32: platforms/cpu.py, engine/arg_utils.py
    get_batch_defaults).

    block_size is 16 for a latent cache on CPUs without AMX. Recurrent states are float32 (since 0.28) on CPUs
    with bfloat16 dot products alone, where a line of the log says so.
    """
    return {
        "block_size": block_size,
        "max_num_batched_tokens": (4096 if usage == "llm" else 2048) * ranks,
        "max_num_seqs": (256 if usage == "llm" else 128) * ranks,
        "async_scheduling": False,
    }


def _like_by_lines(places: Mapping[tuple[str, str], int]) -> Build | None:
    """The releases whose source lines are nearest, of the planner and of the worker; None without lines."""
    own = {place: line for place, line in places.items() if place[0] != _WORKER}
    worker = {place: line for place, line in places.items() if place[0] == _WORKER}
    rules = nearest_release(own) or nearest_release(worker)
    memory = nearest_release(worker) or rules
    if rules is None or memory is None:
        return None
    shown = [place for place in places if place[0] in _SHOWN] or list(places)
    where = " and ".join({place[0]: f"{place[0]}:{places[place]}" for place in shown}.values())
    how = "has the source lines of" if rules[1] and memory[1] else "has source lines nearest to those of"
    both = rules[0] if rules[0] == memory[0] else f"{rules[0]} (cache) and {memory[0]} (memory)"
    return Build(rules[0], memory[0], f"{how} {both} ({where})")


def _groups(observation: Observation, values: Json) -> Iterator[tuple[str, Any, str]]:
    """Expert and data parallelism, which a worker's name has where they are on (``Worker_DP0_EP0``; vllm 0.32
    v1/executor/multiproc_executor.py, setup_proc_title_and_log_prefix)."""
    workers = [row.rank for row in observation.rows if row.rank.label.startswith("Worker")]
    experts = next((rank.label for rank in workers if rank.ep is not None), None)
    if experts is not None and "enable_expert_parallel" not in values:
        yield "enable_expert_parallel", True, f"True ({experts})"
    replicas = [rank.dp for rank in workers if rank.dp is not None]
    if replicas and max(replicas) < MOST and "data_parallel_size" not in values:
        size = max(2, size_of(replicas))
        yield "data_parallel_size", size, f"{size} at least (ranks up to DP{max(replicas)})"


def _connector(observation: Observation) -> Iterator[tuple[str, Any, str]]:
    """The connector that a worker makes (distributed/kv_transfer/kv_connector/factory.py), where no argument
    says it; its role, which moves no byte of the pool but with P2pNcclConnector, is not told."""
    made = observation.settings.get("kv_connector")
    said = {"kv_transfer_config", "kv_offloading_size"} & set(observation.settings)
    if made is None or said or made.value in (P2P, OFFLOADING, MULTI):
        return
    config = json.dumps({"kv_connector": made.value, "kv_role": "kv_both"})
    yield "kv_transfer_config", config, f"{made.value} ({made.source}, line {made.line})"


class _Vllm(Reading):
    not_budgeted: ClassVar[Mapping[str, str]] = {
        "cuda_graph_bytes": "these graphs are captured after the pool is taken, and nothing is kept back for"
        " them (before 0.20; by the V2 runner before 0.29)",
        "available_kv_bytes": "the pool was asked for, so no budget decides it",
    }
    no_release = (0, 1)
    """Builds from a checkout say 0.1."""

    def unchosen(self, observation: Observation) -> tuple[str, ...]:
        """Printed settings that nobody chose: metrics show the block size in force, and only where the user
        named it is it a setting."""
        setting = observation.settings.get("block_size")
        if (
            setting is None
            or setting.source == "args"
            or observation.setting("user_specified_block_size") is True
        ):
            return ()
        return ("block_size",)

    def told(self, observation: Observation, values: Json) -> Iterator[tuple[str, Any, str | None]]:
        """The length in force, how many ranks spoke, what a CPU build does otherwise, the compile cache and
        the runner."""
        length = _length(observation)
        if length is not None:
            yield "max_model_len", length.value, f"{length.value} ({placed(length, observation.source)})"
        yield from sizes_told(observation, values)
        yield from _groups(observation, values)
        yield from _connector(observation)
        if observation.setting("device") == "cpu":
            ranks = values.get("tensor_parallel_size", 1) * values.get("pipeline_parallel_size", 1)
            for name, value in cpu_defaults(ranks).items():
                if name not in values:
                    yield name, value, None
            yield "device", None, "cpu (config)"
        for name, settings in _SEEN.items():
            found = next((kept for kept in map(observation.settings.get, settings) if kept is not None), None)
            if found is not None:
                value = str(found.value).lower() if isinstance(found.value, str) else found.value
                yield name, value, f"{value} ({found.source}, line {found.line})"

    def told_total(self, observation: Observation) -> tuple[int, int, str] | None:
        """The GPU's memory of which the estimated graphs are the difference between two utilisations
        (v1/worker/gpu_worker.py): estimate / (utilisation − equivalent), as far as their digits tell."""
        estimate, equivalent = (
            observation.count("cuda_graph_estimated_bytes"),
            observation.get("equivalent_utilization"),
        )
        asked = observation.setting("gpu_memory_utilization")
        if estimate is None or not isinstance(equivalent, Ratio) or not isinstance(asked, Fraction):
            return None
        least, most = asked - equivalent.high - _FOURTH, asked - equivalent.low + _FOURTH
        if least <= 0 or estimate.low <= 0:
            return None
        low, high = int(estimate.low / most), int(estimate.high / least)
        if high - low > low // _TOO_OPEN:
            return None
        return low, high, "memory, by the share that the estimated graphs take"

    def uncounted(self, settings: Settings, observation: Observation) -> str | None:
        """Why the cache of these settings is larger than the one that is predicted; None where it is not."""
        method = settings.speculative_method
        if settings.speculative_model is not None or method not in _DRAFTS_UNSEEN:
            return None
        name = observation.setting("speculative_model")
        way = "name it" if name is None else f"no card has {str(name)[-60:]}: --speculative-model CONFIG.json"
        return f"the {method} draft keeps a cache of its own in this pool, which is not counted: {way}"

    def build(self, observation: Observation) -> Build | None:
        """The releases that a build without a release number of its own is like; None for a release.

        The planner's lines tell whose cache rules it has, the worker's whose memory rules: a build between
        two releases may have one of each. Without lines, ``0.19.2rc1.dev134`` is on its way from 0.19 to
        0.20: the branch of a release is cut before its number is given, and main goes on.
        """
        version = observation.engine_version
        number = None if version is None else _DEVELOPED.match(version)
        if version is not None and number is None and not version.startswith("0.1.dev"):
            return None
        like = _like_by_lines(observation.places)
        if like is not None or number is None:
            return like
        following = f"0.{int(number[1]) + 1}"
        return Build(following, following, f"is a build on the way to {following}")

    def guesses(
        self,
        choice: Choice,
        printed: Choice,
        settings: Settings,
        shown: Mapping[str, str],
        observation: Observation,
    ) -> Iterator[Hypothesis]:
        """Further hypotheses, most likely first. printed: the rules of the log's own release."""
        one = Guessing(choice, settings).one
        for other in (printed, *(choose_engine(f"vllm@{version}") for version in RULES_CHANGED)):
            if rules_of(other.version) != rules_of(choice.version):
                yield Hypothesis(("version",), f"the rules of vLLM {other.version}", other)
        ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
        for size, states in ((128, {}), (16, {}), (128, {"mamba_ssm_cache_dtype": "float32"})):
            defaults = {**cpu_defaults(ranks, block_size=size, usage=settings.usage), **states}
            fresh = {name: value for name, value in defaults.items() if name not in shown}
            yield Hypothesis(tuple(fresh), "the defaults of vLLM's CPU build", choice, tuple(fresh.items()))
        for name in ("float32", "bfloat16", "float16"):
            yield from one("mamba_ssm_cache_dtype", name, f"recurrent states in {name}")
        reported = observation.count("block_size")
        for size in dict.fromkeys([*([reported.value] if reported else []), 16, 32, 64, 128, 256]):
            yield from one("block_size", size)
        for tokens in (2048, 4096, 8192, 16384, 32768, 65536):
            yield from one("max_num_batched_tokens", tokens)
        for flag in (True, False):
            yield from one("async_scheduling", flag)
            yield from one("enable_prefix_caching", flag)
            yield from one("disable_hybrid_kv_cache_manager", flag)
        for size in (1, 2, 4, 8):
            yield from one("decode_context_parallel_size", size)
        for number in range(1, 5):
            drafts = (("speculative_method", "mtp"), ("num_speculative_tokens", number))
            names = ("speculative_method", "num_speculative_tokens")
            yield Hypothesis(names, f"speculative decoding mtp:{number}", choice, drafts)

    def printed_tokens(self, choice: Choice, pool: Pool, settings: Settings) -> int:
        """0.20.0 printed what 0.19 did: num_blocks // groups · the smallest block, of every rank's tokens."""
        if not _AS_BEFORE.match(choice.asked or ""):
            return pool.kv_tokens
        smallest = min((group.block_size for group in pool.groups), default=1)
        tokens = pool.num_blocks // max(len(pool.groups), 1) * smallest
        return tokens * settings.decode_context_parallel_size

    def tokens_line(self, predictor: Any, axis: Any) -> Iterator[str]:
        """The line's two meanings, where they are two numbers here."""
        rules, changed = rules_of(predictor.choice.version), TOKENS_CHANGED
        if _AS_BEFORE.match(predictor.choice.asked or ""):
            rules, changed = rules_of("0.19"), "0.20.1"
        figures = predictor.at(axis.kind, axis.value)
        dcp = predictor.settings.decode_context_parallel_size
        if rules.tokens_times_dcp and dcp > 1:
            own = figures.tokens // dcp
            yield f"the line is multiplied by decode_context_parallel_size {dcp}: {own:,} × {dcp}"
            return
        # The same blocks and the same settings, with the line of a release on the other side of the change.
        other = Choice(predictor.choice.engine, "0.19" if rules.tokens_from_concurrency else TOKENS_CHANGED)
        try:
            alike = (
                type(predictor)(predictor.model, other, predictor.settings)
                .at("blocks", figures.blocks)
                .tokens
            )
        except KvplanError:
            return
        if alike in (0, figures.tokens):
            return
        pool = predictor.sized("blocks", figures.blocks).pool
        groups = len(pool.groups) if pool is not None else 0
        if rules.tokens_from_concurrency:
            length = predictor.result.settings.get("max_model_len")
            yield f"since {changed} this line is concurrency × length {length:,}, not what is stored"
        elif groups > 1:
            yield f"before {changed} this line is one group's share: blocks // {groups} groups × block"


READING = _Vllm()


FILE = Path(__file__).parents[1] / "data" / "source_lines.tsv"
HEAD = "file\tanchor\tlines"
FAR, NEAR = 400, 60
"""Lines between two places beyond which they say nothing more of how near two builds are; and how far apart
they may lie on average for one to be taken for the other (neighbouring releases: 2 to 40)."""


def nearest_release(places: Mapping[tuple[str, str], int]) -> tuple[str, bool] | None:
    """The release whose source logs at the places of a log, and whether all of them are its own; None where
    no place is known. places: (file, anchor) → line.

    Of two that are equally near the older one: a build between releases has what the older one had.
    """
    table = _table()
    known = {key: line for key, line in places.items() if key in table}
    if not known:
        return None
    scores: dict[str, int] = {}
    for release in _releases():
        scores[release] = sum(
            min(FAR, abs(table[key][release] - line)) if release in table[key] else FAR
            for key, line in known.items()
        )
    best = min(scores, key=scores.__getitem__)
    return None if scores[best] > NEAR * len(known) else (best, scores[best] == 0)


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, str], dict[str, int]]:
    table: dict[tuple[str, str], dict[str, int]] = {}
    for row in FILE.read_text(encoding="utf-8").splitlines()[1:]:
        file, anchor, lines = row.split("\t")
        pairs = (pair.partition("=") for pair in lines.split())
        table[file, anchor] = {release: int(line) for release, _, line in pairs}
    return table


@lru_cache(maxsize=1)
def _releases() -> tuple[str, ...]:
    names = {release for lines in _table().values() for release in lines}
    return tuple(sorted(names, key=lambda name: tuple(int(part) for part in name.split("."))))
