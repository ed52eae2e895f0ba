"""What every screen keeps to: so many lines, so many columns, both figures in front, nothing lost with -v."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvplan.report.size import MOST_LINES
from tests.cli.conftest import Ran, Run

H100 = ("--gpu", "h100")
SIZES = [
    ("qwen3-32b",),
    ("gemma-3-27b", *H100, "-t", "8k"),
    ("qwen3-235b-a22b", "--gpu", "8xh100", "-t", "8k"),
    ("qwen3-32b", *H100),
    ("deepseek-v3", "--gpu", "h200x8", "--dp", "8", "--enable-expert-parallel", "-t", "8k"),
    ("deepseek-v3", "-e", "sglang", "--gpu", "8xh200", "-n", "64", "-t", "8k"),
    ("llama-3.3-70b", "-e", "llamacpp", "--gpu", "2xrtx-3090", "-q", "q4_k_m", "-t", "8k"),
    ("llama-3.1-8b", *H100, "--enable-lora", "--max-loras", "4", "-t", "5k"),
    ("nemotron-h-56b", "--gpu", "2xh200"),
    ("deepseek-v4-flash", "--gpu", "4xh200", "-t", "128k"),
    ("whisper-large-v3", *H100),
    ("llama-3.1-8b", "--kv-cache-memory", "15GiB"),
    ("qwen3-32b", *H100, "--tp", "3"),
]
IDS = [" ".join(words) for words in SIZES]


def _shown(run: Run, words: tuple[str, ...], columns: int) -> Ran:
    return run("size", *words, environment={"COLUMNS": str(columns)})


@pytest.mark.parametrize("words", SIZES, ids=IDS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_answer_is_on_one_screen(run: Run, words: tuple[str, ...], columns: int) -> None:
    ran = _shown(run, words, columns)
    rows = ran.out.splitlines()
    assert ran.code in (0, 1, 2), ran.err
    assert rows
    assert len(rows) <= MOST_LINES
    assert max(map(len, rows)) <= columns
    warnings = [row for row in rows if row.startswith("  warning: ")]
    assert len(warnings) == len(set(warnings))


@pytest.mark.parametrize("words", SIZES, ids=IDS)
def test_an_estimate_has_no_single_bytes(run: Run, words: tuple[str, ...]) -> None:
    """Of a GPU's budget everything is an estimate: GiB with two decimals."""
    shown = _shown(run, words, 80).out
    memory = shown.partition("memory of ")[2].partition("\n\n")[0]
    assert not re.search(r"\d,\d{3},\d{3}", memory)
    assert " B" not in memory


@pytest.mark.parametrize("words", SIZES, ids=IDS)
def test_a_table_of_requests_has_both_figures_and_the_sentence_too(run: Run, words: tuple[str, ...]) -> None:
    shown = _shown(run, words, 120).out
    head = shown.partition("\n\n")[0].replace("\n", " ")
    if "requests at once" in shown and not head.startswith("No:"):
        assert "likely" in head
        assert "safely" in head


@pytest.mark.parametrize("words", SIZES, ids=IDS)
def test_all_is_there_with_v(run: Run, words: tuple[str, ...]) -> None:
    short, whole = _shown(run, words, 80), run("size", *words, "-v")
    assert whole.code == short.code
    assert whole.out.partition("\n")[0] == short.out.partition("\n")[0]
    assert "  with:   " in whole.out
    assert "  rules:  " in whole.out
    for figure in re.findall(r"(\d+\.\d\d) GiB", short.out.partition("all else")[0]):
        assert figure in whole.out, figure


def test_a_narrow_terminal_wraps_the_words(run: Run) -> None:
    rows = _shown(run, ("gemma-3-27b",), 40).out.splitlines()
    prose = [row for row in rows if not re.search(r"\d{3}$", row)]
    assert max(map(len, prose)) <= 60


def test_a_wide_terminal_is_used_up_to_120_columns(run: Run) -> None:
    words = ("deepseek-v3", "--gpu", "h200x8", "--dp", "8", "--enable-expert-parallel", "-t", "8k")
    narrow, wide, widest = (_shown(run, words, columns).out for columns in (80, 120, 300))
    assert len(wide.splitlines()[0]) > 80
    assert wide == widest
    assert len(wide.splitlines()) <= MOST_LINES
    assert max(map(len, narrow.splitlines())) <= 80


EXPLAINED = [
    ("qwen3-32b",),
    ("gemma-3-27b",),
    ("deepseek-v3", "--tp", "8"),
    ("deepseek-v4-flash",),
    ("nemotron-h-56b",),
    ("gpt-oss-20b", "-e", "generic"),
    ("whisper-large-v3",),
]


@pytest.mark.parametrize("words", EXPLAINED, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 120])
def test_an_explanation_is_on_one_screen_and_says_the_sum(
    run: Run, words: tuple[str, ...], columns: int
) -> None:
    ran = run("explain", *words, environment={"COLUMNS": str(columns)})
    rows = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert len(rows) <= 20
    assert max(map(len, rows)) <= columns
    data = json.loads(run("explain", *words, "--json").out)
    assert f"{data['data_bytes']:,} B" in " ".join(ran.out.split())
    assert f"{data['per_gpu']['kv_bytes_per_request']:,} B" in " ".join(ran.out.split())
    whole = run("explain", *words, "-v").out
    for layer in data["layers"]:
        assert all(term["name"] in whole for term in layer["terms"])
        assert all(part["source"].split()[0] in whole for part in layer["parts"] if part["source"])


PLANNED = [
    ("llama-3.3-70b", "-n", "100", "-t", "8k", "--gpu", "h100,h200"),
    ("gpt-oss-120b", "-n", "5000", "-t", "128k", "--gpu", "rtx-4090", "--max-gpus", "2"),
    ("qwen3-32b", "-t", "8k", "--gpu", "4xl40s", "--tpot", "50ms"),
    ("qwen3-8b", "-e", "llamacpp", "--gpu", "rtx-4090", "-t", "24k"),
]


@pytest.mark.parametrize("words", PLANNED, ids=" ".join)
@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_is_on_one_screen(run: Run, words: tuple[str, ...], columns: int) -> None:
    ran = run("plan", *words, environment={"COLUMNS": str(columns)})
    rows = ran.out.splitlines()
    assert ran.code in (0, 1), ran.err
    assert len(rows) <= 25
    assert max(map(len, rows)) <= columns
    assert ("likely" in rows[0] + rows[1]) == (ran.code == 0)


def test_what_moves_a_plan_is_there_with_v(run: Run) -> None:
    words = PLANNED[0]
    short, whole = run("plan", *words).out, run("plan", *words, "-v").out
    for title in ("What moves the answer most", "Why others were rejected", "What formats hold on them"):
        assert title not in short
        assert title in whole
    assert short.splitlines()[:6] == whole.splitlines()[:6]


def test_lengths_on_a_gpu_are_answered_in_requests(run: Run) -> None:
    """8k, 32k and 128k: how many requests, likely and safely; the same counts as one by one."""
    model = ("llama-3.3-70b", "--gpu", "8xh100")
    shown = run("size", *model, "-t", "8k,32k,128k").out
    for tokens in (8192, 32768, 131072):
        one = run("size", *model, "-t", str(tokens), environment={"COLUMNS": "120"}).out.splitlines()[0]
        likely = re.search(r"holds ([\d,]+) request", one)
        assert likely is not None, one
        row = next(row.split() for row in shown.splitlines() if row.strip().startswith(f"{tokens:,} "))
        assert row[2] == likely[1]
        assert f"safely {row[3]}" in one or row[2] == row[3]


def test_a_length_that_does_not_start_says_why(run: Run) -> None:
    """Beside a length that does, each has a server of its own; alone its reason is said."""
    both = run("size", "qwen3-32b", *H100, "-t", "8k,40k")
    assert both.code == 0
    rows = [row.split() for row in both.out.splitlines() if re.match(r"  +(8,192|40,960) ", row)]
    assert [(row[0], row[2] == "0") for row in rows] == [("8,192", False), ("40,960", True)]
    assert "each length is sized with a server of its own" in both.out
    alone = run("size", "qwen3-32b", *H100, "-t", "40k")
    assert alone.code == 1
    assert "would not serve" in alone.out
    assert "help: --tokens" in alone.out


@pytest.mark.parametrize("asked", [("-t", "8k"), ("-t", "1")])
def test_a_server_is_started_for_the_requests_and_no_longer(run: Run, asked: tuple[str, ...]) -> None:
    """The model's own 40,960 tokens would not start on this GPU."""
    ran = run("size", "qwen3-8b", "-e", "vllm@0.27", "--gpu", "rtx-4090", *asked)
    assert ran.code == 0
    assert ran.out.startswith("Yes: ")
    assert "started with --max-model-len" in " ".join(ran.out.split())


@pytest.mark.parametrize("asked", [(), ("-t", "36k"), ("--max-model-len", "40960")])
def test_a_start_that_only_estimates_speak_against_is_unlikely(run: Run, asked: tuple[str, ...]) -> None:
    """Whatever requests are asked for: the start is of max_model_len."""
    ran = run("size", "qwen3-8b", "-e", "vllm@0.27", "--gpu", "rtx-4090", *asked)
    assert ran.code == 1
    assert ran.out.startswith("Unlikely: ")
    words = r"It may start: the interval reaches \d\.\d\d GiB, \d\.\d\d GiB are needed"
    assert re.search(words, " ".join(ran.out.split()))


@pytest.mark.parametrize(
    "asked", [("llama-3.1-8b",), ("llama-3.1-8b", "-t", "100k"), ("qwen3-8b", "-n", "2")]
)
def test_a_start_that_no_estimate_allows_is_no(run: Run, asked: tuple[str, ...]) -> None:
    ran = run("size", *asked, "--gpu", "rtx-4090")
    assert (ran.code, ran.out[:4]) == (1, "No: ")


def test_a_model_that_fits_as_another_engine_s_build_says_so(run: Run) -> None:
    ran = run("fits", "codellama-34b", "--gpu", "rtx-3090", "-e", "vllm")
    assert ran.code == 1
    assert ran.out.endswith("help: -e llamacpp: codellama-34b fits as q4_k_m\n")
    assert run("fits", "codellama-34b", "--gpu", "rtx-3090", "-e", "llamacpp").code == 0
    assert "help:" not in run("fits", "deepseek-v3", "--gpu", "rtx-4090", "-e", "vllm").out


_SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-draft-model-path x/y "
LEFT_OUT = [
    _SGLANG + "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 4",
    _SGLANG + "--speculative-algorithm DFLASH",
    "trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options eagle.yaml",
]


@pytest.mark.parametrize("command", LEFT_OUT)
def test_a_draft_that_no_figure_has_is_said_first_and_on_one_line(
    run: Run, tmp_path: Path, command: str
) -> None:
    """Whatever else there is to warn of, without -v."""
    (tmp_path / "eagle.yaml").write_text("speculative_config: {decoding_type: Eagle, max_draft_len: 3}\n")
    (tmp_path / "start.sh").write_text(command + "\n")
    for word in ("size", "explain"):
        screen = run(word, str(tmp_path / "start.sh"), "--gpu", "h200").out.splitlines()
        first = next(line for line in screen if line.strip().startswith("warning:"))
        assert first.startswith("  warning: not counted: the draft of "), word
