"""Logs of any size and of any kind: constant memory, bounded time, no crash."""

from __future__ import annotations

import ast
import contextlib
import random
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.engines.observed import ROW_FIGURES, Observation, Pool, Refusal
from kvplan.engines.observed.rules import Dialect
from kvplan.engines.observed.settings import items, value_of
from kvplan.engines.observed.stream import CHUNK, LINE_LIMIT
from kvplan.errors import KvplanError
from kvplan.files.logs import DIALECTS, parse_log, read_log
from tests.laws.sampling import WHOLE, some

START = (
    b"(EngineCore pid=3) INFO 03-01 [x.py:1] Available KV cache memory: 19.53 GiB\n"
    b"(EngineCore pid=3) INFO 03-01 [x.py:1] GPU KV cache size: 36,560 tokens\n"
)
CHATTER = (
    b'INFO:     192.0.2.7:5432 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    b"(APIServer pid=1) INFO 03-01 [loggers.py:9] Engine 000: Avg prompt throughput: 12.0 tokens/s, Running: 3 reqs, "
    b"Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 40.0%\n"
) * 400


def tokens(observation: Observation) -> tuple[int | None, int]:
    found = observation.get("kv_tokens")
    return (None, 0) if found is None else (int(found.value), found.line)


def outcome(pieces: list[bytes]) -> object:
    """What parsing gives: an observation or a kvplan error, never another."""
    try:
        return parse_log(pieces)
    except KvplanError as error:
        return error.code


@pytest.mark.laws
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_long_log_takes_a_chunk_s_memory(where: str) -> None:
    """30 megabytes; 200 in ``make laws``."""
    repeats = (200_000_000 if WHOLE else 30_000_000) // len(CHATTER)

    def stream() -> Iterator[bytes]:
        if where == "first":
            yield START * 3
        for _ in range(repeats):
            yield CHATTER
        if where == "last":
            yield START

    tracemalloc.start()
    begun = time.process_time()
    try:
        observation = parse_log(stream())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lines = repeats * 800 + (6 if where == "first" else 2)
    assert observation.lines == lines
    assert tokens(observation) == (36560, 6 if where == "first" else lines)
    assert peak < 12 * CHUNK
    assert time.process_time() - begun < 60


def test_cuts_between_pieces_change_nothing() -> None:
    text = CHATTER[:3000] + START + CHATTER[:3000]
    whole = parse_log([text])
    for size in (1, 2, 7, 100, 4096):
        assert parse_log([text[at : at + size] for at in range(0, len(text), size)]) == whole


def test_a_chunk_s_end_inside_a_line() -> None:
    for before in range(CHUNK - 160, CHUNK + 10, 13):
        text = b"x" * (before - 1) + b"\n" + START
        assert tokens(parse_log([text])) == (36560, 3)


def test_a_line_without_end_is_looked_at_around_the_anchor() -> None:
    observation = parse_log([b"z" * (3 * CHUNK) + START.split(b"\n")[1] + b"z" * 2 * CHUNK])
    assert tokens(observation)[0] == 36560
    noise = parse_log([b"progress\r" * 300_000 + START])
    assert tokens(noise) == (36560, 2)


def test_carriage_returns_end_lines_but_do_not_count() -> None:
    text = (
        b"Loading: 10%\rLoading: 90%\r" + START.replace(b"\n", b"\r\n") + b"GPU KV cache size: 5 to\rkens\n"
    )
    assert tokens(parse_log([text])) == (36560, 2)


def test_utf16_from_a_windows_shell() -> None:
    text = "llama_kv_cache:      CUDA0 KV buffer size =    68.00 MiB\r\nfin\r\n"
    for encoding in ("utf-16", "utf-16-be"):
        body = text.encode(encoding)
        body = body if encoding == "utf-16" else b"\xfe\xff" + body
        kv = parse_log([body[:1], body[1:21], body[21:]]).get("kv_bytes")
        assert kv is not None
        assert kv.printed == "68.00 MiB"


def test_junk_between_the_lines() -> None:
    junk = bytes(range(256)) * 50 + b"\n"
    assert tokens(parse_log([junk, START.replace(b"GPU", b"\xff\xfe GPU"), junk]))[0] == 36560


def test_files_and_engines(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(START)
    assert tokens(read_log(file)) == (36560, 2)
    assert read_log(file, engine="vllm").engine == "vllm"
    for engine, code in (("sglang", "unknown-log"), ("vlm", "unknown-engine")):
        with pytest.raises(KvplanError) as caught:
            read_log(file, engine=engine)
        assert caught.value.code == code
    with pytest.raises(KvplanError) as caught:
        read_log(tmp_path / "none.log")
    assert caught.value.code == "no-such-file"
    with pytest.raises(KvplanError) as caught:
        read_log(tmp_path)
    assert caught.value.code == "not-a-file"
    with pytest.raises(KvplanError) as caught:
        parse_log([])
    assert caught.value.code == "unknown-log"


# The tables themselves.


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.engine)
def test_every_rule_names_figures_that_exist(dialect: Dialect) -> None:
    for rule in dialect.rules:
        names = {name for name, _ in rule.names} - {"version", "generation", "device", "label"}
        if rule.kind == "pool":
            assert names <= set(Pool.__dataclass_fields__)
        elif rule.kind == "refusal":
            assert names - {"mem_fraction_static"} <= set(Refusal.__dataclass_fields__)
        elif rule.kind == "row":
            # What is no figure of a row becomes a setting; sizes are none.
            assert {name for name, unit in rule.names if unit in ("GiB", "MiB", "B")} <= set(ROW_FIGURES)
        assert not rule.again or rule.again in ROW_FIGURES
        assert len(rule.anchor) >= 6
        assert b"\n" not in rule.anchor


# Hostile input.

ANCHORS = [rule.anchor for dialect in DIALECTS for rule in dialect.rules]
FRAGMENTS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(ANCHORS),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b" ",
            b"1,234.5",
            b"GiB",
            b"MiB",
            b"(",
            b")",
            b"{",
            b"}",
            b"\x1b[0m",
            b"'",
            b"9" * 50,
        ]
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAGMENTS, max_size=40))
def test_any_bytes(parts: list[bytes]) -> None:
    outcome(parts)


SAMPLE_LINES = [
    line.encode()
    for line in (
        "(Worker_TP0 pid=3) INFO non-default args: {'model': 'm', 'gpu_memory_utilization': 0.9, 'x': {'y': [1, 2]}}",
        "Initializing a V1 LLM engine (v0.19.0) with config: model='m', dtype=torch.bfloat16, max_seq_len=99",
        "Available KV cache memory: 19.53 GiB",
        "Maximum concurrency for 8,192 tokens per request: 4.46x",
        "[2026-01-01 00:00:00 TP0] server_args={'model_path': 'm'}",
        "[2026-01-01 00:00:00 TP0] KV Cache is allocated. dtype: torch.x, #tokens: 12, K size: 1.00 GB, V size: 1.00 GB",
        "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 1 [window size=2], tokens per block=3, primary blocks=4",
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (12).",
        "llama_kv_cache: size =  1.00 MiB ( 1 cells, 1 layers, 1/1 seqs), K (f16): 0.50 MiB, V (f16): 0.50 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =    68.00 MiB",
    )
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(SAMPLE_LINES), max_size=20), st.integers(0, 2000), st.integers(0, 2**32))
def test_shuffled_truncated_and_damaged_lines(lines: list[bytes], keep: int, seed: int) -> None:
    text = bytearray(b"\n".join(lines)[:keep])
    chance = random.Random(seed)
    for _ in range(len(text) // 50):
        text[chance.randrange(len(text))] = chance.randrange(256)
    outcome([bytes(text)])


@pytest.mark.laws
@pytest.mark.parametrize("anchor", some(sorted(set(ANCHORS)), 3, by=len), ids=repr)
def test_no_line_makes_a_pattern_slow(anchor: bytes) -> None:
    """Long lines full of what a pattern likes to repeat."""
    begun = time.process_time()
    for filler in (b" ", b"1", b"1,", b"(", b"a ", b"{'", b"x=(", b"GiB", anchor):
        line = anchor + filler * (2 * LINE_LIMIT // len(filler))
        outcome([line + b"\n" + filler * 200 + anchor + filler * 200])
    assert time.process_time() - begun < 5


def test_as_many_figures_as_there_are_cannot_fill_the_memory() -> None:
    rows = b"".join(
        b"(Worker_TP%d pid=1) Available KV cache memory: 1.00 GiB\n" % rank for rank in range(20_000)
    )
    assert len(parse_log([rows]).rows) <= 4096
    pools = b"KV Cache is allocated. #tokens: 1, KV size: 1.00 GB\n" * 5000
    assert len(parse_log([pools]).pools) <= 256
    buffers = b"llama_kv_cache:  CUDA0 KV buffer size =  1.00 MiB\n" * 5000
    assert parse_log([buffers]).get("kv_bytes") is not None


# Printed Python.


def test_items_of_every_kind_of_list() -> None:
    for text in (
        "{'a': 1, 'b': 'x, y', 'c': [1, {2: 3}]}",
        "Namespace(a=1, b='x, y', c=[1, {2: 3}])",
        "a=1, b='x, y', c=[1, {2: 3}]",
    ):
        assert list(items(text)) == [("a", "1"), ("b", "'x, y'"), ("c", "[1, {2: 3}]")]
    assert list(items(" : {'a': 'it\\'s }', 'b': <X: 1>} and more, c=2")) == [
        ("a", "'it\\'s }'"),
        ("b", "<X: 1>"),
    ]
    assert list(items("{'a': 1, 'b': 2")) == [("a", "1")]  # the last may be cut
    assert list(items("{'a': " + "[" * 100 + "1")) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.5", 0.5),
        ("'x'", "x"),
        ("None", None),
        ("torch.bfloat16", "torch.bfloat16"),
        ("[1, 'a']", [1, "a"]),
    ],
)
def test_values(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    "text", ["", "f(1)", "__import__('os')", "<X: 1>", "[" * 500, "9" * 3000, "1 if 2 else", "a b"]
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(ValueError, match=r"literal|too long"):
        value_of(text)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True),
        st.one_of(st.integers(), st.text(max_size=20), st.booleans(), st.none()),
    )
)
def test_printed_dicts_read_back(given_items: dict[str, object]) -> None:
    text = repr(given_items)
    assert {key: ast.literal_eval(value) for key, value in items(text)} == given_items


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="{}()[]<>'\",:= ab1\\.", max_size=200))
def test_items_of_anything(text: str) -> None:
    for _, value in items(text):
        with contextlib.suppress(ValueError):
            value_of(value)
