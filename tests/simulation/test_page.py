"""The page of a simulation: whole, well-formed, without network; its headline and its pictures."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.cli import main
from kvplan.plans.arrival import Arrival
from kvplan.record import replace
from kvplan.report.simulate_html import headline_of, simulation_page
from kvplan.simulation.fleet.run import Dealt
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Outcome, Target
from kvplan.simulation.over_time import STRETCHES, load_over_time
from kvplan.simulation.results import Help, HourNeeds, Rates, ReplicasNeeded, SimulationResult
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.settings import Engine
from tests.report.full.pages import check_pictures, read, rows, section, words

WORDS = ["simulate", "llama-3.1-8b", "--gpu", "h100", "--trace", "examples/traces/chat-sessions.jsonl.gz",
         "--first", "60", "--replicas", "2", "--max-model-len", "16k", "--ttft", "1s", "--quick"]  # fmt: skip


def test_the_page_is_whole_and_asks_for_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "out.html"
    assert main([*WORDS, "--html", str(page)]) == 0
    assert "TTFT p50" in capsys.readouterr().out
    text = page.read_text()
    assert len(text.encode()) < 500_000
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)
    assert "prefers-color-scheme:dark" in text
    tree = read(text)
    assert len(list(tree.iter("svg"))) == 5
    said = words(tree)
    for word in ("Llama-3.1-8B · vLLM 0.33 · 1 × h100", "hit rate", "TTFT p99", "TPOT p50", "preempted",
                 "Where the simulation comes from", "vLLM 0.33's scheduler"):  # fmt: skip
        assert word in said


def run_of(many: int, every_ns: int, target: Target, slow: int = 1) -> Outcome:
    load = Load(tuple(Arrival(at * every_ns, 100, 5) for at in range(many)), name="<b>&")
    return Dealt(load, 1).run(Engine(50), StepTime(10**6 * slow, 10**4, 10), target)


def simulated(target: Target, *runs: Outcome) -> SimulationResult:
    return SimulationResult(
        model="<i>", engine="vllm", version="0.33", release="0.33", trace="<b>&", form="mine", wide=1,
        rate=1.0, seconds=0.5, replicas=1, pools=1, router="round-robin", target=target, step_time="given",
        pool_blocks=(("likely", 50),), runs=tuple((("likely", "likely"), run) for run in runs),
        helps=(Help("a<b", 0.5, 1.0, 2.0),),
    )  # fmt: skip


def page_of(result: SimulationResult) -> ElementTree.Element:
    return read(simulation_page(result, where="1 × h100"))


def test_names_are_escaped() -> None:
    text = simulation_page(simulated(Target(), run_of(50, 10**7, Target())), where="1 × h100")
    assert "<i>" not in text
    assert "<b>&" not in text


TIMES = st.one_of(st.none(), st.integers(1, 10**15))
NEEDED = st.none() | st.integers(0, 64)
HOURS = st.lists(st.tuples(st.integers(0, 10**6), NEEDED, NEEDED), max_size=60)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 10**13),
    st.integers(1, 4000),
    TIMES,
    TIMES,
    st.floats(0.001, 10**6),
    HOURS,
)
def test_pictures_are_whole_whatever_is_simulated(
    many: int, every_ns: int, slow: int, ttft: int | None, tpot: int | None, rate: float,
    hours: list[tuple[int, int | None, int | None]],
) -> None:  # fmt: skip
    """From a burst to a year, with targets near and far: nothing lies outside, no words are cut or touch."""
    target = Target(ttft, tpot)
    result = replace(
        simulated(target, run_of(many, every_ns, target), run_of(many, every_ns, target, slow)),
        sustainable=Rates(rate, rate / 2, rate * 3),
        hours=tuple(HourNeeds(number, *one) for number, one in enumerate(hours, 1)),
    )
    tree = page_of(result)
    check_pictures(tree)
    assert len(list(tree.iter("svg"))) == 5 + bool(hours)
    over_time = section(tree, "Simulated load over time")
    for kind in ("polygon", "polyline"):  # arriving, waiting in all runs, blocks · answered, waiting
        assert len(list(over_time.iter(kind))) == {"polygon": 3, "polyline": 2}[kind]


def test_the_figure_that_fails_is_the_headline() -> None:
    target = Target(ttft_ns=50 * 10**6)
    run = run_of(50, 10**6, target, 20)
    assert 0 < run.goodput < 0.5
    tree = page_of(simulated(target, run))
    (head,) = tree.iter("h1")
    kept = f"{run.goodput * 100:.1f}".removesuffix(".0")
    assert words(head) == f"No: 1 replica keeps {kept} % of requests within TTFT 50 ms; the target is 99 %."
    assert "bad" in (head.get("class") or "")
    shown = {words(row[0]): words(row[2]) for row in rows(section(tree, "Simulated figures"))}
    assert shown["within the target"] == "99.0 %, missed"
    assert shown["TTFT p99"] == "50 ms, missed"
    assert shown["TTFT p50"] == ""
    missed = replace(
        simulated(target, run), missed=("TTFT is 9 s, 1 s is required", "TPOT is 2 s, 1 s is required")
    )
    tree = page_of(missed)
    assert words(next(tree.iter("h1"))) == "No: TTFT is 9 s, 1 s is required."
    assert "No: TPOT is 2 s, 1 s is required." in words(next(tree.iter("header")))


def test_what_is_kept_is_the_headline_where_nothing_fails() -> None:
    target = Target(ttft_ns=10**9)
    result = simulated(target, run_of(50, 10**8, target))
    (head,) = page_of(result).iter("h1")
    assert words(head) == "1 replica keeps 99 % of requests within TTFT 1 s; safely too."
    assert "bad" not in (head.get("class") or "")
    assert headline_of(replace(result, needed=ReplicasNeeded(None, None, 64))).startswith(
        "No: none of 1 to 64"
    )
    assert headline_of(simulated(Target(), run_of(50, 10**8, Target()))).startswith("1 replica keeps up")


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5)),
        min_size=1,
        max_size=30,
    )
)
def test_waiting_over_time_is_the_waits_together(found: list[tuple[int, int, int]]) -> None:
    """Little's law: the mean queue times the time is the sum of all waits. Nobody is lost."""
    came = sorted(at for at, _, _ in found)
    admitted = sorted(at + wait for at, wait, _ in found)
    finished = sorted(at + wait + run for at, wait, run in found)
    end = finished[-1] + 1
    load = load_over_time(came, admitted, finished, end)
    assert sum(load.arrived) == sum(load.answered) == len(found)
    edges = [end * place // STRETCHES for place in range(STRETCHES + 1)]
    together = sum(mean * (after - before) for mean, before, after in zip(load.waiting, edges, edges[1:]))
    assert together == pytest.approx(sum(wait for _, wait, _ in found))
    assert max(load.waiting) <= load.most_waiting + 1e-9
    assert load.most_waiting <= len(found)
    assert load.by(24).waiting[0] == pytest.approx(sum(load.waiting[:4]) / 4)


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--html", str(tmp_path / "no" / "out.html")]) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())
    assert main([*WORDS, "--html", "x.html", "--sweep", "replicas=1,2"]) == 2
    assert "sweep" in capsys.readouterr().err
