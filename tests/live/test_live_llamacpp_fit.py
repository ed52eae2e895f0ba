"""llama.cpp's own fitting, asked again: built from the source beside the installed llama-cpp-python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from scripts.record_llamacpp_fit import asked, built, short
from tests.recorded import record

pytestmark = pytest.mark.llamacpp
ASKED = ("Qwen__Qwen3-14B", "openai__gpt-oss-20b", "Qwen__Qwen3-30B-A3B")


def test_some_settings_are_decided_as_recorded(tmp_path: Path) -> None:
    source = os.environ.get("LLAMA_CPP_SOURCE")
    if source is None:
        pytest.skip("LLAMA_CPP_SOURCE names no source of llama.cpp (make live-llamacpp)")
    program = built(Path(source), Path(source).parent / "fit")
    kept: dict[str, Any] = record("llamacpp_fit")["answers"]
    answers = asked(program, tmp_path, ASKED)
    assert len(answers) >= 20
    for name, answer in answers.items():
        mine = short(answer)
        assert {key: mine[key] for key in ("n_ctx", "ngl", "split")} == {
            key: kept[name][key] for key in ("n_ctx", "ngl", "split")
        }, name
