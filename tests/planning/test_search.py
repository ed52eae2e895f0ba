"""The search equals brute force, whatever the engine, the objective and the catalogue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.engines.budget.law import Capacity, Rejection
from kvplan.errors import KvplanError
from kvplan.planning.ask import COST, FEWEST, OBJECTIVES, REQUESTS, Ask, Demand
from kvplan.planning.asked_law import AskedCapacityModels
from kvplan.planning.search import _Search, search
from kvplan.planning.space import Layout, classes
from kvplan.plans.workload import Shape
from kvplan.settings import Settings
from kvplan.units import GIB
from tests.cli.conftest import Run, run
from tests.laws.sampling import sampled, some
from tests.planning.asks import CAPABILITIES, a_gpu, a_shape, an_ask, priced
from tests.planning.brute import brute_force

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("qwen3-0.6b", "llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b", "gemma-3-4b")
ENGINES = ("vllm", "vllm", "vllm@0.19", "vllm@0.29", "sglang", "trtllm", "llamacpp")


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    gpus = draw(
        st.lists(
            st.builds(
                priced,
                st.builds(
                    a_gpu,
                    st.integers(4, 80),
                    st.sampled_from(CAPABILITIES),
                    node=st.sampled_from((1, 2, 8)),
                ),
                st.one_of(st.none(), st.integers(1, 900)),
                st.one_of(st.none(), st.integers(0, 9)),
            ),
            min_size=1,
            max_size=2,
        )
    )
    engine = draw(st.sampled_from(ENGINES))
    shapes = tuple(
        Shape(draw(st.integers(1, 3000)), draw(st.integers(0, 900)), draw(st.integers(1, 5)))
        for _ in range(draw(st.sampled_from((1, 1, 1, 3))))
    )
    also = draw(st.sampled_from((False, False, True)))
    demands = [Demand(draw(st.sampled_from((1, 9, 80))), draw(a_shape()))] if also else []
    longest = max(shape.tokens for shape in (*shapes, *(one.shape for one in demands)))
    stated = GIB * draw(st.integers(1, 30)) if engine == "llamacpp" or draw(st.booleans()) else None
    return an_ask(
        draw(st.sampled_from(MODELS)),
        *gpus,
        engine=engine,
        base=Settings(weights=stated),
        shapes=shapes,
        lengths=tuple(sorted({longest, longest + draw(st.integers(0, 1000))})),
        requests=draw(st.sampled_from((1, 3, 40, 700))),
        objective=draw(st.sampled_from(OBJECTIVES)),
        max_gpus=draw(st.sampled_from((1, 4, 16))),
        quality=draw(st.sampled_from(("lossless", "safe", "aggressive"))),
        tp=draw(st.sampled_from(((1, 2), (1, 3, 4), (8,)))),
        pp=draw(st.sampled_from(((1,), (1, 2)))),
        seqs=tuple(draw(st.lists(st.sampled_from((1, 2, 7, 16, 64, 300)), min_size=1, max_size=3))),
        safe=draw(st.booleans()),
        headroom=draw(st.sampled_from((Fraction(0), Fraction(1, 10)))),
        prefix=draw(st.sampled_from((0, 0, 1, 40, 5000))),
        samples=draw(st.sampled_from((1, 1, 1, 3))),
        also=tuple(demands),
        kept=draw(st.sampled_from((0, 0, GIB, 5 * GIB))),
        max_cost=draw(st.sampled_from((None, None, Fraction(20)))),
        kv_dtypes=("auto", "fp8") if engine != "llamacpp" else ("auto", "q8_0"),
    )


@pytest.mark.laws
@sampled(20, 300)
@given(asks())
def test_the_search_finds_what_brute_force_finds(ask: Ask) -> None:
    expected = [found.key for found in brute_force(ask)]
    assert [found.key for found in search(ask, wanted=0).found] == expected
    for wanted in (1, 2):
        assert [found.key for found in search(ask, wanted=wanted).found] == expected[:wanted]


@pytest.mark.laws
@sampled(20, 300)
@given(asks())
def test_a_law_says_what_the_engine_says(ask: Ask) -> None:
    """Pools to the byte, requests to the last, and the same code where there is none."""
    asked = AskedCapacityModels()
    for one, why in classes(ask):
        for offer in ask.offers:
            if why is not None:
                continue
            base = one.settings(ask.base)
            try:
                kind = ask.laws.kind(offer.gpu, ask.choice, base)
            except KvplanError:
                continue
            law = ask.laws.law(one.variant.model, ask.choice, base, offer.gpu, kind)
            other = asked.law(one.variant.model, ask.choice, base, offer.gpu, offer.gpu)
            for seqs in ask.seqs:
                mine = law.room(offer.gpu, seqs, ask.lengths[0], safe=ask.safe)
                theirs = other.room(offer.gpu, seqs, ask.lengths[0], safe=ask.safe)
                if isinstance(mine, Rejection) or isinstance(theirs, Rejection):
                    assert isinstance(mine, Rejection)
                    assert isinstance(theirs, Rejection)
                    # Weights that leave nothing are seen before the engine is asked for anything else.
                    assert mine.code in (theirs.code, "weights")
                else:
                    assert (mine.pool_bytes, mine.block) == (theirs.pool_bytes, theirs.block)
                    for shape in ask.shapes:
                        tokens, generated = shape.tokens, shape.output_tokens
                        assert mine.runs(tokens, generated) == theirs.runs(tokens, generated)
                        assert mine.takes(tokens, generated) == theirs.takes(tokens, generated)
                        assert mine.share(shape.tokens) == theirs.share(shape.tokens)


@pytest.mark.laws
@pytest.mark.parametrize("by_kind", [False, True])
@pytest.mark.parametrize("requests", some([3, 40, 1600], 2, lambda _: 0))
def test_what_is_behind_changes_nothing(by_kind: bool, requests: int) -> None:
    """Rows, reasons and counts are those of judging every class to the end."""
    gpus = (a_gpu(24, (8, 9)), a_gpu(80), a_gpu(141))
    ask = an_ask("llama-3.1-8b", *gpus, requests=requests, pp=(1, 2), quality="aggressive")
    quick = _Search(ask, 3, by_kind=by_kind)
    whole = _Search(ask, 3, by_kind=by_kind)
    whole.divided = False
    assert quick.divided
    assert quick.run() == whole.run()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b"])
def test_more_max_num_seqs_never_hold_more(engine: str, model: str) -> None:
    """The bound that bisection rests on."""
    ask = an_ask(model, a_gpu(80), engine=engine)
    one = next(one for one, why in classes(ask) if why is None)
    offer = ask.offers[0]
    kind = ask.laws.kind(offer.gpu, ask.choice, ask.base)
    law = ask.laws.law(one.variant.model, ask.choice, Settings(), offer.gpu, kind)
    if (
        isinstance(refused := law.room(offer.gpu, 1, 4096), Rejection)
        and "unknown architecture" in refused.message
    ):
        return  # the engine has no class for the model
    rooms = [law.room(offer.gpu, seqs, 4096) for seqs in ask.seqs]
    held = [room.runs(4096, 512) if isinstance(room, Capacity) else 0 for room in rooms]
    # What max_num_seqs itself allows is no measure of the room.
    short = [runs for runs, seqs in zip(held, ask.seqs, strict=True) if runs < seqs or engine != "vllm"]
    assert short == sorted(short, reverse=True)
    assert held == [*held[: len(held) - len(short)], *short]
    assert held[0] > 0


def test_what_cannot_be_divided_falls_with_its_reason() -> None:
    ask = an_ask("gpt-oss-20b", a_gpu(80), tp=(3,), expert_parallel=False)
    assert {why.code for _, why in classes(ask) if why is not None} >= {"heads"}
    ask = an_ask("gpt-oss-20b", a_gpu(80), tp=(64,), expert_parallel=True, dp=(3,))
    assert any(why is not None and why.code == "experts" for _, why in classes(ask))


def test_tensor_parallelism_stays_in_a_node_unless_nothing_else_does() -> None:
    small = a_gpu(24, (8, 6), node=2)
    inside = search(an_ask("qwen3-32b", small, pp=(1, 2, 4, 8), quality="lossless"), wanted=1).found[0]
    assert inside.one.layout.tp <= 2
    outside = search(an_ask("qwen3-32b", small, pp=(1,), quality="lossless"), wanted=1).found[0]
    assert outside.one.layout.tp > 2


def test_replicas_follow_by_division() -> None:
    ask = an_ask("llama-3.1-8b", a_gpu(80), requests=500, tp=(1,), pp=(1,), quality="lossless")
    found = search(ask, wanted=1).found[0]
    assert (found.replicas - 1) * found.capacity < 500 <= found.requests


def test_objectives() -> None:
    cheap, dear = priced(a_gpu(24, (8, 9)), 30, 8), priced(a_gpu(80), 400, 8)
    few = search(an_ask("llama-3.1-8b", cheap, dear, requests=64, objective=FEWEST), wanted=1).found[0]
    low = search(an_ask("llama-3.1-8b", cheap, dear, requests=64, objective=COST), wanted=1).found[0]
    most = search(an_ask("llama-3.1-8b", cheap, dear, requests=64, objective=REQUESTS), wanted=1).found[0]
    assert few.offer == dear
    assert low.offer == cheap
    assert low.cost is not None
    assert few.cost is not None
    assert low.cost < few.cost
    assert most.gpus == 8
    assert most.requests > few.requests


def test_what_has_no_price_is_not_ranked_by_cost() -> None:
    found = search(an_ask("llama-3.1-8b", a_gpu(80), objective=COST), wanted=1)
    assert not found.found
    assert {rejected.why.code for rejected in found.rejected} >= {"price"}


def test_context_takes_the_longest_length_that_holds() -> None:
    lengths = (8192, 32768, 131072)
    ask = an_ask(
        "llama-3.1-8b", priced(a_gpu(40), None, 1), tokens=4096, lengths=lengths, objective="context",
        quality="lossless",
    )  # fmt: skip
    found = search(ask, wanted=1).found[0]
    assert found.max_model_len == 131072
    smaller = an_ask(
        "llama-3.1-8b", priced(a_gpu(24), None, 1), tokens=4096, lengths=lengths, objective="context",
        quality="lossless",
    )  # fmt: skip
    assert search(smaller, wanted=1).found[0].max_model_len == 32768


def test_every_candidate_is_counted_once() -> None:
    ask = an_ask("gpt-oss-20b", a_gpu(16), a_gpu(80), quality="lossless")
    searched = search(ask, wanted=1)
    number = sum(1 for _ in classes(ask)) * len(ask.offers) * len(ask.seqs) * len(ask.lengths)
    assert searched.considered == number


def test_layouts_name_themselves() -> None:
    assert Layout().words() == "1 GPU"
    assert Layout(8, 2, 1, 4, True).words() == "tp 8 · pp 2 · dcp 4 · ep"


_DUMP = """
import json, kvplan
result = kvplan.plan("gpt-oss-20b", requests=20, tokens=8192, gpu=["h100", "l40s", "rtx-3090"], pareto=True)
print(json.dumps(result.model_dump(), sort_keys=False))
"""


def test_the_same_question_gives_the_same_bytes() -> None:
    """Whatever the order of hashes."""
    texts = [
        subprocess.run(
            [sys.executable, "-c", _DUMP],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["best"]["gpus"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "plan qwen3-32b -n 20 -t 16k --fleet inputs/fleet.yaml --objective cost --pareto --levers",
        "plan deepseek-v3 -n 20 -t 16k --gpu 8xh200 --engine sglang --samples 2 --json",
        "plan llama-3.1-405b -n 4 -t 8k --gpu 4xh100 --markdown",
        "export inputs/plans/chat.yaml --to kubernetes",
        "check inputs/plans --env all --format json",
    ],
)
def test_the_same_command_gives_the_same_bytes(words: str, run: Run) -> None:
    there = subprocess.run(
        [sys.executable, "-m", "kvplan", *words.split()],
        check=False,
        capture_output=True,
        cwd=ROOT / "tests" / "cli" / "golden",
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
    ).stdout
    assert there
    assert there.decode() == run(*words.split()).out  # here hashes are random


def test_engines_that_divide_no_memory_are_refused() -> None:
    with pytest.raises(KvplanError, match="does not divide"):
        kvplan.plan("llama-3.1-8b", engine="generic", gpu="h100")


def test_what_the_arithmetic_does_not_know_is_asked_of_the_engine() -> None:
    """Drafts have lines of their own in the budget."""
    drafted = Settings(speculative_method="mtp", num_speculative_tokens=1)
    asked = an_ask("deepseek-v3", a_gpu(180, (10, 0)), base=drafted, tp=(8,), pp=(1,), dp=(1,), dcp=(1,))
    assert isinstance(asked.laws, AskedCapacityModels)
    plain = an_ask("deepseek-v3", a_gpu(180, (10, 0)), tp=(8,), pp=(1,), dp=(1,), dcp=(1,))
    with_draft, without = (search(ask, wanted=1).found[0] for ask in (asked, plain))
    assert with_draft.gpus >= without.gpus
