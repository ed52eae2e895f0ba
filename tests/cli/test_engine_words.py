"""Engines' own words on the command line, and ``--set``: the same answers as our flags give."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from kvplan.cli.commands import COMMANDS
from kvplan.cli.engine_words import in_our_words
from kvplan.engines import OPTIONS_OF, choose_engine, engine_named
from kvplan.errors import KvplanError
from kvplan.plans.words import words_of
from tests.cli.conftest import Run, run

__all__ = ["run"]


def _ours(line: str) -> str:
    return shlex.join(in_our_words(["size", "m", *shlex.split(line)], {"KVPLAN_CONFIG": ""})[2:])


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("-e sglang --context-length 32k --tp-size 2", "-e sglang --max-model-len 32k --tp 2"),
        ("--max-running-requests=8 --engine=sglang@0.5.9", "--max-num-seqs=8 --engine=sglang@0.5.9"),
        ("-e sglang --disable-cuda-graph", "-e sglang --enforce-eager"),
        ("-e trtllm --max-seq-len 8k --max-batch-size 4", "-e trtllm --max-model-len 8k --max-num-seqs 4"),
        ("-e trt-llm --max_num_tokens 512", "-e trt-llm --max-num-batched-tokens 512"),
        ("-e trtllm --ep-size 2", "-e trtllm --moe-expert-parallel-size 2"),
        ("-e sglang --ep-size 2", "-e sglang --ep-size 2"),
        ("-e llama.cpp -c 8192 -np 2", "-e llama.cpp --ctx-size 8192 --parallel 2"),
        ("-c 8192", "--ctx-size 8192"),
        ("-e tgi --max-total-tokens 4096", "-e tgi --max-model-len 4096"),
        ("-e sglang --max-total-tokens 4096", "-e sglang --max-total-tokens 4096"),
        ("-e trtllm,sglang --tp-size 2", "-e trtllm,sglang --tp 2"),
        ("--enable-lora --max-loras 4 -t 8k", "--enable-lora --max-loras 4 -t 8k"),
        ("--set max_loras=4 --set enable-lora=on", "--max-loras=4 --enable-lora"),
        ("--set enable_lora=false", "--no-enable-lora"),
        ("--set=tensor_parallel_size=4 --set tp=2", "--tp=4 --tp=2"),
        ("--set chunked_prefill_size=-1", "--chunked-prefill-size=-1"),
        ("-e sglang --set context_length=8k", "-e sglang --max-model-len=8k"),
        ("""--set 'limit_mm_per_prompt={"image": 2}'""", """'--limit-mm-per-prompt={"image": 2}'"""),
        ("--nope 3 -- --context-length", "--nope 3 -- --context-length"),
    ],
)
def test_words_become_ours(typed: str, ours: str) -> None:
    assert _ours(typed) == ours


@pytest.mark.parametrize(
    ("typed", "code", "message", "help_"),
    [
        ("--context-length 8k", "unknown-option", "--context-length is SGLang's word for --max-model-len",
         ("--max-model-len", "-e sglang")),
        ("-e vllm --max-seq-len 8k", "unknown-option",
         "--max-seq-len is TensorRT-LLM's word for --max-model-len",
         ("--max-model-len", "-e trtllm")),
        ("--set max_lorass=4", "unknown-option", "--set: there is no setting 'max_lorass'",
         ("did you mean max_loras?",)),
        ("--set tokens", "bad-usage", "--set takes NAME=VALUE, not 'tokens'",
         ("--set max_model_len=32k, for example",)),
        ("-e nope --context-length 8", "unknown-engine", "unknown engine 'nope'", None),
    ],
)  # fmt: skip
def test_what_is_no_word_here_says_whose_it_is(
    typed: str, code: str, message: str, help_: tuple[str, ...] | None
) -> None:
    with pytest.raises(KvplanError) as caught:
        _ours(typed)
    assert (caught.value.code, caught.value.message) == (code, message)
    assert help_ is None or caught.value.help == help_


def test_the_engine_may_be_said_elsewhere(tmp_path: Path) -> None:
    line = ["size", "m", "--context-length", "8k"]
    wanted = ["size", "m", "--max-model-len", "8k"]
    assert in_our_words(line, {"KVPLAN_ENGINE": "sglang", "KVPLAN_CONFIG": ""}) == wanted
    path = tmp_path / "config.yaml"
    path.write_text("engine: sglang\n")
    assert in_our_words(line, {"KVPLAN_CONFIG": str(path)}) == wanted


@pytest.mark.parametrize("engine", OPTIONS_OF)
def test_every_word_is_an_option_or_nothing(engine: str) -> None:
    """None is read as another engine's, and each that has an option here comes to it."""
    options = {option.name: option for option in COMMANDS["size"].options}
    spelt = {flag.lstrip("-").replace("-", "_") for option in options.values() for flag in option.flags}
    for word, setting in words_of(engine).items():
        if setting in options and (word == setting or word not in spelt):
            (flag,) = in_our_words(["size", "-e", engine, f"--set={word}=on"], {"KVPLAN_CONFIG": ""})[3:]
            named = next(one for one in options.values() if flag.partition("=")[0] in one.flags)
            assert named.name == setting, word


def test_an_answer_in_an_engine_s_words_is_the_same(run: Run) -> None:
    asked = ("size", "inputs/llama.json", "-e", "sglang", "--json", "-t", "1000")
    ours = run(*asked, "--max-model-len", "4k", "--tp", "2", "--max-num-seqs", "8")
    theirs = run(*asked, "--context-length", "4k", "--tp-size", "2", "--max-running-requests", "8")
    by_name = run(*asked, *shlex.split("--set context_length=4k --set tp_size=2 --set max_num_seqs=8"))
    assert json.loads(ours.out)["settings"]["context_len"] == 4096
    assert ours.out == theirs.out == by_name.out


def test_a_misspelt_word_of_an_engine_has_a_nearest_one(run: Run) -> None:
    ran = run("size", "inputs/llama.json", "-e", "sglang", "--contxt-length", "8k")
    assert ran.code == 2
    assert "did you mean --context-length?" in ran.err


@pytest.mark.parametrize(
    ("word", "engine"),
    [
        ("llama.cpp", "llamacpp"), ("llama-cpp", "llamacpp"), ("LLaMA_cpp", "llamacpp"),
        ("tensorrt-llm", "trtllm"), ("TRT-LLM", "trtllm"), ("TensorRT-LLM", "trtllm"), ("vLLM", "vllm"),
        ("ollama", "llamacpp"), ("nope", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_engines(word: str, engine: str | None) -> None:
    assert engine_named(word) == engine
    if engine is not None:
        assert choose_engine(word).engine.name == engine
