"""The planner: the whole catalogue against the engine asked one candidate at a time."""

from __future__ import annotations

import random
from dataclasses import replace
from time import perf_counter, process_time

import kvplan
from kvplan.api.planning import variants_of
from kvplan.deployment.counts import ask as ask_engine
from kvplan.engines.budget import choose
from kvplan.engines.budget.law import compiled_laws
from kvplan.files.gpus.listed import list_gpus
from kvplan.planning.ask import REQUESTS, SEQS, Ask
from kvplan.planning.asked_law import AskedCapacityModels
from kvplan.planning.found import Searched
from kvplan.planning.search import search
from kvplan.planning.space import classes
from kvplan.plans.fleet import Offer
from kvplan.plans.workload import Shape
from kvplan.settings import Settings

MODEL = "qwen3-32b"
LENGTHS = (8192, 32768)
SAMPLE = 150


def whole_catalogue() -> Ask:
    """Every whole GPU that has a file, every size and every format that the default policy takes, and the
    most requests of 8 GPUs: no bound leaves anything out."""
    choice, model = choose("vllm"), kvplan.load_model(MODEL)
    return Ask(
        variants=variants_of(model, Settings()),
        choice=choice,
        offers=tuple(Offer(gpu) for gpu in list_gpus() if not gpu.is_mig_slice),
        shapes=(Shape(7168, 1024),),
        lengths=LENGTHS,
        laws=compiled_laws(choice, Settings()) or AskedCapacityModels(),
        objective=REQUESTS,
        max_gpus=8,
    )


def search_once() -> tuple[float, Searched, Ask]:
    """CPU seconds for the whole catalogue, with nothing remembered but the loaded model."""
    ask = whole_catalogue()
    start = process_time()
    found = search(ask, wanted=0)
    return process_time() - start, found, ask


def brute_seconds(ask: Ask, seed: int = 0) -> float:
    """Seconds that the engine takes for one candidate, as the mean over a sample that it was never asked."""
    alive = [one for one, why in classes(ask) if why is None]
    chosen = random.Random(seed)
    start = process_time()
    for _ in range(SAMPLE):
        settings = chosen.choice(alive).settings(ask.base)
        offer = chosen.choice(ask.offers)
        asked = replace(
            settings,
            gpu=offer.gpu,
            tokens=8192,
            max_num_seqs=chosen.choice(SEQS),
            max_model_len=chosen.choice(LENGTHS),
        )
        try:
            ask_engine(ask.variants[0].model, ask.choice, asked)
        except kvplan.KvplanError:
            continue
    return (process_time() - start) / SAMPLE


def peers_question() -> float:
    """Seconds for the question that `bench.speed` asks of aiconfigurator: 8 GPUs, every size and format."""
    start = perf_counter()
    kvplan.plan("llama-3.1-70b", tokens=5000, gpu="8xh200", objective=REQUESTS, depth=False)
    return perf_counter() - start


def judged(found: Searched) -> int:
    """Candidates that no rule refused for every GPU."""
    return found.considered - sum(one.candidates for one in found.rejected if one.offer is None)
