"""GGUF files that are incomplete, split, hostile or none; all are written here."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.files.gguf.file import BLOCK, Stream, read_header
from kvplan.files.gguf.header import read_gguf, tensor_bytes
from kvplan.files.sources import open_model
from tests.files.gguf_files import FULL, GQA, LISTED, parts_of, write

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")


def test_big_endian(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, big=True, tokens=5000)
    assert parts_of(path) == [(FULL,)] * 6
    assert read_gguf(path).vocab_size == 5000


def test_tensors_that_are_announced_but_absent_do_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA)
    data = bytearray(path.read_bytes())
    data[8:16] = struct.pack("<Q", 291)
    path.write_bytes(data)
    assert parts_of(path) == [(FULL,)] * 6


def test_a_download_that_stops_in_the_token_list_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, tokens=50_000)
    path.write_bytes(path.read_bytes()[:100_000])
    model = read_gguf(path)
    assert [layer.parts for layer in model.layers()] == [(FULL,)] * 6
    assert model.warnings == ("the file ends inside tokenizer.ggml.tokens: keys behind it were not seen",)


def test_a_download_that_stops_earlier_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(KvplanError) as caught:
            read_gguf(path)
        assert (caught.value.code, caught.value.exit_code) == ("bad-gguf", 2)


def test_the_first_part_is_read_and_others_point_to_it(tmp_path: Path) -> None:
    split = {"split.no": 0, "split.count": 3}
    path = write(tmp_path, "llama", GQA, general=split, name="big-00001-of-00003.gguf")
    assert read_gguf(path).id == "big"
    with pytest.raises(KvplanError) as caught:
        read_gguf(tmp_path / "big-00002-of-00003.gguf")
    assert caught.value.code == "not-first-part"
    assert caught.value.help == (f"give {path}",)
    renamed = write(tmp_path, "llama", GQA, general={**split, "split.no": 1}, name="second.gguf")
    with pytest.raises(KvplanError, match="not the first part"):
        read_gguf(renamed)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a GGUF file"),
        (b"GGUF", "ends after 4 bytes"),
        (b"GGML" + b"\0" * 40, "not a GGUF file"),
        (b"tjgg" + b"\0" * 40, "older GGML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no general.architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000), "claims"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63) + b"x", "ends inside"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"x" + struct.pack("<I", 77), "77"),
    ],
)
def test_what_is_not_gguf(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(KvplanError) as caught:
        read_gguf(path)
    assert (caught.value.code, caught.value.exit_code) == ("bad-gguf", 2)
    assert words in caught.value.format()


def _key(name: str, kind: int, value: bytes) -> bytes:
    encoded = name.encode()
    return struct.pack("<Q", len(encoded)) + encoded + struct.pack("<I", kind) + value


ARCHITECTURE = _key("general.architecture", 8, struct.pack("<Q", 5) + b"llama")


def _file(path: Path, *keys: bytes, count: int | None = None) -> Path:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, count or len(keys))
    path.write_bytes(head + b"".join(keys))
    return path


@pytest.mark.parametrize(
    "keys",
    [
        [ARCHITECTURE, ARCHITECTURE],
        [_key("general.architecture", 4, struct.pack("<I", 1))],
        [_key("general.architecture", 8, struct.pack("<Q", 2) + b"\xff\xfe")],
        [_key("general.architecture", 9, struct.pack("<IQ", 8, 0))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 9, 4))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 4, 2**62))],
        [ARCHITECTURE, _key("llama.block_count", 9, struct.pack("<IQ", 8, 2**62))],
        [ARCHITECTURE, _key("x", 9, struct.pack("<IQ", 55, 5000)), b"\0" * 20_000],
        [ARCHITECTURE, _key("llama.attention.head_count", 9, struct.pack("<IQ", 0, 5000) + b"\1" * 5000)],
    ],
)
def test_hostile_keys(tmp_path: Path, keys: list[bytes]) -> None:
    with pytest.raises(KvplanError) as caught:
        read_gguf(_file(tmp_path / "hostile.gguf", *keys))
    assert caught.value.exit_code == 2


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """No more than so many bytes are fetched from a file, the first 24 aside."""
    fetched = 0
    fetch = Stream._held

    def counted(self: Stream, count: int) -> int:
        nonlocal fetched
        before = self._fetched
        try:
            return fetch(self, count)
        finally:
            fetched += self._fetched - before
            assert fetched <= size

    with patch.object(Stream, "_held", counted):
        yield


def _grow(path: Path, size: int) -> None:
    """Make a file long without writing it."""
    try:
        with path.open("r+b") as stream:
            stream.truncate(size)
    except OSError as error:
        pytest.skip(f"no sparse files here: {error}")


def test_a_huge_sparse_file_is_refused_in_bounded_time(tmp_path: Path) -> None:
    """Ten thousand million empty texts, all of them really there."""
    path = _file(
        tmp_path / "sparse.gguf", ARCHITECTURE, _key("tokenizer.x", 9, struct.pack("<IQ", 8, 10**10))
    )
    _grow(path, 90 * 10**9)
    with pytest.raises(KvplanError, match="texts"), at_most(BLOCK):
        read_gguf(path)


def test_long_texts_of_a_sparse_file_do_not_make_it_read_for_ever(tmp_path: Path) -> None:
    """Each text is longer than a block, so that each length costs a fetch of its own."""
    texts, length = 100, 10**7
    path = _file(tmp_path / "long.gguf", ARCHITECTURE, _key("tokenizer.x", 9, struct.pack("<IQ", 8, texts)))
    start = path.stat().st_size
    _grow(path, start + texts * (8 + length))
    with path.open("r+b") as stream:
        for index in range(texts):
            stream.seek(start + index * (8 + length))
            stream.write(struct.pack("<Q", length))
    with patch("kvplan.files.gguf.file.MOST_READ", 20 * BLOCK), at_most(21 * BLOCK):  # noqa: SIM117
        with pytest.raises(KvplanError, match="its header has more than"):
            read_gguf(path)


def test_names_and_texts_are_bounded_together(tmp_path: Path) -> None:
    """Forty texts of a million bytes each: one is allowed, all of them are not."""
    text = struct.pack("<Q", 10**6) + b"x" * 10**6
    keys = [_key(f"llama.text{index}", 8, text) for index in range(40)]
    with pytest.raises(KvplanError, match="names and texts of more than"):
        read_gguf(_file(tmp_path / "texts.gguf", ARCHITECTURE, *keys))


def test_values_are_bounded_together(tmp_path: Path) -> None:
    values = struct.pack("<IQ", 4, 4096) + b"\1\0\0\0" * 4096
    keys = [_key(f"llama.list{index}", 9, values) for index in range(300)]
    with pytest.raises(KvplanError, match="more than 1,000,000 values"):
        read_gguf(_file(tmp_path / "values.gguf", ARCHITECTURE, *keys))


def _tensor(name: str, dims: list[int], kind: int) -> bytes:
    head = struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dims))
    return head + struct.pack(f"<{len(dims)}QIQ", *dims, kind, 0)


@pytest.mark.parametrize(
    ("tensors", "count", "words"),
    [
        ([_tensor("a", [2, 3], 77)], 1, "unknown type 77"),
        ([_tensor("a", [2] * 9, 0)], 1, "9 dimensions"),
        ([_tensor("a", [2**62, 2**62], 0)], 1, "elements"),
        ([_tensor("a", [2], 0), _tensor("a", [2], 0)], 2, "twice"),
        ([_tensor("a", [2], 0)], 2, "before its list"),
        ([_tensor("a", [2], 0)], 10**6, "1,000,000 tensors"),
        ([struct.pack("<Q", 2**60)], 1, "before its list"),
        ([], 0, "lists no tensors"),
    ],
)
def test_a_list_of_tensors_that_cannot_be(
    tmp_path: Path, tensors: list[bytes], count: int, words: str
) -> None:
    path = tmp_path / "tensors.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, count, 1) + ARCHITECTURE + b"".join(tensors))
    with pytest.raises(KvplanError) as caught:
        tensor_bytes(path)
    assert caught.value.code == "no-weights"
    assert words in caught.value.message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_to_the_list_of_tensors_is_an_answer_or_a_kvplan_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    listed = [_tensor(f"blk.{index}.w", [64, 256], 12) for index in range(4)]
    content = bytearray(b"GGUF" + struct.pack("<IQQ", 3, 4, 1) + ARCHITECTURE + b"".join(listed))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "bent.gguf"
    path.write_bytes(content)
    with contextlib.suppress(KvplanError):
        tensors = read_header(path, tensors=True).tensors or {}
        assert all(0 <= size < 2**63 for size in tensors.values())


def test_a_large_file_costs_what_its_header_costs(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, tokens=150_000)
    header = path.stat().st_size
    _grow(path, 150 * 10**9)
    with at_most(header + 2 * BLOCK):
        assert read_gguf(path).vocab_size == 150_000


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_a_model_or_a_kvplan_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "damaged.gguf"
    if not path.exists():
        write(tmp_path, "gemma3", {**GQA, **LISTED}, tokens=20, name=path.name)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    damaged = tmp_path / "now.gguf"
    damaged.write_bytes(content)
    with contextlib.suppress(KvplanError):
        read_gguf(damaged)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(KvplanError) as caught:
            read_gguf(path)
        assert caught.value.code in ("no-such-file", "not-a-file")


def test_a_file_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", GQA, name="blob")
    assert open_model(str(path)).num_layers == 6


def test_nothing_has_to_be_installed(tmp_path: Path) -> None:
    """Neither the header nor the list of tensors needs the gguf package or numpy."""
    path = write(tmp_path, "llama", GQA, tokens=30)
    script = (
        "import sys; sys.modules['gguf'] = sys.modules['numpy'] = None\n"
        "from kvplan.files.gguf.file import read_header\n"
        "from kvplan.files.sources import open_model\n"
        "from pathlib import Path\n"
        "header = read_header(Path(sys.argv[1]), tensors=True)\n"
        "print(open_model(sys.argv[1]).num_layers, dict(header.tensors))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["6", "{}"]
