"""JSON from outside: what is taken, what is refused, and in what time."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.files.json_input import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    parse_json,
    read_limited,
    read_stream,
    regular_size,
)


def refusal(data: bytes) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        parse_json(data, name="config.json")
    assert caught.value.exit_code == 2
    assert all(len(line) <= 160 for line in caught.value.format().splitlines())
    return caught.value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"{}", {}),
        (b"\xef\xbb\xbf{}", {}),
        (b' {"a": 1.0, "b": [null, true]} ', {"a": 1.0, "b": [None, True]}),
        ('{"ä": "\\ud83d\\ude00"}'.encode(), {"ä": "\N{GRINNING FACE}"}),
        (b'{"a": 1' + b"0" * 30 + b"}", {"a": 10**30}),
        (b'{"a": [0.0, Infinity]}', {"a": [0.0, math.inf]}),
    ],
)
def test_what_is_taken(data: bytes, value: object) -> None:
    assert parse_json(data, name="config.json") == value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"[]", "is a JSON list"),
        (b"3", "is a JSON int"),
        (b"null", "is a JSON null"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": 1' + b"0" * 100 + b"}", "101 digits"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"x": {"a": 1, "a": 2}}', "'a' stands twice"),
        (b'{"a": "\xe9"}', "is not UTF-8: byte 7"),
        (b'{"a": "\\ud800"}', "half a surrogate"),
        (b'{"a": 1', "is not JSON"),
        (b'{"a": 1} x', "Extra data"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    error = refusal(data)
    assert error.code == "bad-json"
    assert words in error.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
        ('{"a": 1}'.encode("utf-16-le"), "UTF-16"),
        ('{"a": 1}'.encode("utf-16-be"), "UTF-16"),
        ('{"a": 1}'.encode("utf-32"), "UTF-16 or UTF-32"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"GGUF\3\0\0\0", ".gguf"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"PK\3\4", "compressed"),
    ],
)
def test_other_things_are_recognised(data: bytes, words: str) -> None:
    assert words in " ".join(refusal(data).help)


def test_an_error_shows_the_place() -> None:
    error = refusal(b'{\n  "a": 1,\n  "b" 2\n}')
    assert error.where == 'config.json:3:7\n  "b" 2\n      ^'


def test_a_long_line_is_cut_around_the_place() -> None:
    error = refusal(b'{"a": "' + b"x" * 5000 + b'" "b"}')
    assert error.where is not None
    line, caret = error.where.splitlines()[1:]
    assert len(line) <= 79
    assert line[len(caret) - 1] == '"'


def test_depth() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)

    assert parse_json(nested(MAX_DEPTH), name="x")
    assert "nested" in refusal(nested(MAX_DEPTH + 1)).message
    assert "nested" in refusal(nested(100_000)).message


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' + b"[" * 8_000_000,
        b'{"a":' + b"[" * (MAX_VALUES - 10),
        b'{"a":[' + b"[]," * 5_000_000 + b"[]]}",
        b'{"a":[' + b"{}," * (MAX_VALUES // 3) + b"0]}",
        b'{"a":"' + b'\\"' * 8_000_000,
        b'{"a":"' + b"\\\\" * 8_000_000 + b'"}',
        b'{"a":' + b"9" * 16_000_000 + b"}",
        b'{"a":0.' + b"1" * 16_000_000 + b"}",
        b'{"a":' + b" " * 16_000_000 + b"}",
        b"\n" * 16_000_000 + b"x",
        b"{" + b",".join(b'"%d":%d' % (number, number) for number in range(400_000)) + b"}",
    ],
    ids=range(11),
)
def test_time_and_memory_are_bounded(data: bytes) -> None:
    assert len(data) <= MAX_BYTES
    tracemalloc.start()
    started = time.process_time()
    with contextlib.suppress(KvplanError):
        parse_json(data, name="x")
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 20, "of this process alone; about a second without tracing"
    assert peak < 300 << 20


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_what_json_writes_is_read_back(value: object) -> None:
    data = json.dumps({"value": value}).encode()
    with contextlib.suppress(KvplanError):  # half surrogates
        assert parse_json(data, name="x") == {"value": value}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_kvplan_error(data: bytes) -> None:
    with contextlib.suppress(KvplanError):
        assert isinstance(parse_json(data, name="x"), dict)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    assert read_limited(path) == b"{}"
    assert regular_size(path) == 2
    path.write_bytes(b"x" * 101)
    with pytest.raises(KvplanError) as caught:
        read_limited(path, limit=100)
    assert caught.value.code == "file-too-large"


@pytest.mark.parametrize("kind", ["missing", "below a file", "NUL", "too long"])
def test_paths_that_are_no_files(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"{}")
    path = {
        "missing": tmp_path / "none.json",
        "below a file": tmp_path / "file" / "config.json",
        "NUL": Path("a\0b"),
        "too long": tmp_path / ("x" * 5000),
    }[kind]
    with pytest.raises(KvplanError) as caught:
        read_limited(path)
    assert caught.value.code in ("no-such-file", "unreadable-file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path, words in (
        (pipe, "is a pipe"),
        (Path("/dev/zero"), "is a device"),
        (tmp_path, "is a directory"),
    ):
        with pytest.raises(KvplanError) as caught:
            read_limited(path)
        assert caught.value.code == "not-a-file"
        assert words in caught.value.message


def test_a_200_mb_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(200 * 10**6)
    tracemalloc.start()
    with pytest.raises(KvplanError) as caught:
        read_limited(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == "file-too-large"
    assert peak < 1 << 20


def test_a_stream_is_read_up_to_the_limit() -> None:
    assert read_stream(io.BytesIO(b"abc"), name="-", limit=3) == b"abc"
    with pytest.raises(KvplanError) as caught:
        read_stream(io.BytesIO(b"abcd"), name="-", limit=3)
    assert caught.value.code == "file-too-large"
