"""Starts that people published, asked as they would ask, without what their logs print.

A row is right where the outcome is (a server that started is not refused, one that stopped is) and the pool
that was printed lies in the interval. Rows that are not right are named with the reason, and a test fails
when one of them becomes right.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from kvplan.units import GIB, MIB
from tests.as_users import answer_of, reason_of
from tests.laws.sampling import some
from tests.recorded import BESIDE

FILE = BESIDE / "data" / "field_reports_3.yaml"
ROWS: dict[str, dict[str, Any]] = {}
for _row in yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader) if FILE.is_file() else ():
    _short = _row["id"].partition("-")[0]
    ROWS[_row["id"] if _short in ROWS else _short] = _row
AS_GIVEN = "(flags as given)"
LEFT_OUT: dict[str, tuple[str, ...]] = {
    # The launcher of the same page has it; 74.85 GiB of weights and the pool are more than 0.92 of the GPU.
    "v12": ("--gpu-memory-utilization", "0.96"),
    "v13": ("--gpu-memory-utilization", "0.96"),
    # "RTX 3070 Laptop, 8 GB, WSL2", says the page.
    **dict.fromkeys(("v09a", "v09b", "v09c", "v09d", "v09e", "v09f"), ("--gpu", "rtx-3070-laptop wsl")),
}
"""What a row leaves out that its source states."""
MISSES: dict[str, str] = {
    "v01": "a wheel made for gpt-oss before 0.10.1, no release: 0.10.1 itself has -2.14 GiB on such a GPU"
    " (vllm-project/vllm#23278), and kvplan -2.17",
    "v02": "as v01",
    "v15": "0.26 with another layout of the cache (vllm-project/vllm#48993), needs 7.63 GiB; kvplan 7.47",
    "v21e": "WSL had 30.2 of 31.84 GiB free; the check of free memory asks for 0.95",
    "v25": "no public copy of the model's config was found",
    "v27": "the release is not told; 2 or 3 layers of a draft and a shared memory leave 0 to 25.7 GiB",
    "v34": "the release is not told; 0.56 GiB more of weights than any release of which rules are known has",
    "v37": "the release is not told; LLM() of some release before 0.20",
    "v48": "another server on the GPU gave 3 GiB back while this one loaded",
    "v52": "no public copy of the model's config was found",
    "v56": "a build of September between releases, with nvfp4 on compute capability 12",
    "v58": "what the profile run of latent attention holds for a batch of 64,000 is not known",
    "l03": "--fit shortens the context to what fits; kvplan says so and refuses what was asked",
    "l18": "the bytes of no build of Qwen3.8-Flash-Next are known",
    "b04": "no bytes of the tag are known",
}

PRINTED: dict[str, dict[str, float]] = {
    "l01": {"weights": 5133.63, "cache": 457, "compute": 392},
    "l03": {"cache": 20480, "compute": 416},
    "l04": {"weights": 4155, "cache": 4096, "compute": 140},
    "l05": {"weights": 16383, "cache": 702, "compute": 493},
    "l06": {"cache": 105, "compute": 541},
    "l07": {"weights": 16386, "cache": 4950, "compute": 495},
    "l08": {"weights": 15345, "compute": 836},
    "l09": {"cache": 6796.6, "compute": 654},
    "l10": {"compute": 1060},
    "l12": {"cache": 4320},
    "l20": {"weights": 6776.91, "cache": 2431},
    "l21": {"weights": 33382, "cache": 24080, "compute": 866},
    "l22": {"cache": 16.15 * 1024, "compute": 0.42 * 1024},
    "l23": {"compute": 821},
}
"""MiB that a row of llama.cpp printed: of the weights, of all caches and states, of the compute buffer. Of
l08 the context is not told, of l22 the weights are the file's. What l18 prints as its cache, 24 MiB of 8,192
cells, are the keys of 12 indexers; states of 112.57 MiB are beside them."""
OTHERS: dict[tuple[str, str], str] = {
    ("l05", "weights"): "which build it is is not told: 3.4 GiB less than Q4_K_M",
    ("l08", "weights"): "1.7 % more than Q4_K_M: whose build it is is not told; unsloth's, see below",
}
"""Figures outside of what is said of them, and why."""
ROOMY = "a100-sxm-80gb"
"""A GPU that holds each of these, so that nothing is left in host memory."""

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(not ROWS, reason="the collection of public starts is not beside this checkout"),
]


def words_of(row: dict[str, Any]) -> list[str]:
    """The command line of a row: some say "as" another row, or "as given" of the server's own flags."""
    command = row["command"]
    if (as_other := re.match(r"kvplan \(as (v\d+\w*)([^)]*)\)(.*)", command)) is not None:
        words, changes = words_of(ROWS[as_other[1]]), shlex.split(as_other[3])
        if "without" in as_other[2]:
            words.remove(as_other[2].split()[-1])
        for flag, value in zip(changes[::2], changes[1::2], strict=True):
            if flag in words:
                del words[words.index(flag) : words.index(flag) + 2]
            words += [flag, value]
        return words
    words = shlex.split(command.replace(AS_GIVEN, ""))[1:]
    return words + _given(row) if AS_GIVEN in command else words


def asked(name: str) -> list[str]:
    """The command line of a row, with what its source states besides."""
    words, besides = words_of(ROWS[name]), LEFT_OUT.get(name, ())
    if besides and besides[0] in words:
        place = words.index(besides[0])
        words[place : place + 2] = besides
        return words
    return [*words, *besides]


def _given(row: dict[str, Any]) -> list[str]:
    """The server's flags of a row, in kvplan's words."""
    flags = re.sub(r"\([^)]*\)", "", row["flags"])
    if (as_other := re.match(r"as (v\d+\w*)", flags)) is not None:
        return _given(ROWS[as_other[1]])
    words = ["--kv-unified" if word == "unified" else word for word in shlex.split(flags)]
    return ["eagle:3" if word == "EAGLE" else word for word in words]


def is_right(name: str) -> tuple[bool, str]:
    """Whether the answer has the outcome and the pool of the row, and what was answered."""
    row = ROWS[name]
    code, answer = answer_of(*asked(name))
    budget, printed = answer.get("budget") or {}, row.get("pool_gib")
    low: int | None = budget.get("kv_pool_low_bytes")
    high: int = budget.get("kv_pool_high_bytes") or 0
    stops = re.match("refused|fails", row["printed"]) is not None
    outcome = code == 1 if stops else code == 0 or answer.get("verdict") == "unlikely"
    inside = True
    if printed is not None and "--kv-cache-memory" not in row["command"]:
        inside = low is not None and low - GIB / 200 <= printed * GIB <= high + GIB / 200
    pool = "no pool" if low is None else f"{low / GIB:.2f} to {high / GIB:.2f} GiB"
    return outcome and inside, f"exit {code}, {answer.get('verdict')}, {pool}: {reason_of(answer)}"


@pytest.mark.laws
@pytest.mark.parametrize("name", some(ROWS, 3, by=lambda name: (name[0], name in MISSES)))
def test_a_public_start(name: str) -> None:
    right, said = is_right(name)
    if name in MISSES:
        assert not right, f"right by now: take it off the list ({MISSES[name]})"
    else:
        assert right, f"{ROWS[name]['printed']}, pool {ROWS[name].get('pool_gib')}; {said}"


def said_of(name: str) -> dict[str, tuple[float, float]]:
    """The interval of each part in MiB, as llama.cpp has it on one GPU."""
    words = asked(name)
    places = [place for place, word in enumerate(words) if word in ("-g", "--gpu")]
    for place in reversed(places):
        del words[place : place + 2]
    _, answer = answer_of(*words, "--gpu", ROOMY)
    lines = {line["name"]: (line["low_bytes"], line["high_bytes"]) for line in answer["budget"]["lines"]}
    cache = answer["total"]["kv_bytes"]
    found = {"weights": lines["weights"], "cache": (cache, cache), "compute": lines["compute buffer"]}
    return {part: (low / MIB, high / MIB) for part, (low, high) in found.items()}


@pytest.mark.parametrize("name", PRINTED)
def test_the_buffers_that_were_printed(name: str) -> None:
    """Rounding to a MiB aside, in the interval; of figures that are exact within a five-hundredth."""
    said = said_of(name)
    for part, printed in PRINTED[name].items():
        low, high = said[part]
        inside = low * 0.998 - 1 <= printed <= high * 1.002 + 1
        assert inside is ((name, part) not in OTHERS), (part, printed, low, high)


def test_a_row_whose_author_is_not_told_is_a_published_file() -> None:
    """l08, to a MiB: unsloth's Q4_K_M of Qwen3.6-27B."""
    words = asked("l08")
    _, answer = answer_of(
        words[0], "unsloth/Qwen3.6-27B-GGUF:Q4_K_M", *words[4:], "--ctx-size", 65536, "--gpu", ROOMY
    )
    found = next(line["bytes"] for line in answer["budget"]["lines"] if line["name"] == "weights")
    assert abs(found / MIB - PRINTED["l08"]["weights"]) <= 1


def test_nine_of_ten_printed_buffers_are_said() -> None:
    figures = sum(map(len, PRINTED.values()))
    assert len(OTHERS) * 10 <= figures


def test_misses_are_rows() -> None:
    assert set(MISSES) <= set(ROWS)
    assert set(LEFT_OUT) <= set(ROWS)
    assert len(ROWS) - len(MISSES) >= 49
