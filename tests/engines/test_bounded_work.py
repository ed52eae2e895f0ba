"""Work follows the question: what is taken together or counted gives what one step at a time gives."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.engines.sglang.start.memory_defaults import prefill_graph_count, prefill_graph_sizes
from kvplan.engines.transformers import sectors
from kvplan.engines.transformers.sectors import Geometry, Kind, running
from kvplan.errors import KvplanError
from kvplan.files.traces import entries
from kvplan.files.traces.lengths import read_lengths


@given(largest=st.integers(0, 20_000))
@settings(max_examples=60, deadline=None)
def test_prefill_graphs_are_counted_as_they_are_listed(largest: int) -> None:
    assert prefill_graph_count(largest) == len(prefill_graph_sizes(largest))


def test_a_prefill_of_any_size_is_answered() -> None:
    begun = time.process_time()
    kvplan.size("llama-3.2-1b", gpu="l4", engine="sglang", settings={"chunked_prefill_size": 10**15})
    assert time.process_time() - begun < 2


class _Batch:
    """The part of a batch that `running` reads."""

    def __init__(self, tokens: int, requests: int) -> None:
        self.tokens, self.requests = tokens, requests


@given(
    windowed=st.booleans(), page=st.sampled_from((1, 16, 32)), batch=st.sampled_from((1, 3, 16, 64, 512)),
    most=st.sampled_from((1, 2, 8, 50)), tokens=st.integers(2, 400), share=st.integers(1, 8),
    arriving=st.integers(1, 12), sectors_held=st.sampled_from((1, 5, 20, 100)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_steps_of_one_prompt_taken_together_change_nothing(
    *,
    windowed: bool,
    page: int,
    batch: int,
    most: int,
    tokens: int,
    share: int,
    arriving: int,
    sectors_held: int,
) -> None:
    kinds = (Kind(4), Kind(20, 64)) if windowed else (Kind(4),)
    asked = (Geometry(kinds, page, 256), sectors_held, _Batch(batch, most), tokens, max(1, tokens // share))
    together = running(*asked, arriving)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sectors, "_steps_of_one", lambda *_, **__: 0)
        assert running(*asked, arriving) == together  # type: ignore[arg-type]


def test_a_trace_of_too_many_lines_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvplan.files.traces.lengths.MAX_ROWS", 1000)
    monkeypatch.setattr(entries, "_csv", lambda *_: pytest.fail("it is read"))
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"prompt,answer\n" + b"1,2\n" * 2000))
    with pytest.raises(KvplanError, match="more than 1,000 lines"):
        read_lengths(path, name="trace.csv.gz")


def test_a_token_drafted_has_a_layer_and_layers_are_bounded() -> None:
    draft = {"method": "mtp", "num_speculative_tokens": 10**6}
    with pytest.raises(KvplanError, match="num_speculative_tokens"):
        kvplan.size("deepseek-v3", engine="trtllm", speculative_config=draft)
