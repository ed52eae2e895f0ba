"""Percentiles, histograms and traces as a bounded number of shapes that never understate."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.files.traces.lengths import read_lengths
from kvplan.plans.joint import MAX_SHAPES, combined, from_percentiles, joined
from kvplan.plans.workload import Shape, Workload
from tests.plans.helpers import HEAD, SMALL, plan
from tests.recorded import BESIDE, record

HERE = {*record("trace_lengths"), *(path.name for path in (BESIDE / "traces").glob("*"))}
# Statistics that the traces' own publishers and a separate count give: requests, mean input, mean output.
PUBLISHED = {
    "mooncake_fast25_conversation.jsonl": (12_031, "12035.1", "342.6", 126_195, 2000),
    "mooncake_fast25_synthetic.jsonl": (3_993, "15325.5", "149.1", 191_378, 893),
    "azure_llm_2023_code.csv": (8_819, "2047.8", "27.9", 7_437, 1899),
    "azure_llm_2023_conv.csv": (19_366, "1154.7", "211.1", 14_050, 1000),
    "vidur_arxiv_summarization_llama2.csv": (28_257, "2588.1", "291.4", 4_054, 4056),
}
pairs = st.dictionaries(
    st.tuples(st.integers(0, 5000), st.integers(0, 500)), st.integers(1, 50), min_size=1, max_size=120
)


@given(pairs, st.integers(1, 40))
def test_no_request_is_understated(found: dict[tuple[int, int], int], most: int) -> None:
    shapes = joined(found, most)
    assert len(shapes) <= most
    total = sum(found.values())
    scale = Fraction(total, sum(shape.weight for shape in shapes))
    assert scale.denominator == 1
    for bound in {pair[0] for pair in found}:
        longer = sum(count for pair, count in found.items() if pair[0] >= bound)
        assert sum(shape.weight for shape in shapes if shape.input_tokens >= bound) * scale >= longer
    for bound in {sum(pair) for pair in found}:
        longer = sum(count for pair, count in found.items() if sum(pair) >= bound)
        assert sum(shape.weight for shape in shapes if shape.tokens >= bound) * scale >= longer
    assert max(shape.input_tokens for shape in shapes) == max(pair[0] for pair in found)


@given(pairs)
def test_few_lengths_stay_exact(found: dict[tuple[int, int], int]) -> None:
    shapes = joined(found, 1000)
    workload = Workload(shapes)
    total = sum(found.values())
    assert workload.mean(name="input_tokens") == Fraction(sum(p[0] * c for p, c in found.items()), total)
    assert workload.mean(name="output_tokens") == Fraction(sum(p[1] * c for p, c in found.items()), total)


@given(st.lists(st.integers(0, 10**6), min_size=8, max_size=8))
def test_percentiles_hold_at_their_points(values: list[int]) -> None:
    rising = sorted(values)
    points = list(zip((0, 25, 50, 75, 90, 95, 99, 100), rising))
    bins = from_percentiles(points)
    assert sum(weight for _, weight in bins) == 100
    assert bins[-1][0] == rising[-1]
    for percent, length in points[1:]:
        assert sum(weight for tokens, weight in bins if tokens >= length) >= 100 - percent


def test_the_steps_of_percentiles() -> None:
    """p50 800, p90 3,000, max 4,000: flat below the lowest, straight between, rounded up."""
    assert from_percentiles([(50, 800), (90, 3000), (100, 4000)]) == [
        (800, 50), (1350, 10), (1900, 10), (2450, 10), (3000, 10), (3500, 5), (3900, 4), (4000, 1),
    ]  # fmt: skip


@given(
    st.dictionaries(st.integers(1, 10**6), st.integers(1, 100), min_size=1, max_size=60),
    st.dictionaries(st.integers(1, 10**6), st.integers(1, 100), min_size=1, max_size=60),
)
def test_two_histograms_are_combined_within_the_bound(first: dict[int, int], second: dict[int, int]) -> None:
    shapes = combined(sorted(first.items()), sorted(second.items()))
    assert len(shapes) <= MAX_SHAPES
    workload = Workload(shapes)
    for name, side in (("input_tokens", first), ("output_tokens", second)):
        mean = Fraction(sum(tokens * weight for tokens, weight in side.items()), sum(side.values()))
        assert workload.mean(name=name) >= mean
    assert workload.longest == max(first) + max(second)


def _file_of(name: str, folder: Path) -> Path:
    """The published file where it stands beside the checkout; else the recorded lengths in its format."""
    if (BESIDE / "traces" / name).is_file():
        return BESIDE / "traces" / name
    csv = name.endswith(".csv")
    row = "{},{}\n" if csv else '{{"input_length": {}, "output_length": {}}}\n'
    lengths = record("trace_lengths")[name]["lengths"]
    lines = [row.format(*pair) * count for *pair, count in lengths]
    (folder / name).write_text("ContextTokens,GeneratedTokens\n" * csv + "".join(lines), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name in HERE])
def test_published_traces(name: str, tmp_path: Path) -> None:
    requests, mean_input, mean_output, most_input, most_output = PUBLISHED[name]
    trace = read_lengths(_file_of(name, tmp_path), name=name)
    assert trace.requests == requests
    for axis, mean, most in ((0, mean_input, most_input), (1, mean_output, most_output)):
        total = sum(pair[axis] * count for pair, count in trace.pairs.items())
        assert abs(Fraction(total, requests) - Fraction(mean)) <= Fraction(1, 20)
        assert max(pair[axis] for pair in trace.pairs) == most
    shapes = trace.shapes()
    assert len(shapes) <= MAX_SHAPES
    true = Fraction(sum(sum(pair) * count for pair, count in trace.pairs.items()), requests)
    assert true <= Workload(shapes).mean() <= true * Fraction(106, 100)


GOOD = {
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1]}\n',
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,10,2\n",
    "vidur.csv": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n10,2,12,5.0\n",
    "bom.csv": "\ufeffContextTokens,GeneratedTokens\r\n10,2\r\n\r\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_formats_are_recognised(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(GOOD[name], encoding="utf-8", newline="")
    assert read_lengths(tmp_path / name, name=name).pairs == Counter({(10, 2): 1})


@pytest.mark.parametrize(
    ("name", "text"),
    [("own.csv", "a,prompt,b,answer\nx,10,y,2\n"), ("own.jsonl", '{"prompt": 10, "answer": 2}\n\n')],
)
def test_named_columns(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found = plan(
        HEAD
        + SMALL
        + f"workload: {{trace: '{tmp_path / name}', trace_columns: {{input: prompt, output: answer}}}}\n"
    )
    assert found.workload is not None
    assert found.workload.shapes == (Shape(10, 2, 1),)
    assert str(tmp_path / name) in found.files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no requests"),
        ("a,b\n1,2\n", "none of the traces"),
        ("ContextTokens,GeneratedTokens\n", "has no requests"),
        ("ContextTokens,GeneratedTokens\n1\n", "line 2"),
        ("ContextTokens,GeneratedTokens\n1,-2\n", "not a number of tokens"),
        ("ContextTokens,GeneratedTokens\n1,2.5\n", "not a number of tokens"),
        ("ContextTokens,GeneratedTokens\n1,99999999999\n", "not a number of tokens"),
        ("ContextTokens,GeneratedTokens\n0,0\n", "has a token"),
        ("ContextTokens,ContextTokens,GeneratedTokens\n1,2,3\n", "twice"),
        ('{"input_length": 1, "output_length": 2}\n[1]\n', "line 2"),
        ('{"input_length": 1, "output_length": true}\n', "not a number"),
        ('{"input_length": 1}\n', "none of the traces"),
        ("[" * 100_000, "neither JSON lines"),
        ("x" * (2**20 + 2), "longer than"),
    ],
)
def test_traces_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(KvplanError) as caught:
        read_lengths(tmp_path / "t", name="t")
    assert caught.value.code == "bad-trace"
    assert said in caught.value.message


def test_a_trace_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xff\xfe\n")
    with pytest.raises(KvplanError, match="not UTF-8"):
        read_lengths(tmp_path / "t", name="t")
