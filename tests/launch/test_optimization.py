"""vLLM's levels of optimisation in a command: no compiled code and no graphs, piecewise ones, all of them."""

from __future__ import annotations

import pytest

from kvplan.api.launching import started_readings


@pytest.mark.parametrize(
    ("words", "eager", "mode", "unread"),
    [
        ("-O0", True, None, ()), ("-O 0", True, None, ()), ("--optimization-level 0", True, None, ()),
        ("-O1", False, "piecewise", ()), ("--optimization-level=1", False, "piecewise", ()),
        ("-O2", False, None, ()), ("-O3", False, None, ()), ("", False, None, ()),
        ("-O7", False, None, ("--optimization-level 7",)), ("-tp2", False, None, ("-tp2",)),
        ('-O1 --compilation-config {"cudagraph_mode":"none"}', False, "none", ()),
    ],
)  # fmt: skip
def test_the_level_is_read(words: str, eager: bool, mode: str | None, unread: tuple[str, ...]) -> None:
    text = f"vllm serve Qwen/Qwen3-8B --max-model-len 8192 {words}".replace('{"', "'{\"").replace("}", "}'")
    (reading,) = started_readings(text, "h100")
    assert reading.plan is not None
    settings = reading.plan.settings
    assert settings.enforce_eager is eager
    assert settings.own.get("cudagraph_mode") == mode
    assert reading.plan.unread == unread
