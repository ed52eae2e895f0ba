"""tests/data: each record is what its script makes of the published files, where those stand beside."""

from __future__ import annotations

import gzip

from scripts import record_configs, record_published
from tests.recorded import BESIDE, DATA, config_names, packed, record


def test_every_record_is_compact_and_packed_alike() -> None:
    """Without a time in its header, so that recording again changes nothing."""
    paths = sorted(DATA.glob("*.json.gz"))
    assert {"configs", "field_reports", "gpu_facts", "trace_lengths"} <= {
        path.name.partition(".")[0] for path in paths
    }
    for path in paths:
        body = path.read_bytes()
        assert body[4:8] == bytes(4), "mtime"
        assert len(body) < 256 * 1024
        assert gzip.decompress(packed(record(path.name.partition(".")[0]))) == gzip.decompress(body)


def test_the_records_are_what_was_published() -> None:
    assert len(config_names()) >= 225
    for name, make in record_published.MADE.items():
        assert record(name)
        if (BESIDE / "data").is_dir():
            assert record(name) == make(BESIDE), f"python -m scripts.record_published: {name}"


def test_a_recorded_config_keeps_only_what_is_asked_for() -> None:
    raw = {
        "num_hidden_layers": 2,
        "transformers_version": "5",
        "a_key_of_nobody": 1,
        "text_config": {"head_dim": 64, "another_of_nobody": 1},
        "quantization_config": {"whatever": {"it": "says"}},
    }
    assert record_configs.subset(raw) == {
        "num_hidden_layers": 2,
        "text_config": {"head_dim": 64},
        "quantization_config": {"whatever": {"it": "says"}},
    }
