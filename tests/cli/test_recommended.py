"""What a screen recommends holds when it is typed: next:, look: and help: of a sample of questions."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.cli.conftest import Run

SERVED = [
    "size qwen3-32b -t 8k --gpu h100,h200",
    "size qwen3-32b -t 8k,16k,32k --gpu h100,h200",
    "size qwen3-32b -n 30 -t 8k,32k --gpu h100,2xh100,h200",
    "size qwen3-32b --gpu h100,h200 --tp 1,2",
    "size qwen3-32b -t 64k --max-model-len 64k --any-length --gpu h200",
    "size qwen3-32b -t 64k --max-model-len 64k --any-length --gpu h100,h200",
    "size qwen2.5-vl-7b -t 4k --images 2 --image-size 1280x720 --gpu h100",
    "size qwen3-32b -t 8k -q fp8 --gpu h100",
    "size llama-3.1-8b --gpu h100 --enable-lora --max-loras 4 -t 5k",
    "size deepseek-v3 --gpu 8xh200 --tp 8 --speculative mtp:1 -t 8k",
    "size llama-3.3-70b -e llamacpp -q q3_k_m --gpu rtx-4090 --host-memory 64GiB -t 4k",
    "size qwen3-30b-a3b -e llamacpp -q q4_k_m -cmoe --gpu rtx-4090 -t 4k",
    "size --gpu h100 -- vllm serve Qwen/Qwen3-32B -tp 2",
    "size --gpu rtx-4090 -- llama-server -hf bartowski/Qwen3-8B-GGUF:Q4_K_M -c 8192",
    "fits ministral-3-8b --gpu rtx-4090 -e vllm",
    "fits gemma-3-12b --gpu rtx-4090 -e llamacpp -n 2",
    "fits llama-3.3-70b --gpu rtx-4090 -e llamacpp --host-memory 64GiB -t 4k",
]
REFUSED = [
    "size qwen2.5-vl-7b --gpu rtx-4090 -t 16384 --images 4 --image-size 1280x720 --max-model-len 16k",
    "size qwen3-32b --gpu h100 -t 32k",
    "size qwen3-32b --gpu h100",
    "size qwen3-vl-32b --gpu h100 --images 2 --image-size 4000x3000 -t 32k",
    "size qwen3-32b --gpu h200 -t 64k",
    "size qwen3-32b --gpu h200 -t 64k --any-length",
    "size qwen3-32b --gpu h200 -t 64k --max-model-len 64k",
    "size qwen3-32b --gpu h200 -t 64k -e sglang",
    "size qwen3-32b --gpu h200 -t 64k --max-model-len 64k -e sglang",
    "size qwen3-8b --gpu 4090 -t 32k -n 9",
    "size qwen2.5-vl-7b --gpu rtx-4090 -t 8k -n 20 --images 4 --image-size 1280x720 --max-model-len 16k",
    "size qwen3-32b --gpu h100 --tp 3",
    "size nemotron-h-56b --gpu 2xh200",
    "size qwen3-14b --gpu rtx-3060 -t 32k",
    "size llama-3.3-70b --gpu 2xrtx-3090 -t 8k",
    "size gpt-oss-120b --gpu rtx-4090",
]


def _recommended(out: str, label: str) -> list[str]:
    """The lines of a label, with what was wrapped below them."""
    found: list[str] = []
    open_ = False
    for row in out.splitlines():
        text = row.strip()
        if re.match(r"[a-z]+: ", text):
            open_ = text.startswith(f"{label}: ")
            if open_:
                found.append(text.removeprefix(f"{label}: ").strip())
        elif open_ and row.startswith("    "):
            found[-1] += " " + text
        else:
            open_ = False
    return found


def _typed(question: str, help_text: str) -> list[str]:
    """The question with the options of a help in the place of its own."""
    words, more = question.split(), shlex.split(help_text.partition(": ")[0])
    same = {"-t": "--tokens", "-n": "--requests"}
    for flag in (word for word in more if word.startswith("-")):
        for place, word in enumerate(words):
            if same.get(word, word) == flag:
                del words[place : place + 2]
                break
    return [*words, *more]


@pytest.mark.parametrize("question", SERVED)
def test_what_comes_next_serves_what_is_served(run: Run, question: str) -> None:
    asked = run(*question.split())
    assert asked.code == 0, asked.out + asked.err
    for command in [*_recommended(asked.out, "next"), *_recommended(asked.out, "look")]:
        words = shlex.split(command)
        assert words[0] == "kvplan"
        ran = run(*words[1:])
        assert ran.code == 0, f"{command}\n{ran.out}{ran.err}"


@pytest.mark.parametrize("question", REFUSED)
def test_a_help_that_is_shown_helps(run: Run, question: str) -> None:
    asked = run(*question.split())
    assert asked.code == 1, asked.out + asked.err
    helps = [text for text in _recommended(asked.out, "help") if text.startswith("-")]
    assert helps, asked.out
    for text in helps:
        ran = run(*_typed(question, text))
        assert ran.code == 0, f"{text}\n{ran.out}{ran.err}"


def test_at_a_desk_the_build_that_people_run_comes_first(run: Run) -> None:
    """Not where something was asked for that it does not have, nor in a data centre."""
    for question in REFUSED[-3:]:
        assert _recommended(run(*question.split()).out, "help")[0].startswith("-e llamacpp -q ")
    for question in ("size llama-3.3-70b --gpu rtx-4090 --kv-cache-dtype fp8", "size llama-3.3-70b --gpu l4"):
        assert "llamacpp" not in run(*question.split()).out


@pytest.mark.parametrize("question", REFUSED[:7])
def test_json_has_the_helps_of_the_screen(run: Run, question: str) -> None:
    refusal = json.loads(run(*question.split(), "--json").out)["refusal"]
    shown = " ".join(run(*question.split()).out.split())
    assert all(text in shown for text in refusal["help"])


def test_a_length_that_was_made_shorter_is_announced(run: Run) -> None:
    shown = run("validate", "qwen3-8b", "--dry-run", "--kv-cache-memory", "4GiB").out
    assert "requests of 29,104 tokens: 40,960 do not fit the pool" in shown


def test_a_table_says_what_its_servers_are_started_with(run: Run) -> None:
    shown = run("size", "qwen3-32b", "-t", "8k", "--gpu", "h100,h200").out
    assert "started with --max-model-len 8192" in shown


@pytest.mark.parametrize(
    "question",
    [
        "plan qwen2.5-vl-7b -n 2 -t 8k --images 1 --image-size 1280x720 -g h100",
        "plan qwen2.5-vl-7b -t 8k --video-frames 8 --image-size 640x480 -g h100",
        "validate qwen2.5-vl-7b --dry-run --kv-cache-memory 8GiB -t 4k --images 2 --image-size 640x480",
    ],
)
def test_media_are_taken_as_size_takes_them(run: Run, question: str) -> None:
    ran = run(*question.split())
    assert ran.code == 0, ran.err
    words = question.split()
    media = words[words.index("-t") :]
    length = [word for word in media if word not in ("-g", "h100")]
    sized = json.loads(run("size", words[1], *length, "--json").out)
    assert f"{sized['request']['tokens']:,} tokens" in " ".join(ran.out.split())


def test_media_beside_a_plan_are_refused_in_words(run: Run) -> None:
    question = ("plan", "qwen2.5-vl-7b", "--input-tokens", "2k", "--output-tokens", "1k", "--images", "1")
    ran = run(*question, "-g", "h100")
    assert ran.code == 2
    assert "()" not in ran.err


@pytest.mark.parametrize("question", ["explain qwen3-8b -t 8k,32k", "explain qwen3-8b -e vllm,sglang"])
def test_a_list_for_explain_is_told_the_command_that_takes_it(run: Run, question: str) -> None:
    ran = run(*question.split())
    assert ran.code == 2
    command = ran.err.partition("help: ")[2].strip()
    assert run(*shlex.split(command)[1:]).code == 0


@pytest.mark.parametrize("more", [(), ("-t", "400"), ("-n", "2")])
def test_no_pool_on_a_gpu_is_one_exit_code(run: Run, more: tuple[str, ...]) -> None:
    assert run("size", "whisper-large-v3", "--gpu", "l4", *more).code == 2
