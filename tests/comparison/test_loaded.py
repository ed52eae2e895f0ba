"""Lists of what a program loaded, read and compared: ``ollama ps``, ``lms load --estimate-only``."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.comparison import Verdict
from kvplan.engines.doors import door_of
from kvplan.errors import KvplanError
from kvplan.files.logs.listed import listed_in
from kvplan.units import GIB

HEAD = "NAME        ID              SIZE      PROCESSOR    CONTEXT    UNTIL"
ROWS = {
    # Ollama 0.34.4, f16 cache: a log of an evaluation, 2026-09-28.
    "qwen3:8b": ("500a1f067a9f", "7.5 GB", "100% GPU", 16384),
    # OLLAMA_CONTEXT_LENGTH=65536, of a test of coding agents in 2026.
    "qwen3-coder:30b": ("06c1097efce0", "25 GB", "100% GPU", 65536),
}


def _table(*names: str) -> str:
    rows = [f"{name}    {'    '.join(map(str, ROWS[name]))}      4 minutes from now" for name in names]
    return "\n".join(("$ ollama ps", HEAD, *rows, ""))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("gpu", ["rtx-5090", "a100-sxm-80gb"])
def test_what_ollama_lists_is_inside(name: str, gpu: str) -> None:
    found = kvplan.compare(log=[_table(name).encode()], gpu=gpu)
    assert found.verdict in (Verdict.AGREES, Verdict.INSIDE)
    row = found.row("loaded_bytes")
    assert isinstance(row.predicted_low, int)
    assert isinstance(row.predicted_high, int)
    assert row.predicted_low <= row.reported * 1.07
    assert row.reported <= row.predicted_high
    assert found.row("loaded_gpu_percent").predicted == 100


def test_the_interval_of_a_printed_size() -> None:
    """format/bytes.go: cut from 10 on, rounded to a tenth below."""
    seen = listed_in(_table(*ROWS))
    assert seen is not None
    ends = [(row.loaded_bytes.low, row.loaded_bytes.high) for row in seen.rows if row.loaded_bytes]
    assert ends == [(7_450_000_000, 7_550_000_000), (25_000_000_000, 25_999_999_999)]
    assert [row.loaded_context.value for row in seen.rows if row.loaded_context] == [16384, 65536]


def test_one_of_several_is_named() -> None:
    text = _table(*ROWS).encode()
    with pytest.raises(KvplanError, match="lists 2 models"):
        kvplan.compare(log=[text], gpu="rtx-5090")
    found = kvplan.compare("qwen3-coder:30b", log=[text], gpu="rtx-5090")
    assert found.row("loaded_bytes").printed == "25 GB"
    with pytest.raises(KvplanError, match="does not list"):
        kvplan.compare("llama3.2", log=[text], gpu="rtx-5090")
    with pytest.raises(KvplanError, match="which GPU"):
        kvplan.compare("qwen3:8b", log=[text])


def test_a_part_in_host_memory_is_a_share_of_the_gpu() -> None:
    """llama3.3 on 24 GB: 43 GB, of which some 60 % lie on the CPU."""
    text = f"{HEAD}\nllama3.3:70b  a6eb4748fd29  55 GB  59%/41% CPU/GPU  32768  Forever\n"
    found = kvplan.compare(log=[text.encode()], gpu="rtx-4090")
    row = found.row("loaded_gpu_percent")
    assert row.reported == 41
    assert isinstance(row.predicted, int)
    assert 30 < row.predicted < 60


def test_buffers_are_weights_cache_and_graph() -> None:
    """Of windows the full cache is not in Ollama's sum, nor are the encoder's weights."""
    for name, left_out in (("qwen3:8b", False), ("gemma3:4b", True)):
        model = kvplan.load_model(name)
        found = kvplan.size(model, engine="ollama", gpu="rtx-3090", tokens=8192)
        assert found.budget is not None
        own = {line.name: line.bytes for line in found.budget.lines}
        whole = own["weights"] + own["compute buffer"] + own.get("image encoder", 0) + found.per_gpu.kv_bytes
        listed, studio = door_of("ollama").loaded, door_of("lmstudio").loaded
        assert listed is not None
        assert studio is not None
        taken, other = listed(model, found), studio(model, found)
        assert taken is not None
        assert other is not None
        assert other.gpu[1] == whole
        assert (taken.gpu[1] < whole) is left_out


def test_an_estimate_of_lm_studio() -> None:
    text = (
        "Model: qwen/qwen3-8b\nContext Length: 8,192\nEstimated GPU Memory:   6.30 GiB\n"
        "Estimated Total Memory: 6.30 GiB\n\nEstimate: This model may be loaded.\n"
    )
    found = kvplan.compare(log=[text.encode()], gpu="rtx-4090")
    row = found.row("loaded_bytes")
    assert row.reported == round(6.3 * GIB) or abs(row.reported - 6.3 * GIB) < 1
    assert "context" in found.recognised
    assert any("estimates it" in note for note in found.notes)


def test_other_tables_are_none() -> None:
    assert listed_in("NAME  ID  SIZE  MODIFIED\nqwen3:8b 500a1f067a9f 5.2 GB 2 days ago\n") is None
    assert listed_in(f"{HEAD}\n") is None
    with pytest.raises(KvplanError, match="no start-up line"):
        kvplan.compare(log=[f"{HEAD}\n".encode()])
