"""The page of a simulation: whole, well-formed, without network."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvplan.cli import main
from kvplan.plans.arrival import Arrival
from kvplan.report.html.svg import HIGH, WIDE
from kvplan.report.simulate_html import simulation_page
from kvplan.simulation.fleet.run import Dealt
from kvplan.simulation.load.load import Load
from kvplan.simulation.outcome import Target
from kvplan.simulation.results import Help, SimulationResult
from kvplan.simulation.time.clock import StepTime
from kvplan.simulation.vllm.settings import Engine

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
    tree = ElementTree.fromstring(text)
    assert len(tree.findall(".//svg")) == 3
    assert all(svg.get("aria-label") for svg in tree.findall(".//svg"))
    said = " ".join(tree.itertext())
    for word in (
        "hit rate",
        "TTFT p99",
        "TPOT p50",
        "preempted",
        "Where the simulation comes from",
        "vLLM 0.33's scheduler",
    ):
        assert word in said


def test_points_lie_within_the_picture_and_names_are_escaped() -> None:
    load = Load(tuple(Arrival(at * 10**7, 100 + at, 5) for at in range(50)), name="<b>&")
    run = Dealt(load, 1).run(Engine(500), StepTime(), Target())
    result = SimulationResult(
        model="<i>", engine="vllm", version="0.33", release="0.33", trace=load.name, form="mine", wide=1,
        rate=1.0, seconds=0.5, replicas=1, pools=1, router="round-robin", target=Target(), step_time="given",
        pool_blocks=(("likely", 500),), runs=((("likely", "likely"), run),),
        helps=(Help("a<b", 0.5, 1.0, 2.0),),
    )  # fmt: skip
    text = simulation_page(result, where="1 × h100")
    assert "<i>" not in text
    assert "<b>" not in text
    for points in re.findall(r'points="([^"]+)"', text):
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= WIDE
            assert 0 <= y <= HIGH


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--html", str(tmp_path / "no" / "out.html")]) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())
    assert main([*WORDS, "--html", "x.html", "--sweep", "replicas=1,2"]) == 2
    assert "sweep" in capsys.readouterr().err
