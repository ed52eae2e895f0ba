"""GPUs that a plan proposes where none is named, and slices that do not join."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.api.planning.inputs import usual_offers
from kvplan.engines.base import MIG_SLICES
from kvplan.engines.budget import BUDGETS
from kvplan.files.gpus.listed import list_gpus
from kvplan.settings import Settings
from tests.laws.sampling import for_each, some
from tests.planning.asks import an_ask

SLICES = [gpu.slug for gpu in list_gpus() if gpu.is_mig_slice]


def test_every_gpu_that_ships_says_whom_it_is_made_for() -> None:
    assert [gpu.slug for gpu in list_gpus() if gpu.market is None] == []


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_servers_are_planned_on_servers_gpus(engine: str) -> None:
    kinds = {offer.gpu.slug for offer in usual_offers([engine])}
    assert {"h100-sxm-80gb", "l40s-48gb", "rtx-pro-6000-blackwell-96gb"} <= kinds
    assert not kinds & {
        "jetson-agx-orin-64gb",
        "rtx-4090-24gb",
        "gb10-128gb",
        "strix-halo-128gb",
        "mi100-32gb",
    }
    assert not kinds & set(SLICES)
    assert ("v100-sxm-32gb" in kinds) is (engine != "vllm")


@pytest.mark.parametrize("engine", BUDGETS)
def test_what_is_sold_in_one_country_is_planned_by_name_alone(engine: str) -> None:
    kinds = {offer.gpu.slug for offer in usual_offers([engine])}
    regional = {gpu.slug for gpu in list_gpus() if gpu.market == "regional"}
    assert {"h20-96gb", "h800-sxm-80gb", "a800-sxm-80gb", "l20-48gb"} <= regional
    assert not kinds & regional
    found = kvplan.plan("llama-3.1-8b", requests=4, tokens=4096, gpu="h20", quality="lossless", depth=False)
    assert found.plan is not None


def test_llamacpp_is_planned_on_cards_under_desks() -> None:
    assert {"rtx-4090-24gb", "m3-max-128gb", "h100-sxm-80gb"} <= {
        offer.gpu.slug for offer in usual_offers(["llamacpp"])
    }


def test_what_is_named_is_planned_for_all_the_same() -> None:
    found = kvplan.plan(
        "llama-3.1-8b", requests=4, tokens=4096, gpu="rtx-4090", quality="lossless", depth=False
    )
    assert found.plan is not None
    assert found.plan.settings.gpu is not None
    assert found.plan.settings.gpu.slug == "rtx-4090-24gb"


def test_an_unmeasured_kind_is_not_proposed() -> None:
    """Every row of a plan that names no GPU has a time."""
    found = kvplan.plan("llama-3.1-8b", requests=4, tokens=4096, top=300, depth=False)
    assert len(found.options) > 20
    assert [option.gpu for option in found.options if option.speed is None] == []


@for_each(("engine", "slug"), [(engine, slug) for engine in ("vllm", "sglang", "trtllm") for slug in SLICES])
def test_ranks_do_not_join_over_slices(engine: str, slug: str) -> None:
    """CUDA shows a process one slice: sized, checked and planned alike."""
    for tp, pp in ((2, 1), (1, 2)):
        refusal = kvplan.size("qwen3-0.6b", engine=engine, gpu=slug, tokens=2048, tp=tp, pp=pp).refusal
        assert refusal is not None
        assert refusal.code == MIG_SLICES
    alone = kvplan.size("qwen3-0.6b", engine=engine, gpu=slug, tokens=2048).refusal
    assert alone is None or alone.code != MIG_SLICES


@pytest.mark.laws
@for_each("slug", some(SLICES, 6, by=bool))
def test_a_plan_over_slices_has_replicas_and_no_ranks(slug: str) -> None:
    found = kvplan.plan("qwen3-0.6b", requests=300, tokens=4096, gpu=slug, depth=False, top=20)
    assert found.options
    assert {option.layout() for option in found.options} == {"1 GPU"}
    assert max(option.replicas for option in found.options) > 1


def test_slices_keep_their_layouts_out_of_the_search() -> None:
    slug = SLICES[0]
    gpu = next(gpu for gpu in list_gpus() if gpu.slug == slug)
    from kvplan.planning.search import search

    searched = search(an_ask("qwen3-0.6b", gpu, tp=(1, 2), pp=(1,), base=Settings()), wanted=0)
    assert {rejected.why.code for rejected in searched.rejected} >= {MIG_SLICES}
    assert {found.one.layout.gpus for found in searched.found} == {1}
