"""Step times from an engine's own log of its steps: what a log was made with is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api.simulating import deployment
from kvplan.errors import KvplanError
from kvplan.files.iterations import Iteration, read_iterations
from kvplan.simulation.calibrate import ENOUGH, calibrated
from kvplan.simulation.served import FAST, LIKELY, SLOW, Served
from kvplan.simulation.time.speed_clock import SpeedClock

NEW = (
    "(APIServer pid=7) INFO 11-22 09:00:00 [loggers.py:195] Engine 000: Iteration({}): {} context requests, "
    "{} context tokens, {} generation requests, {} generation tokens, iteration elapsed time: {:.4f} ms, "
    "GPU KV cache usage: {:.4f}%\n"
)
OLD = (
    "(EngineCore_DP0 pid=9) INFO 02-18 10:00:00 [core.py:380] Iteration({}): {} context requests, {} context "
    "tokens, {} generation requests, {} generation tokens, iteration elapsed time: {:.4f} ms\n"
)


@pytest.fixture(scope="module")
def served() -> Served:
    return deployment("llama-3.1-8b", gpu="h100", max_model_len=8192)[0]


def _log(served: Served, answers: float, prompts: float, *, line: str = NEW) -> str:
    """Steps of 1 to 64 requests of 1,000 tokens each, some with prompts of 500 beside them, so much slower
    than estimated."""
    clock, engine = served.speeds.clock(LIKELY), served.engine(LIKELY)
    assert isinstance(clock, SpeedClock)
    lines: list[str] = []
    for count in (1, 3, 6, 12, 24, 48):
        for turn in range(ENOUGH):
            used = 100 * count * 1000 / (engine.blocks * engine.block)
            took = clock.line(count, count * 1000)[0] / 1e6 * answers
            lines.append(line.format(len(lines), 0, 0, count, count, took, used))
            if turn % 2 == 0 or count > 12:
                took = clock.mixed(count, count * 1000, 500 + count, [(500, 0)]) * 1e3 * prompts
                used = 100 * (count + 1) * 1000 / (engine.blocks * engine.block)
                lines.append(line.format(len(lines), 1, 500, count, count, took, used))
    return "INFO something else\n".join(lines)


def _file(folder: Path, text: str) -> Path:
    path = folder / "vllm.log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.7, 2.5), (3.0, 1.5)])
def test_the_factors_of_a_log_are_found_again(
    served: Served, factors: tuple[float, float], tmp_path: Path
) -> None:
    answers, prompts = factors
    speeds = calibrated(_file(tmp_path, _log(served, answers, prompts)), served)
    likely, before = speeds.clock(LIKELY), served.speeds.clock(LIKELY)
    assert isinstance(likely, SpeedClock)
    assert likely.line(8, 8000)[0] / before.line(8, 8000)[0] == pytest.approx(answers, rel=0.02)
    assert likely.prompt / 1e9 == pytest.approx(prompts, rel=0.02)
    for name, share in ((FAST, 1 / 1.1), (SLOW, 1.1)):
        clock = speeds.clock(name)
        assert isinstance(clock, SpeedClock)
        least = 0 if clock.limits is None else clock.limits.line(8, 8000)[0]  # what the memory's rate allows
        took = max(share * likely.line(8, 8000)[0], least)
        assert clock.line(8, 8000)[0] == pytest.approx(took, rel=0.02)
    assert speeds.frontends == served.speeds.frontends
    assert "logged steps" in speeds.source


def test_a_log_that_does_not_say_what_is_in_use(served: Served, tmp_path: Path) -> None:
    """Then requests are taken to be as long as a mean prompt."""
    speeds = calibrated(_file(tmp_path, _log(served, 2.0, 2.0, line=OLD)), served)
    ratio = speeds.clock(LIKELY).line(8, 8000)[0] / served.speeds.clock(LIKELY).line(8, 8000)[0]
    assert ratio == pytest.approx(2.0, rel=0.15)


def test_what_a_line_says(tmp_path: Path) -> None:
    text = NEW.format(0, 1, 512, 7, 7, 21.5, 12.5) + OLD.format(1, 0, 0, 3, 3, 8.0)
    assert read_iterations(_file(tmp_path, text)) == (
        Iteration(1, 512, 7, 0.0215, 0.125), Iteration(0, 0, 3, 0.008, None),
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        NEW.format(0, 0, 0, 0, 0, 0.0, 0).replace(" ms", " ms (dummy)"),
        NEW.format(0, 0, 0, 4, 12, 9.0, 1),  # drafts: three tokens a request
        NEW.format(0, 1, 900, 2, 2, 9.0, 1).replace(
            "%", "%, encoder inputs: 4, encoder output embeddings: 9"
        ),
        NEW.format(0, 0, 0, 0, 0, 3.0, 1),
        "Iteration(1): many context requests",
    ],
)
def test_lines_that_are_left_out(line: str, tmp_path: Path) -> None:
    assert read_iterations(_file(tmp_path, line)) == ()


def test_too_few_steps_and_another_deployment(served: Served, tmp_path: Path) -> None:
    few = _file(tmp_path, OLD.format(0, 0, 0, 3, 3, 8.0) * (ENOUGH - 1))
    with pytest.raises(KvplanError, match="fewer than") as caught:
        calibrated(few, served)
    assert "--enable-logging-iteration-details" in caught.value.help[0]
    with pytest.raises(KvplanError, match="another deployment"):
        calibrated(_file(tmp_path, _log(served, 20.0, 1.0)), served)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_has_no_steps(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes((OLD.format(0, 1, 5, 2, 2, 8.0) + text).encode("utf-8", "replace"))
        assert read_iterations(path)[0] == Iteration(1, 5, 2, 0.008, None)
