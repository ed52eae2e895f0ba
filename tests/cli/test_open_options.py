"""What a command's options leave open is said by every command, with its reason, in JSON too."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run

START = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --enable-dbo"


@pytest.mark.parametrize(
    "words",
    [
        ("size", "--gpu", "h100"),
        ("explain",),
        ("import", "--gpu", "h100"),
        ("check", "--gpu", "h100", "--format", "json"),
        ("plan", "--gpu", "h100", "--input-tokens", "500", "--output-tokens", "100"),
        ("simulate", "--gpu", "h100", "--generate", "requests=20,input=200,output=20", "--quick"),
    ],
    ids=lambda words: str(words[0]),
)
def test_every_command_says_the_reason_in_json(words: tuple[str, ...], run: Run) -> None:
    command, *more = words
    own = () if "--format" in more else ("--json",)
    ran = run(command, START, *more, *own)
    assert ran.code in (0, 1), ran.err
    said = json.dumps(json.loads(ran.out))
    assert "--enable-dbo" in said
    assert "two batches at once have buffers of their own" in said
