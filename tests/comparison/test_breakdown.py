"""llama.cpp's memory breakdown: the table that it prints while it fits parameters, and at its end."""

from __future__ import annotations

import pytest

from kvplan.api import compare
from kvplan.comparison.results import Comparison, Verdict
from kvplan.engines.observed import Observation
from kvplan.files.logs import parse_log
from kvplan.units import MIB

_HEAD = "common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model |\n"
_CONTEXT = """\
llama_context: n_seq_max     = 1
llama_context: n_ctx         = {0}
llama_context: n_ctx_seq     = {0}
"""
_TYPE = "print_info: file type   = Q4_0\n"


def _table(name: str, total: int, free: int, parts: tuple[int, int, int], rest: int) -> str:
    model, context, compute = parts
    return (
        f"common_memory_breakdown_print: |   - {name} | {total:5} = {free} + ({sum(parts)} = {model:5}"
        f" + {context:7} + {compute:7}) + {rest:12} |\n"
    )


def _host(model: int, context: int, compute: int) -> str:
    words = f"{model + context + compute} = {model:5} + {context:7} + {compute:7}"
    return f"common_memory_breakdown_print: |   - Host               |    {words}                |\n"


def _read(text: str) -> Observation:
    return parse_log([text.encode()])


def _compared(text: str, model: str = "llama-3.1-8b") -> Comparison:
    return compare(model, observation=_read(text))


WHOLE = _HEAD + _table("CUDA0 (RTX 2060)", 5738, 5141, (4155, 4096, 140), -7794) + _host(281, 0, 48)


def test_every_column_is_foreseen() -> None:
    """Hermes 3 of Llama 3.1 8B, -c 32768 -np 1 -ub 512, as llama-server printed it in June 2026."""
    found = _compared(_TYPE + WHOLE + _CONTEXT.format(32768))
    assert found.verdict is Verdict.AGREES
    weights, cache = found.row("weights_bytes"), found.row("kv_bytes")
    assert weights.predicted is not None
    assert abs(int(weights.predicted) - 4155 * MIB) < MIB
    assert cache.predicted == 4096 * MIB
    assert found.row("compute_bytes").agrees


def test_layers_in_host_memory_count_as_the_log_says() -> None:
    text = _HEAD + _table("CUDA0 (RTX 2060)", 5738, 5141, (2049, 1792, 248), -3492) + _host(2388, 2304, 48)
    found = _compared(_TYPE + text + "load_tensors: offloaded 15/33 layers to GPU\n" + _CONTEXT.format(32768))
    assert found.verdict is Verdict.AGREES
    assert found.row("weights_bytes").agrees
    assert found.row("kv_bytes").predicted == 4096 * MIB


def test_lines_of_the_buffers_count_before_the_table() -> None:
    """The same caches are not counted twice, and the finer figures are kept."""
    lines = (
        "load_tensors:   CPU_Mapped model buffer size =  2676.44 MiB\n"
        "load_tensors:        CUDA0 model buffer size =  2049.43 MiB\n"
        "llama_kv_cache:        CPU KV buffer size =  2304.00 MiB\n"
        "llama_kv_cache:      CUDA0 KV buffer size =  1792.00 MiB\n"
        "sched_reserve:      CUDA0 compute buffer size =   248.00 MiB\n"
    )
    trial = _HEAD + _table("CUDA0 (RTX 2060)", 5738, 5141, (2166, 1920, 248), -3737) + _host(2271, 2176, 48)
    seen = _read(_TYPE + trial + "load_tensors: offloaded 15/33 layers to GPU\n" + lines)
    total = seen.count("kv_bytes")
    assert total is not None
    assert total.value == 4096 * MIB
    found = _compared(_TYPE + trial + lines + _CONTEXT.format(32768))
    assert found.row("kv_bytes").agrees


def test_the_last_table_counts() -> None:
    trial = WHOLE.replace("4155", "9999").replace("8391", "14235")
    seen = _read(trial + WHOLE).count("weights_bytes")
    assert seen is not None
    row = next(row for row in _read(trial + WHOLE).rows if row.rank.label == "CUDA0")
    assert row.weights_bytes is not None
    assert row.weights_bytes.value == 4155 * MIB


def test_without_a_context_the_cache_tells_it_or_is_not_judged() -> None:
    found = _compared(WHOLE)
    row = found.row("kv_bytes")
    assert row.predicted is None
    assert row.explanation == "the context was taken from this figure"
    assert found.recognised["ctx_size"].startswith("32768 ")
    none_has_it = WHOLE.replace("4096", "4097").replace("8391", "8392")
    other = _compared(none_has_it)
    assert "does not tell the context" in str(other.row("kv_bytes").explanation)
    assert Verdict.DIFFERS not in (found.verdict, other.verdict)


@pytest.mark.parametrize(("rest", "predicted"), [(523, True), (9000, False)])
def test_what_is_unaccounted_is_the_context_or_others(rest: int, predicted: bool) -> None:
    """At the end of a run: CUDA's own is foreseen, what other programs hold is not."""
    free = 24077 - (4155 + 4096 + 140) - rest
    text = _HEAD + _table("CUDA0 (RTX 4090)", 24077, free, (4155, 4096, 140), rest) + _host(281, 0, 48)
    found = _compared(_TYPE + text + _CONTEXT.format(32768))
    row = found.row("unaccounted_bytes")
    assert (row.predicted is not None) is predicted
    assert found.verdict is Verdict.AGREES


def test_a_difference_below_zero_is_no_amount() -> None:
    """Before anything is allocated, and as one build printed it: without its sign."""
    for rest in (-7794, 17592186036877):
        text = _HEAD + _table("CUDA0 (GTX 1080 Ti)", 11165, 8702, (9814, 134, 51), rest)
        assert _read(text).count("unaccounted_bytes") is None


def test_several_gpus_are_dealt_layers() -> None:
    """The device with the most of the weights is compared, the caches are those of all."""
    text = "".join(
        _table(f"CUDA{number} (RTX 3090)", 24124, 23860, parts, -9000)
        for number, parts in enumerate(((1972, 2176, 148), (2183, 1920, 148)))
    )
    found = _compared(_TYPE + _HEAD + text + _host(281, 0, 48) + _CONTEXT.format(32768))
    assert found.row("kv_bytes").agrees
    assert found.row("weights_bytes").agrees


@pytest.mark.parametrize(
    "head",
    [
        "llama_memory_breakdown_print: |   - CUDA0 (A (B) C) | 24077 = 14364 + (",
        "0.00.584 I common_memory_breakdown_print: |   - ROCm1 (RX 9070 XT) | 24077 = 14364 + ( ",
        "common_memory_breakdown_print: |   - Vulkan0 (AMD Radeon RX 6800 (RADV NAVI21)) | 24077 = 1 + ( ",
        "common_memory_breakdown_print: |   - MTL0 (Apple M4 Max) | 24077 = 1 + (",
    ],
)
def test_every_form_of_a_row(head: str) -> None:
    seen = _read(f"{head}9189 =  8064 +     616 +     508) +         523 |\n")
    for name, amount in (("weights_bytes", 8064), ("kv_bytes", 616), ("compute_bytes", 508)):
        count = seen.count(name)
        assert count is not None, name
        assert (count.value, count.high) == (amount * MIB, amount * MIB + MIB - 1)
