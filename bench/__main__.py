"""``python -m bench``: every figure is a ratio to a baseline that ran beside it, turn by turn.

Cold starts are the least processor time of alternating fresh processes, which a busy machine only adds to.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import perf_counter

from bench import peers, simulate
from bench.cold import answers, library, module_figures
from bench.figures import Figure
from bench.fill import fill_rates

CARD = "llama-3.1-8b"


def rate(call: Callable[[], object], budget: float = 1.0) -> float:
    """Calls a second over about ``budget`` seconds, the best of three."""
    call()
    best = 0.0
    for _ in range(3):
        calls, start = 0, perf_counter()
        while perf_counter() - start < budget / 3:
            for _ in range(100):
                call()
            calls += 100
        best = max(best, calls / (perf_counter() - start))
    return best


def size_rate(engine: str) -> Figure:
    """size() of a loaded card against serialising its answer with the standard library's json."""
    import kvplan

    model = kvplan.load_model(CARD)
    lengths = iter(range(10**9))

    def ours() -> object:
        return kvplan.size(model, engine=engine, tokens=1 + next(lengths) % 100_000)

    answer = kvplan.size(model, engine=engine, tokens=4096).model_dump()
    mine, theirs = rate(ours), rate(lambda: json.dumps(answer))
    return Figure(
        f"size() calls a second, {engine}",
        "json.dumps of the same answer",
        mine / theirs,
        "≥ 20,000/s",
        f"{mine:,.0f}/s against {theirs:,.0f}/s",
    )


def budget_rate() -> Figure:
    """size() of a loaded card on a named GPU (budget and pool) against the same with a stated memory."""
    import kvplan

    model, gpu = kvplan.load_model(CARD), kvplan.load_gpu("h100")
    ours = rate(lambda: kvplan.size(model, gpu=gpu))
    theirs = rate(lambda: kvplan.size(model, gpu=gpu, kv_cache_memory="60GiB"))
    return Figure(
        "size() with a GPU's budget",
        "with --kv-cache-memory",
        ours / theirs,
        "< 50 µs",
        f"{1e6 / ours:.0f} µs against {1e6 / theirs:.0f} µs",
    )


def speed_rate() -> Figure:
    """estimate() of a made profile against aiconfigurator's search, or json.dumps where it is absent."""
    from bench.speed import CASES, estimator, peer_seconds

    ours = rate(estimator())
    aim, detail = "< 50 µs", f"{1e6 / ours:.0f} µs an estimate"
    search = peer_seconds()
    if search is None:
        theirs = rate(lambda: json.dumps({"tpot": 0.01, "ttft": 0.1}))
        return Figure("estimate() calls a second", "json.dumps of two numbers", ours / theirs, aim, detail)
    detail += f"; {CASES:,} of them {CASES / ours:.1f} s against a search of {search:.1f} s"
    return Figure(
        f"{CASES:,} speed estimates", "aiconfigurator cli default", CASES / ours / search, aim, detail
    )


def catalogue_search() -> Figure:
    """The planner over the whole catalogue against asking the engine for each candidate, both in CPU time."""
    from bench import planner

    planner.search_once()
    taken, found, ask = planner.search_once()
    number = planner.judged(found)
    each = planner.brute_seconds(ask)
    return Figure(
        f"plan: {number:,} candidates on {len(ask.offers)} GPUs",
        "questions.ask for each (mean of a sample)",
        taken / (each * number),
        "< 1 s",
        f"{taken:.2f} s against about {each * number:,.0f} s",
    )


def peers_search() -> Figure | None:
    """A planner's question on 8 GPUs, cold, against aiconfigurator's default search where it is installed."""
    from bench import planner
    from bench.speed import peer_seconds

    theirs = peer_seconds()
    if theirs is None:
        return None
    ours = planner.peers_question()
    return Figure(
        "plan on 8 × H200",
        "aiconfigurator cli default",
        ours / theirs,
        "≪ 1",
        f"{ours:.2f} s against {theirs:.1f} s",
    )


def card_rate() -> Figure:
    """Finding and reading one card out of all, nothing remembered, against reading every card."""
    from kvplan.files.cards import find as cards
    from kvplan.files.datafiles import data_dir

    files = sorted(data_dir("model_cards").glob("*.yaml"))
    start = perf_counter()
    for file in files:
        cards.read_card_file(file)
    everything = perf_counter() - start
    one = 1 / rate(lambda: cards.read_card_file(data_dir("model_cards") / f"{CARD}.yaml"))
    return Figure(
        "read one card",
        f"read all {len(files)}",
        one / everything,
        "≪ 1",
        f"{one * 1000:.2f} ms against {everything * 1000:.0f} ms",
    )


def check_rate() -> Figure:
    """kvplan check of 200 plans in a fresh process's first call, against reading the same YAML files."""
    import tempfile
    from pathlib import Path

    import yaml

    import kvplan

    models = {"llama-3.1-8b": 1, "qwen3-32b": 2, "llama-3.3-70b": 8, "gemma-3-27b": 2, "deepseek-v3": 16}
    gpus = ("h100", "h200", "a100", "l40s", "b200")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(200):
            model, ways = list(models.items())[number % 5]
            (folder / f"{number:03}.yaml").write_text(
                f"kvplan: plan/v1\nmodel: {model}\nengine: vllm@0.32\ngpu: {gpus[number // 5 % 5]}\n"
                f"gpus: {2 * ways}\nserve:\n  tensor_parallel_size: {ways}\n"
                f"  max_model_len: {16384 + number // 25 * 16}\n"
                "workload:\n  input_tokens: {p50: 800, p90: 3000, p99: 8000, max: 12000}\n"
                "  output_tokens: {p50: 200, max: 2000}\n  requests_in_flight: 4\n"
                "require: {requests: 2, tokens: 8192, headroom: 5%}\n",
                encoding="utf-8",
            )
        start = perf_counter()
        report = kvplan.check(folder)
        ours = perf_counter() - start
        start = perf_counter()
        for path in folder.iterdir():
            yaml.safe_load(path.read_text(encoding="utf-8"))
        theirs = perf_counter() - start
    return Figure(
        f"kvplan check, {len(report.plans)} plans",
        "yaml.safe_load of the files",
        ours / theirs,
        "< 2 s",
        f"{ours:.2f} s against {theirs:.2f} s",
    )


def main() -> None:
    """Print the table (or JSON with --json)."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--turns", type=int, default=15, help="fresh processes a side")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    beside, skipped = peers.cold_beside_peers(arguments.turns)
    sizes, unbuilt = peers.room()
    figures = [
        *answers(arguments.turns),
        *beside,
        *module_figures(),
        library(arguments.turns),
        *sizes,
        size_rate("generic"),
        size_rate("vllm"),
        budget_rate(),
        speed_rate(),
        card_rate(),
        check_rate(),
        *fill_rates(),
        catalogue_search(),
        *simulate.figures(),
    ]
    from bench.speed import PEER

    peer = peers_search()
    if peer is not None:
        figures.append(peer)
    if arguments.json:
        print(json.dumps([figure.__dict__ for figure in figures], indent=1))
        return
    skipped += unbuilt
    if peer is None:
        skipped.append(f"plan beside aiconfigurator (not on PATH, nor named by {PEER})")
    for one in skipped:
        print(f"skipped: {one}")
    for figure in figures:
        print(f"{figure.ratio:8.3f} ×  {figure.what}  (baseline: {figure.baseline}; aim {figure.aim})")
        print(f"{'':12}{figure.detail}")


if __name__ == "__main__":
    main()
