"""No option of a server is dropped in silence: counted, without effect on memory, or named in the answer."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.engines.launch import flags_of_server
from kvplan.engines.open_flags import LARGE, Effect, effect_of, reasons

ENGINES = ("vllm", "sglang", "llamacpp")
START = {
    "vllm": "vllm serve meta-llama/Llama-3.1-8B-Instruct",
    "sglang": "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct",
    "llamacpp": "llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 8192",
}
OPEN = (Effect.OPEN, Effect.LARGE)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_has_an_effect(engine: str) -> None:
    """The list is the engine's own parser's: an option that a new release brings is open until it is read."""
    flags = {flag.names[0]: flag for flag in flags_of_server(engine).values()}
    found = {name: effect_of(engine, flag) for name, flag in flags.items()}
    assert set(found.values()) >= {Effect.COUNTED, Effect.NONE, Effect.OPEN}
    large = {name for name, effect in found.items() if effect is Effect.LARGE}
    assert large == set(LARGE[engine]), "an option that is counted now leaves the list of those that are not"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_open_is_named_in_the_answer(engine: str) -> None:
    """Open options of the list, one by one, as a server's command has them: in the warnings that JSON has."""
    open_ones = [
        flag
        for flag in dict.fromkeys(flags_of_server(engine).values())
        if effect_of(engine, flag) in OPEN and flag.values in ("0", "1")
    ]
    assert len(open_ones) > 40
    for flag in open_ones[:: max(1, len(open_ones) // 25)]:
        name = flag.names[0]
        words = f"{START[engine]} {name}" + (" 1" if flag.values == "1" else "")
        try:
            said = " ".join(kvplan.size(kvplan.from_command(words, gpu="h100")).model_dump()["warnings"])
        except kvplan.KvplanError as error:
            said = str(error)
        assert name in said, (words, said[:300])


def test_what_may_move_the_pool_says_how() -> None:
    said = list(reasons("llamacpp", ["--spec-default", "--spec-draft-p-min 0.5"]))
    assert len(said) == 1
    assert "draft" in said[0]
    assert next(iter(reasons("vllm", ["--enable-dbo", "--watermark 0.1"]))).startswith("--enable-dbo")
    assert not list(reasons("vllm", ["--watermark 0.1", ""]))
    assert not list(reasons("nobody", ["--enable-dbo"]))
