"""A file that is no text says so whatever it is given as, and no error moves a terminal."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.errors import KvplanError, Mark, escaped
from kvplan.files.benchmarks import read_benchmark
from kvplan.files.gpus.listed import load_gpu_file
from kvplan.files.launch.read import launches_of
from kvplan.files.logs import read_log
from kvplan.files.plans.fleet import read_fleet
from kvplan.files.plans.lock import read_lock
from kvplan.files.plans.prices import read_prices
from kvplan.files.plans.receipts import read_receipt
from kvplan.files.sources import open_model
from kvplan.files.traces.rows import read_rows


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        packed.add(__file__, "trace.jsonl")
    return made.getvalue()


FILES = {
    "tar.gz": archive(),
    "zip": b"PK\x03\x04" + bytes(range(256)),
    "elf": b"\x7fELF\x02\x01\x01" + b"\0" * 400,
    "pickle": pickle.dumps({"a": [0.5] * 50}) + b"\0" * 8,
}
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a model": ("x.json", lambda path: open_model(str(path))),
    "a card": ("x.yaml", lambda path: open_model(str(path))),
    "a GPU": ("x.yaml", load_gpu_file),
    "a fleet": ("x.yaml", read_fleet),
    "prices": ("x.yaml", read_prices),
    "prices in rows": ("x.csv", read_prices),
    "a lock": ("x.lock", read_lock),
    "a manifest": ("x.yaml", lambda path: launches_of(str(path))),
    "a script": ("x.sh", lambda path: launches_of(str(path))),
    "a Modelfile": ("Modelfile", lambda path: launches_of(str(path))),
    "a trace": ("x.jsonl", lambda path: read_rows(path, name=str(path))),
    "a log": ("x.log", read_log),
    "a benchmark": ("x.json", read_benchmark),
    "a receipt": ("x.json", read_receipt),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("given_as", READERS)
def test_a_file_that_is_no_text(tmp_path: Path, kind: str, given_as: str) -> None:
    name, read = READERS[given_as]
    path = tmp_path / name
    path.write_bytes(FILES[kind])
    with pytest.raises(KvplanError) as info:
        read(path)
    assert (info.value.code, info.value.message) == ("not-text", f"{path} is not a text file")
    assert bool(info.value.help) is (kind in ("tar.gz", "zip"))


def test_a_packed_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n')
    )
    assert len(list(read_rows(path, name="x").rows)) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_wide_text_is_one(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.json").write_bytes('{"model_type": "llama"}'.encode(encoding))
    with pytest.raises(KvplanError) as info:
        open_model(str(tmp_path / "x.json"))
    assert "UTF-8" in info.value.help[0]


RAW = "a\0b\x1b[31mc\x07\u202ed\r\ud800"


def test_every_field_of_an_error_is_escaped() -> None:
    error = KvplanError(
        "code", RAW, where=(RAW, Mark(RAW, 1, 1, 2, RAW)), detail=[RAW], help=[RAW, "a\tb\nc"]
    )
    data = error.as_dict()
    texts = [error.format(), error.format(80), str(error), repr(error.args), error.where, data["message"]]
    for text in [*texts, data["where"], *data["detail"], *data["help"]]:
        assert text is not None
        assert escaped(text) == text
        assert "\0" not in text
    assert "a\\x00b\\x1b[31mc\\x07\\u202ed\\r\\ud800" in error.message
    assert "a\tb" in error.format()
