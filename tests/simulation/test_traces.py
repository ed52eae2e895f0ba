"""Every format of a trace as a few lines, and what is refused with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.traces.arrivals import Arrivals, read_arrivals
from kvplan.files.traces.rows import nanoseconds
from tests.conftest import BESIDE

S = 10**9


def _read(folder: Path, text: str | bytes, **asked: Any) -> Arrivals:
    path = folder / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_arrivals(path, name="trace", **asked)


def _lines(*entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def _dynamo(at: int, ids: list[int], **more: Any) -> dict[str, Any]:
    replay = {"trace_block_size": 16, "input_length": 16 * len(ids), "input_sequence_hashes": ids}
    request = {"request_received_ms": at, "output_tokens": 8, "replay": replay}
    return {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request, **more}


def _aiperf(at: int, **about: Any) -> dict[str, Any]:
    metrics = {
        "input_sequence_length": {"value": 50, "unit": "tokens"},
        "output_sequence_length": {"value": 7},
    }
    return {"metadata": {"request_start_ns": at, **about}, "metrics": metrics, "error": None}


MOONCAKE = [
    {"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]},
    {"timestamp": 3000, "input_length": 1030, "output_length": 5, "hash_ids": [7, 11, 12]},
]
WEKA = {
    "id": "one", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2]},
        {"t": 4.0, "type": "subagent",
         "requests": [{"t": 1.0, "type": "s", "in": 70, "out": 5, "hash_ids": [1]}]},
        {"t": 2.5, "type": "s", "in": 200, "out": 6, "hash_ids": [1, 2, 3]},
    ],
}  # fmt: skip
FORMATS = {
    "mooncake": (_lines(*MOONCAKE), [(0, 600), (2 * S, 1030)], 512, [(0, 1), (0, 2, 3)]),
    "bailian": (
        _lines(
            *[
                {"chat_id": 1, "parent_chat_id": -1, "timestamp": at, "input_length": 20, "output_length": 3,
                 "type": "text", "turn": 1, "hash_ids": [5, 6]}
                for at in (0.5, 2.25)
            ]
        ),
        [(0, 20), (1_750_000_000, 20)], 16, [(0, 1), (0, 1)],
    ),
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
        [(0, 374), (4_314_579_000, 396)], 1, [(), ()],
    ),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,x\n"
        "45,ChatGPT,1087,230,1317,x\n",
        [(0, 472), (40 * S, 1087)], 1, [(), ()],
    ),
    "vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.25,396,109\n",
        [(0, 374), (4_250_000_000, 396)], 1, [(), ()],
    ),
    "weka": (
        _lines(WEKA), [(0, 130), (2_500_000_000, 200), (5 * S, 70)], 64, [(0, 1), (0, 1, 2), (0,)],
    ),
    "dynamo": (
        _lines(_dynamo(2000, [3, 4]), {"event_type": "tool_end", "request": {}}, _dynamo(1000, [3])),
        [(0, 16), (S, 32)], 16, [(0,), (0, 1)],
    ),
    "aiperf": (
        _lines(_aiperf(5 * S), _aiperf(9 * S, benchmark_phase="warmup"), _aiperf(7 * S)),
        [(0, 50), (2 * S, 50)], 1, [(), ()],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_format_is_recognised(form: str, packed: bool, tmp_path: Path) -> None:
    text, rows, wide, chains = FORMATS[form]
    data = gzip.compress(text.encode()) if packed else text.encode()
    found = _read(tmp_path, data)
    assert found.form == form
    assert found.timed
    assert found.wide == wide
    assert [(one.at_ns, one.prompt) for one in found.arrivals] == rows
    numbers: dict[Any, int] = {}  # chains are equal where they were, whatever their numbers
    assert [tuple(numbers.setdefault(i, len(numbers)) for i in one.ids) for one in found.arrivals] == chains


def test_named_columns_with_times_and_identities(tmp_path: Path) -> None:
    text = 'in,out,when,ids\n40,2,1.5,"[4, 5]"\n33,2,2,4 8\n'
    found = _read(tmp_path, text, columns=("in", "out", "when", "ids"), wide=20)
    assert [(one.at_ns, one.prompt, len(one.ids)) for one in found.arrivals] == [(0, 40, 2), (S // 2, 33, 2)]
    assert found.arrivals[0].ids[0] == found.arrivals[1].ids[0]
    assert found.arrivals[0].ids[1] != found.arrivals[1].ids[1]


def test_a_session_of_weka_shares_nothing_with_another(tmp_path: Path) -> None:
    found = _read(tmp_path, _lines(WEKA, {**WEKA, "id": "two"}))
    first = {one.ids[0] for one in found.arrivals}
    assert len(first) == 2
    shared = _read(tmp_path, _lines(*[{**WEKA, "id": name, "hash_id_scope": "global"} for name in "ab"]))
    assert len({one.ids[0] for one in shared.arrivals}) == 1


def test_a_weka_session_over_many_lines(tmp_path: Path) -> None:
    assert len(_read(tmp_path, json.dumps(WEKA, indent=1)).arrivals) == 3


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ONE = {"timestamp": 0, "input_length": 10, "output_length": 1}
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "falls": (_lines({**ONE, "timestamp": 5}, ONE), "line 2 of trace comes 0.005 s before"),
    "nan": ('{"timestamp": NaN, "input_length": 10, "output_length": 1}\n', "line 1 .*not a number"),
    "infinite": ('{"timestamp": 1e999, "input_length": 10, "output_length": 1}\n', "not a number"),
    "below": (_lines({**ONE, "timestamp": -1}), "before the beginning"),
    "negative": (_lines(ONE, {**ONE, "input_length": -4}), "line 2 .*not a number of tokens"),
    "half": (_lines({**ONE, "output_length": 2.5}), "not a number of tokens"),
    "huge": (_lines({**ONE, "input_length": 10**10}), "not a number of tokens"),
    "century": (_lines({**ONE, "timestamp": 10**16}), "century"),
    "some-times": (_lines(ONE, {"input_length": 3, "output_length": 1}), "line 2 .*no time"),
    "too-few": (_lines({**ONE, "input_length": 2000, "hash_ids": [1]}), "1 identities .* 4 are needed"),
    "too-many": (_lines({**ONE, "hash_ids": [1, 2, 3]}), "3 identities of 512"),
    "depth": (
        _lines({**ONE, "input_length": 900, "hash_ids": [1, 2]}, {**ONE, "hash_ids": [2]}),
        "line 2 .*identity 2 at block 0, before at 1",
    ),
    "fork": (
        _lines(*[{**ONE, "input_length": 900, "hash_ids": ids} for ids in ([1, 2], [3, 2])]),
        "line 2 .*behind another block",
    ),
    "no-list": (_lines({**ONE, "hash_ids": 4}), "not a list"),
    "no-number": (_lines({**ONE, "hash_ids": [None]}), "an identity is None"),
    "widths": (
        _lines({**ONE, "hash_ids": [1]}, {**ONE, "hash_ids": [1], "block_size": 16}), "line 2 .*blocks of 16"
    ),
    "wall": (HEAD + "yesterday,1,2\n", "line 2 .*not a date"),
    "day": (HEAD + "2023-13-16 18:15:46,1,2\n", "line 2 .*not a date"),
    "weka": (_lines({"requests": 5, "block_size": 64}), "line 1 .*no list of requests"),
    "dynamo": (_lines({"event_type": "request_end", "request": {}}), "line 1 .*without its replay"),
    "aiperf": (_lines({"metadata": 3, "metrics": 4}), "line 1 .*no metadata"),
    "empty": ("", "has no requests"),
    "none": (_lines({**ONE, "input_length": 0}), "has no requests"),
    "half a gzip": (gzip.compress(_lines(ONE).encode() * 99)[:-9], "broken gzip"),
    "long": ("x" * (2**20 + 2), "longer than"),
    "parquet": (b"PAR1 no parquet", "pyarrow is not installed|broken Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    text, said = REFUSED[case]
    with pytest.raises(KvplanError, match=said) as caught:
        _read(tmp_path, text)
    assert caught.value.code == "bad-trace" or isinstance(caught.value, CannotRunHere)


def _said(found: Arrivals) -> Any:
    rows = [(one.at_ns, one.prompt, one.answer, tuple(one.ids)) for one in found.arrivals]
    return found._replace(arrivals=()), rows


_ROWS = ",\n".join(map(json.dumps, MOONCAKE))


@pytest.mark.parametrize(
    "text", [json.dumps(MOONCAKE), json.dumps(MOONCAKE, indent=2), f"[\n{_ROWS}]", f"[{_ROWS}\n]"]
)
def test_a_list_of_objects_is_as_good_as_lines(text: str, tmp_path: Path) -> None:
    assert _said(_read(tmp_path, text)) == _said(_read(tmp_path, _lines(*MOONCAKE)))


def test_an_object_may_begin_on_its_first_line(tmp_path: Path) -> None:
    broken = json.dumps(WEKA).replace('"requests": [', '"requests": [\n', 1)
    assert _said(_read(tmp_path, broken)) == _said(_read(tmp_path, json.dumps(WEKA)))


def test_whole_floats_are_tokens(tmp_path: Path) -> None:
    text = ",prompt,answer,at\n0,472.0,18.00,0.5\n1,30.,2.0,1.5\n"
    read = _read(tmp_path, text, columns=("prompt", "answer", "at"))
    assert [(one.prompt, one.answer) for one in read.arrivals] == [(472, 18), (30, 2)]
    with pytest.raises(KvplanError, match=r"prompt is '472\.5'"):
        _read(tmp_path, text.replace("472.0", "472.5"), columns=("prompt", "answer", "at"))
    entries = _lines({"prompt": 472.0, "answer": 18.0})
    assert _read(tmp_path, entries, columns=("prompt", "answer")).arrivals[0].prompt == 472


def test_a_trace_may_begin_with_what_is_no_request(tmp_path: Path) -> None:
    payload = {"schema": "dynamo.request.trace.v1", "event_type": "request_payload", "request_id": "r"}
    read = _read(tmp_path, _lines(payload, _dynamo(5, [1])))
    assert (read.form, len(read.arrivals)) == ("dynamo", 1)


def test_sessions_of_weka_begin_together_and_that_is_said(tmp_path: Path) -> None:
    assert _read(tmp_path, _lines(WEKA, {**WEKA, "id": "two"})).notes == (
        "2 sessions begin together: times are those within each",
    )
    assert not _read(tmp_path, _lines(WEKA)).notes


def test_a_folder_and_an_unknown_format_say_what_helps(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="directory") as caught:
        read_arrivals(tmp_path, name="traces/")
    assert any("traces/*.json" in way for way in caught.value.help)
    with pytest.raises(KvplanError, match="none of the traces") as caught:
        _read(tmp_path, "lengths,made\n1,2\n")
    assert any("lengths, made" in way for way in caught.value.help)


def test_requests_without_prompt_or_answer(tmp_path: Path) -> None:
    found = _read(tmp_path, _lines(ONE, {**ONE, "input_length": 0}, {**ONE, "output_length": 0}))
    assert [(one.prompt, one.answer) for one in found.arrivals] == [(10, 1), (10, 1)]
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1970-01-01 00:00:01.5", 1.5), ("1970-01-01T00:00:02Z", 2), ("1970-01-01 01:00:03.25+01:00", 3.25),
     ("1970-01-01 01:00:03+01:00", 3)],
)  # fmt: skip
def test_wall_clocks(text: str, seconds: float) -> None:
    assert nanoseconds(text, 0) == seconds * S


@pytest.mark.beside
def test_published_traces_are_prefix_chains() -> None:
    path = BESIDE / "traces" / "mooncake_fast25_synthetic.jsonl"
    if not path.is_file():
        pytest.skip("the collection of traces is not beside the checkout")
    found = read_arrivals(path, name=path.name)
    assert (len(found.arrivals), found.wide) == (3993, 512)
