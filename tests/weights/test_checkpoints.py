"""Weights from a checkpoint beside its config: headers, index, what they add to the config, hostile files."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.architectures.config.read import read_config
from kvplan.architectures.weights import sources_of, sources_of_config
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.files.safetensors_header import (
    MAX_HEADER,
    MAX_TENSORS,
    parse_header,
    parse_index,
    read_checkpoint,
)
from kvplan.files.sources import open_model
from kvplan.weights.facts import Index, WeightSources, weights_per_rank
from kvplan.weights.ranks import ALONE, Parallel
from kvplan.weights.stored import Checkpoint, Stored
from tests.weights.checkpoints import TINY_LLAMA, header_of, llama_tensors, write_checkpoint, write_file


@pytest.mark.parametrize("shards", [1, 3])
def test_headers_give_every_byte(tmp_path: Path, shards: int) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA), shards=shards)
    found = read_checkpoint(tmp_path)
    assert isinstance(found, Checkpoint)
    assert found.bytes == sum(tensor.bytes for tensor in llama_tensors(TINY_LLAMA))
    assert found.bytes_by_dtype() == {"BF16": found.bytes}
    facts = weights_per_rank(sources_of(open_model(str(tmp_path))), Parallel(2, 2), BFLOAT16)
    assert facts.source == "safetensors headers"
    same = weights_per_rank(sources_of_config(TINY_LLAMA), Parallel(2, 2), BFLOAT16)
    assert facts.bytes_per_rank == same.bytes_per_rank
    assert same.source == "parameter count"


PADDED = 2 * (1024 - 1000) * 64 * 2
"""Embedding and head of TINY_LLAMA: an engine pads the vocabulary of 1,000 to a multiple of 64."""


def test_an_index_alone_gives_the_total(tmp_path: Path) -> None:
    tensors = llama_tensors(TINY_LLAMA)
    write_checkpoint(tmp_path, TINY_LLAMA, tensors, shards=2, files=False)
    assert isinstance(read_checkpoint(tmp_path), Index)
    facts = weights_per_rank(sources_of(open_model(str(tmp_path))), ALONE, BFLOAT16)
    assert facts.source == "safetensors index"
    assert facts.total_bytes == sum(tensor.bytes for tensor in tensors) + PADDED


def test_an_index_that_contradicts_the_config_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA, "F32"), shards=2, files=False)
    with pytest.raises(KvplanError, match="the config's tensors make") as caught:
        weights_per_rank(sources_of(open_model(str(tmp_path))), ALONE, BFLOAT16)
    assert caught.value.code == "no-weights"


def test_float32_checkpoints_take_the_served_dtype(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA, "F32"))
    facts = weights_per_rank(sources_of(open_model(str(tmp_path))), ALONE, BFLOAT16)
    same = weights_per_rank(sources_of_config(TINY_LLAMA), ALONE, BFLOAT16)
    assert facts.bytes_per_rank == same.bytes_per_rank


def test_quantised_bytes_follow_from_the_headers(tmp_path: Path) -> None:
    """An unknown method: the config cannot say its bytes, the headers can, and the split is the config's."""
    config = {**TINY_LLAMA, "quantization_config": {"quant_method": "novel", "bits": 3}}
    tensors = []
    for tensor in llama_tensors(TINY_LLAMA):
        if "proj" in tensor.name:
            name = tensor.name.removesuffix(".weight")
            rows, columns = tensor.shape
            tensors += [
                Stored(f"{name}.qweight", "I32", (rows, columns // 8)),
                Stored(f"{name}.scales", "F16", (rows, columns // 32)),
            ]
        else:
            tensors.append(tensor)
    write_checkpoint(tmp_path, config, tensors)
    sources = sources_of(open_model(str(tmp_path)))
    assert sources.problem is not None
    assert sources.problem.code == "unknown-quantization"
    whole = weights_per_rank(sources, ALONE, BFLOAT16)
    assert whole.total_bytes == sum(tensor.bytes for tensor in tensors) + PADDED
    halves = weights_per_rank(sources, Parallel(2), BFLOAT16)
    assert whole.total_bytes < 2 * halves.bytes_per_gpu < whole.total_bytes * 1.03


def test_draft_layers_are_a_line_of_their_own(tmp_path: Path) -> None:
    extra = [
        Stored("model.layers.4.eh_proj.weight", "BF16", (64, 128)),
        Stored("mtp.fc.weight", "BF16", (64, 128)),
    ]
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA) + extra)
    facts = weights_per_rank(sources_of(open_model(str(tmp_path))), ALONE, BFLOAT16)
    plain = weights_per_rank(sources_of_config(TINY_LLAMA), ALONE, BFLOAT16)
    assert facts.bytes_per_rank == plain.bytes_per_rank
    assert facts.draft_bytes == 2 * 64 * 128 * 2


def test_a_tied_head_in_the_checkpoint_is_not_counted(tmp_path: Path) -> None:
    tied = {**TINY_LLAMA, "tie_word_embeddings": True}
    write_checkpoint(tmp_path, tied, llama_tensors(TINY_LLAMA))
    facts = weights_per_rank(sources_of(open_model(str(tmp_path))), ALONE, BFLOAT16)
    assert facts.total_bytes == weights_per_rank(sources_of_config(tied), ALONE, BFLOAT16).total_bytes


def test_without_a_rule_the_names_say_how_tensors_are_divided() -> None:
    config = {**TINY_LLAMA, "model_type": "not_a_type_anyone_knows", "architectures": ["Unheard"]}
    checkpoint = Checkpoint(tuple(llama_tensors(TINY_LLAMA)), "test")
    model = read_config(config, id="t", source="dict")
    sources = sources_of_config(config, found=checkpoint, model=model)
    assert sources.inventory is None
    for parallel in (ALONE, Parallel(2), Parallel(4), Parallel(8), Parallel(2, 2)):
        facts = weights_per_rank(sources, parallel, BFLOAT16)
        known = weights_per_rank(sources_of_config(TINY_LLAMA), parallel, BFLOAT16)
        # The names do not say that 1,000 words are padded to 1,024 before one GPU has them all.
        assert facts.bytes_per_rank == known.bytes_per_rank


def test_what_the_user_states_wins() -> None:
    facts = weights_per_rank(WeightSources(stated_bytes=10), Parallel(4, 2), BFLOAT16)
    assert (facts.bytes_per_rank, facts.total_bytes, facts.source) == ((10, 10), 80, "--weights")


def test_no_source_is_a_refusal_with_the_ways_out() -> None:
    with pytest.raises(KvplanError) as caught:
        weights_per_rank(WeightSources(), ALONE, BFLOAT16)
    assert caught.value.code == "no-weights"
    assert any("--weights" in line for line in caught.value.help)
    sources = sources_of_config({**TINY_LLAMA, "model_type": "rwkv5"})
    with pytest.raises(KvplanError, match="weights of 'rwkv5' cannot be derived"):
        weights_per_rank(sources, ALONE, BFLOAT16)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "fewer than 8 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"\xff" * 16, "its header would have"),
        ((MAX_HEADER + 1).to_bytes(8, "little") + b"{}", "its header would have"),
        ((100).to_bytes(8, "little") + b"{}", "longer than the file"),
        ((2).to_bytes(8, "little") + b"[]", "not a table"),
        ((2).to_bytes(8, "little") + b"{x", "not JSON"),
    ],
)
def test_files_that_are_no_checkpoints(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    with pytest.raises(KvplanError, match=words) as caught:
        read_checkpoint(tmp_path)
    assert caught.value.code == "bad-safetensors"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ([], "not a tensor"),
        ({"dtype": "F7", "shape": [1], "data_offsets": [0, 1]}, "unknown dtype"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "no proper shape"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "no proper shape"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "has 4 bytes for 2"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}, "elements"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0]}, "no proper shape"),
    ],
)
def test_headers_that_lie(entry: object, words: str) -> None:
    with pytest.raises(KvplanError, match=words):
        parse_header(json.dumps({"a": entry}).encode(), "file")


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([(0, 4), (2, 6)], "begins at byte 2, and what is before ends at 4"),
        ([(0, 4), (0, 4)], "begins at byte 0, and what is before ends at 4"),
        ([(0, 4), (8, 12)], "begins at byte 8"),
        ([(4, 8), (8, 12)], "begins at byte 4, and what is before ends at 0"),
    ],
)
def test_tensors_lie_one_behind_the_other(spans: list[tuple[int, int]], words: str) -> None:
    header = {f"t{at}": {"dtype": "F32", "shape": [1], "data_offsets": span} for at, span in enumerate(spans)}
    with pytest.raises(KvplanError, match=words):
        parse_header(json.dumps(header).encode(), "file")


def test_what_is_behind_the_last_tensor_is_none_of_it() -> None:
    header = json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    assert parse_header(header, "file", data_bytes=4)
    with pytest.raises(KvplanError, match="end at byte 4 of 8"):
        parse_header(header, "file", data_bytes=8)


def test_one_tensor_in_two_files_is_two_checkpoints(tmp_path: Path) -> None:
    """Without an index every file counts: a folder that has the model twice would be twice its size."""
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA))
    write_file(tmp_path / "model.fp16.safetensors", llama_tensors(TINY_LLAMA)[:1])
    with pytest.raises(KvplanError, match="there are two checkpoints"):
        read_checkpoint(tmp_path)


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    tensors = llama_tensors(TINY_LLAMA)
    write_file(file, tensors)
    with file.open("r+b") as stream:
        stream.truncate(len(header_of(tensors)) + 100)
    with pytest.raises(KvplanError, match="cut off"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin"])
def test_an_index_cannot_point_elsewhere(tmp_path: Path, name: str) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(KvplanError, match="other than files beside it"):
        read_checkpoint(tmp_path)


def test_names_as_users_type_them(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        assert weights_per_rank(sources_of(open_model(name)), ALONE, BFLOAT16).source == "safetensors headers"
    card = sources_of(replace(open_model("qwen3-32b"), config=None))
    facts = weights_per_rank(card, ALONE, BFLOAT16)
    assert (facts.source, facts.total_bytes) == ("card", 65_524_246_528)
    with pytest.raises(KvplanError) as caught:
        weights_per_rank(card, Parallel(2), BFLOAT16)
    assert caught.value.code == "no-weights"


@pytest.mark.parametrize("entry", [b"{},", b"[],", b"1,"])
def test_a_header_of_countless_values_is_not_read(entry: bytes) -> None:
    """64 MiB of empty objects took 1.7 GiB: what a header may hold is counted before it is parsed."""
    data = b'{"a":[' + entry * ((MAX_HEADER - 10) // len(entry)) + b"1]}"
    tracemalloc.start()
    for read in (parse_header, parse_index):
        with pytest.raises(KvplanError, match="more than 2,500,000 values"):
            read(data, name="x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_the_largest_header_takes_less_than_a_gibibyte() -> None:
    """As many tensors as are taken: what they need, without what the text itself needs."""
    entry = '"%d":{"dtype":"BF16","shape":[1,1],"data_offsets":[%d,%d]}'
    data = ("{" + ",".join(entry % (i, i * 2, i * 2 + 2) for i in range(50_000)) + "}").encode()
    tracemalloc.start()
    assert len(parse_header(data, "x")) == 50_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak * MAX_TENSORS // 50_000 < 700 << 20


@pytest.mark.parametrize(("limit", "value"), [("MAX_TENSORS", 20), ("MAX_HEADER", 2000)])
def test_files_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    write_checkpoint(tmp_path, TINY_LLAMA, llama_tensors(TINY_LLAMA), shards=3)
    assert read_checkpoint(tmp_path) is not None
    monkeypatch.setattr(f"kvplan.files.safetensors_header.{limit}", value)
    monkeypatch.setattr("kvplan.files.safetensors_header.read_limited", lambda path, _: path.read_bytes())
    with pytest.raises(KvplanError, match="its files"):
        read_checkpoint(tmp_path)
