"""The reader of GGUF headers beside the gguf package's own: values, sizes of tensors, tables of types."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.architectures.gguf.read import BLOCKS, FILE_TYPES, GUESSED, SCALARS
from kvplan.files.gguf.file import read_header

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")

WORD = st.text("abcxyz_.", min_size=1, max_size=12)
LARGE = st.integers(0, 2**32 - 1)
VALUES = st.one_of(
    st.tuples(st.just("add_bool"), st.booleans()),
    st.tuples(st.just("add_uint8"), st.integers(0, 255)),
    st.tuples(st.just("add_int8"), st.integers(-128, 127)),
    st.tuples(st.just("add_uint16"), st.integers(0, 2**16 - 1)),
    st.tuples(st.just("add_int16"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("add_uint32"), LARGE),
    st.tuples(st.just("add_int32"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("add_uint64"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("add_int64"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("add_float32"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("add_float64"), st.floats(allow_nan=False)),
    st.tuples(
        st.just("add_string"), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    ),
    st.tuples(st.just("add_array"), st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9)),
    st.tuples(st.just("add_array"), st.lists(st.booleans(), min_size=1, max_size=9)),
    st.tuples(st.just("add_array"), st.lists(WORD, min_size=1, max_size=9)),
)
KINDS = sorted(set(BLOCKS) - {int(gguf.GGMLQuantizationType.Q8_1), int(gguf.GGMLQuantizationType.Q8_K)})
TENSORS = st.dictionaries(
    WORD, st.tuples(st.sampled_from(KINDS), st.lists(st.integers(1, 4), max_size=2)), max_size=5
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.dictionaries(WORD, VALUES, max_size=8),
    tensors=TENSORS,
    tokens=st.integers(0, 30),
    big=st.booleans(),
)
def test_the_reader_says_what_the_package_says(
    tmp_path: Path, keys: dict[str, tuple[str, Any]], tensors: dict[str, Any], tokens: int, *, big: bool
) -> None:
    import numpy as np

    path = tmp_path / "one.gguf"
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(str(path), "llama", endianess=order)
    for key, (add, value) in keys.items():
        getattr(writer, add)(f"llama.{key}", value)
    if tokens:
        writer.add_token_list([f"token{index}" for index in range(tokens)])
    for name, (kind, dims) in tensors.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        shape = [*dims, 2 * size if elements > 1 else 2]
        plain = {0: np.float32, 1: np.float16, 24: np.int8, 25: np.int16, 26: np.int32, 27: np.int64,
                 28: np.float64}  # fmt: skip
        if kind in plain:
            writer.add_tensor(name, np.zeros(shape, dtype=plain[kind]))
        else:
            raw = [*dims, 2 * size]
            writer.add_tensor(name, np.zeros(raw, dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    found = read_header(path, tensors=True)
    logging.disable(logging.WARNING)
    theirs = gguf.GGUFReader(str(path))
    logging.disable(logging.NOTSET)
    values = {
        key: field.contents()
        for key, field in theirs.fields.items()
        if not key.startswith(("GGUF.", "tokenizer."))
    }
    assert found.values == values
    assert found.vocab == tokens
    assert found.tensors == {tensor.name: int(tensor.n_bytes) for tensor in theirs.tensors}


def test_the_types_are_those_of_the_package() -> None:
    sizes = {
        int(kind): (kind.name.lower(), elements, size)
        for kind, (elements, size) in gguf.GGML_QUANT_SIZES.items()
    }
    assert sizes == BLOCKS
    names = {int(kind): kind.name.removeprefix("MOSTLY_").lower() for kind in gguf.LlamaFileType}
    assert names == {**FILE_TYPES, GUESSED: "guessed"}
    kinds = {int(kind) for kind in gguf.GGUFValueType} - {8, 9}
    assert set(SCALARS) == kinds
