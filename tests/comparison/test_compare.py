"""Comparison of synthetic starts whose figures follow from arithmetic that is written out here.

Llama-3.1-8B keeps 131,072 B a token in bfloat16 (32 layers, 8 heads, 128 wide, K and V): 16 GiB are 8,192
blocks of 16 tokens. Gemma-3-27B keeps 5,734,400 B a block of 16 tokens in each of 7 groups of 10 layers.
"""

from __future__ import annotations

import importlib
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvplan
from kvplan.api import compare, size
from kvplan.comparison import ComparedRow, Comparison, Verdict
from kvplan.engines.observed import Observation, Row, exact_count
from kvplan.engines.observed.printed import parse_count, parse_ratio
from kvplan.errors import KvplanError
from kvplan.report.schema import answer_schema
from tests.comparison.logs import observed, vllm_log
from tests.report.schemas import answer_errors

GEMMA: dict[str, Any] = {
    "model": "google/gemma-3-27b-it",
    "version": "0.19.0",
    "length": 8192,
    "config": ", enable_prefix_caching=False",
}


def _of(text: str, **options: Any) -> Comparison:
    return compare(observation=observed(text), **options)


def _all_agree(found: Comparison) -> bool:
    compared = [row for row in found.rows if row.predicted is not None]
    return bool(compared) and all(row.agrees for row in compared)


def test_sixteen_gib_of_llama() -> None:
    found = _of(vllm_log())
    assert found.verdict is Verdict.AGREES
    assert found.row("kv_tokens").predicted == found.row("kv_tokens").reported == 131072
    assert found.row("kv_tokens").difference == 0
    assert found.row("kv_tokens").ratio == 1
    assert found.row("max_concurrency").predicted == 1
    assert found.engine.version == "0.32"
    assert found.model is not None
    assert found.model.id == "meta-llama/Llama-3.1-8B"


def test_the_json_holds_the_contract() -> None:
    data = _of(vllm_log()).model_dump()
    assert json.loads(json.dumps(data)) == data
    assert answer_errors(answer_schema("compare"), data) == []
    assert {"schema_version", "engine", "settings", "rows", "verdict"} <= set(data)
    assert data["verdict"] == "agrees"
    for row in data["rows"]:
        assert {"name", "predicted", "reported", "difference", "ratio", "explanation"} <= set(row)


@pytest.mark.parametrize(
    ("model", "pool", "tokens", "concurrency"),
    [
        ("google/gemma-3-12b-it", None, "130,304", "15.88"),
        ("google/gemma-3-27b-it", "19.53", "36,560", "4.46"),
        ("google/gemma-2-9b-it", "54.12", "168,880", "20.60"),
    ],
)
def test_grouped_caches_before_the_tokens_line_changed(
    model: str, pool: str | None, tokens: str, concurrency: str
) -> None:
    if pool is None:
        # The pool that prints 130,304 tokens: as many blocks of 16 in each of the groups.
        page = size(model, engine="vllm@0.19", kv_cache_memory="64GiB", enable_prefix_caching=False).pool
        assert page is not None
        blocks = 130304 // 16 * len(page.groups)
        pool = f"{page.bytes_per_block * blocks / 2**30:.2f}"
    text = vllm_log(
        **{**GEMMA, "model": model, "pools": (pool,), "tokens": tokens, "concurrency": concurrency}
    )
    found = _of(text)
    assert found.verdict is Verdict.AGREES
    assert _all_agree(found)
    assert "one group's share" in (found.row("kv_tokens").explanation or "")


def test_grouped_caches_since_the_tokens_line_changed() -> None:
    # 15,998 blocks; a request of 8,192 tokens takes 512 + 6 × 513: 4.456 requests of 8,192 tokens.
    tokens = int(15998 / 3590 * 8192)
    text = vllm_log(
        **{**GEMMA, "version": "0.22.0"}, pools=("19.53",), tokens=f"{tokens:,}", concurrency="4.46"
    )
    found = _of(text)
    assert _all_agree(found)
    assert "since 0.20 this line is concurrency × length 8,192" in (found.row("kv_tokens").explanation or "")
    assert "7 groups of 10 layers pay for 70; the model has 62" in (found.row("kv_tokens").explanation or "")


@pytest.mark.parametrize(("version", "agrees"), [("0.20.0", True), ("0.20.1", False), ("0.20.2", False)])
def test_the_first_patch_of_0_20_still_prints_a_group_s_share(version: str, agrees: bool) -> None:
    found = _of(
        vllm_log(**{**GEMMA, "version": version}, pools=("19.53",), tokens="36,560", concurrency="4.46")
    )
    row = found.row("kv_tokens")
    assert row.agrees is agrees
    if agrees:
        assert row.predicted == 36_560
        assert "before 0.20.1 this line is one group's share" in (row.explanation or "")


def test_the_version_that_is_not_said_is_found() -> None:
    text = "\n".join(
        vllm_log(**GEMMA, pools=("19.53",), tokens="36,560", concurrency="4.46").splitlines()[1:]
    )
    found = _of(text, model="gemma-3-27b", enable_prefix_caching=False)
    assert found.verdict is Verdict.AGREES
    assert "rules of vLLM" in (found.row("kv_tokens").explanation or "")
    # Rules that somebody named are not replaced: the explanation says what would agree.
    named = _of(text, model="gemma-3-27b", engine="vllm@0.32", enable_prefix_caching=False, tolerance="0.001")
    assert named.verdict is Verdict.DIFFERS
    assert "rules of vLLM 0.19" in (named.row("kv_tokens").explanation or "")


def test_printed_gib_are_rounded() -> None:
    found = _of(vllm_log(pools=("58.53",), tokens="479,488", concurrency="3.66"))
    row = found.row("kv_tokens")
    assert row.agrees
    assert row.predicted != row.reported
    assert row.predicted_low is not None
    assert row.predicted_high is not None
    assert row.predicted_low <= row.reported <= row.predicted_high
    assert "the printed 58.53 GiB is rounded" in (row.explanation or "")


def test_figures_that_no_one_pool_prints_do_not_agree_together() -> None:
    # Each is within the rounding of 58.53 GiB, but one needs more blocks than the other allows.
    low, high = 58.525 * 2**30 / 131072, 58.535 * 2**30 / 131072
    tokens = int(low) // 16 * 16 + 16
    found = compare(
        "llama-3.1-8b",
        observation=Observation(
            engine="vllm",
            engine_version="0.19.0",
            rows=(
                Row(
                    available_kv_bytes=parse_count("58.53", "GiB"),
                    kv_tokens=exact_count(tokens),
                    num_blocks=exact_count(int(high) // 16),
                ),
            ),
        ),
    )
    assert [row.agrees for row in found.rows if row.predicted is not None] == [True, False]
    assert found.verdict is Verdict.AGREES
    assert "within 2 %" in found.reason


def test_the_smallest_rank_decides() -> None:
    text = vllm_log(
        model="meta-llama/Llama-3.1-70B", pools=("20.00", "18.00"), tokens="117,952", concurrency="0.90"
    )
    found = _of(text, tolerance="0")
    row = found.row("kv_tokens")
    assert row.predicted == 117952
    assert "the smallest rank decides: Worker_TP1 has 18.00 GiB, others up to 20.00 GiB" in (
        row.explanation or ""
    )


def test_a_rank_that_the_log_does_not_show() -> None:
    text = vllm_log(pools=("16.00",), tokens="220,000", concurrency=None).replace(
        "tensor_parallel_size=1", "tensor_parallel_size=2"
    )
    found = _of(text)
    assert found.verdict is Verdict.DIFFERS
    assert "the log shows 1 of 2 ranks" in (found.row("kv_tokens").explanation or "")


def test_decode_context_parallelism_multiplies_the_line() -> None:
    options: dict[str, Any] = {
        "engine": "vllm@0.19",
        "tp": 8,
        "dcp": 8,
        "max_model_len": 8192,
        "tokens": 8192,
    }
    own = size("deepseek-v3", kv_cache_memory="16GiB", **options).pool
    assert own is not None
    text = vllm_log(
        model="deepseek-ai/DeepSeek-V3", version="0.19.0", length=8192, pools=("16.00",) * 8,
        tokens=f"{own.kv_tokens:,}", concurrency=f"{own.max_concurrency:.2f}",
        config=", decode_context_parallel_size=8",
    )  # fmt: skip
    found = _of(text)
    assert _all_agree(found)
    assert "multiplied by decode_context_parallel_size 8" in (found.row("kv_tokens").explanation or "")


def test_an_override_replaces_the_blocks() -> None:
    text = vllm_log(
        version="0.19.0",
        tokens="8,192",
        concurrency="0.06",
        lines=("INFO Overriding num_gpu_blocks=8192 with num_gpu_blocks_override=512",),
    )
    found = _of(text, max_model_len=8192)
    row = found.row("kv_tokens")
    assert row.agrees
    assert "num_gpu_blocks_override 512 replaces the 8,192 blocks" in (row.explanation or "")


def test_another_cache_dtype_is_recognised() -> None:
    text = vllm_log(tokens="262,144", concurrency="2.00", config=", kv_cache_dtype=auto")
    found = _of(text)
    assert found.verdict is Verdict.DIFFERS
    assert found.row("kv_tokens").explanation == "these are the figures of a cache in fp8"
    # Where nothing is said of it, fp8 is what the figures mean.
    silent = _of(vllm_log(tokens="262,144", concurrency="2.00"))
    assert silent.verdict is Verdict.AGREES
    assert silent.settings["kv_cache_dtype"] == "fp8"
    assert "which the log does not say" in (silent.row("kv_tokens").explanation or "")


def test_flags_count_before_the_log() -> None:
    text = vllm_log(tokens="262,144", concurrency="2.00", config=", kv_cache_dtype=auto")
    assert _of(text, kv_cache_dtype="fp8").verdict is Verdict.AGREES
    assert _of(text, kv_cache_memory="32GiB").verdict is Verdict.AGREES


def test_tolerance() -> None:
    text = vllm_log(tokens="130,000", concurrency="0.99")
    assert _of(text, tolerance="0.02").verdict is Verdict.AGREES
    assert _of(text, tolerance="0.001").verdict is Verdict.DIFFERS
    assert _of(text, tolerance=Fraction(1, 100)).verdict is Verdict.AGREES


def test_no_pool_but_tokens_and_concurrency() -> None:
    found = _of(vllm_log(pools=(), tokens="262,144", concurrency="2.00").replace("size=0", "size=1"))
    assert found.verdict is Verdict.AGREES
    assert found.row("kv_tokens").predicted is None
    assert found.row("max_concurrency").agrees
    other = _of(vllm_log(pools=(), tokens="262,144", concurrency="3.00").replace("size=0", "size=1"))
    assert other.verdict is Verdict.DIFFERS


def test_one_figure_alone_cannot_be_compared() -> None:
    found = _of(vllm_log(pools=(), tokens="262,144", concurrency=None).replace("size=0", "size=1"))
    assert found.verdict is Verdict.CANNOT_COMPARE
    assert "how many bytes" in found.reason
    nothing = compare("llama-3.1-8b", observation=Observation("vllm", engine_version="0.32.0"))
    assert nothing.verdict is Verdict.CANNOT_COMPARE


def test_an_engine_without_rules_cannot_be_compared() -> None:
    observation = Observation("nobody", rows=(Row(kv_tokens=exact_count(5)),))
    found = compare("llama-3.1-8b", observation=observation)
    assert found.verdict is Verdict.CANNOT_COMPARE
    assert "not known" in found.reason
    assert found.row("kv_tokens").reported == 5


REFUSAL = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (8.00 GiB). Based on the available memory, "
    "the estimated maximum model length is 65536."
)


def test_a_refusal_is_predicted_with_its_figures() -> None:
    text = vllm_log(version="0.28.0", pools=("8.00",), tokens=None, concurrency=None, lines=())
    found = _of(text + REFUSAL + "\n")
    assert found.verdict is Verdict.AGREES
    assert found.row("starts").reported is False
    assert answer_errors(answer_schema("compare"), found.model_dump()) == []
    assert found.row("starts").predicted is False
    assert found.row("needed_kv_bytes").predicted == 16 * 2**30
    assert found.row("estimated_max_model_len").predicted == 65536


def test_a_refusal_that_is_not_predicted() -> None:
    found = _of(
        vllm_log(pools=("20.00",), tokens=None, concurrency=None) + REFUSAL.replace("8.00", "20.00") + "\n"
    )
    assert found.verdict is Verdict.DIFFERS
    assert not found.row("starts").agrees


def test_a_start_that_should_have_been_refused() -> None:
    found = _of(vllm_log(pools=("8.00",), tokens="65,536", concurrency="0.50"))
    assert found.verdict is Verdict.DIFFERS
    assert "needs 8,192 blocks" in (found.row("starts").explanation or "")


@pytest.mark.parametrize("version", ["0.1.dev19754+g3a0914114", "nightly", "9.9.0", "0.5.4", "v0.32.0"])
def test_odd_versions_are_taken_with_a_note(version: str) -> None:
    observation = Observation(
        "vllm",
        engine_version=version,
        rows=(Row(available_kv_bytes=parse_count("16.00", "GiB"), kv_tokens=exact_count(131072)),),
    )
    found = compare("llama-3.1-8b", observation=observation)
    assert found.verdict is Verdict.AGREES
    assert found.notes or version == "v0.32.0"


def test_the_log_of_another_engine_is_refused() -> None:
    with pytest.raises(KvplanError, match="not of transformers"):
        _of(vllm_log(), engine="transformers")


def test_a_backend_that_nobody_knows_is_left_out() -> None:
    found = _of(vllm_log(config=", attention_backend='NEW_ATTN'"))
    assert found.verdict is Verdict.AGREES
    assert any("attention_backend" in note for note in found.notes)
    with pytest.raises(KvplanError, match="NEW_ATTN"):
        _of(vllm_log(), attention_backend="NEW_ATTN")


def test_unknown_words_in_the_log_are_no_crash() -> None:
    found = _of(vllm_log(config=", kv_cache_dtype='fp7'"))
    assert found.verdict is Verdict.CANNOT_COMPARE
    assert "fp7" in found.reason


def test_settings_are_told_with_their_place() -> None:
    found = _of(vllm_log(), tp=1)
    assert found.recognised["max_model_len"] == "131072 (log, line 4)"
    assert found.recognised["tensor_parallel_size"] == "1 (given)"


def test_several_sources_are_refused() -> None:
    with pytest.raises(KvplanError, match="a log or a url"):
        compare("llama-3.1-8b")
    with pytest.raises(KvplanError, match="not several"):
        compare("llama-3.1-8b", log="x", observation=observed(vllm_log()))


def test_the_function_is_the_package_s() -> None:
    importlib.import_module("kvplan.comparison")  # which must not hide the function

    assert kvplan.compare is compare


@pytest.mark.parametrize(
    ("memory", "gpu"),
    [
        ("79.19", "h100"),
        ("79.25", "a100"),
        ("79.15", "a100"),
        ("121.69", "gb10"),
        ("119.63", "gb10"),
        ("50.00", "h100-sxm-80gb (assumed)"),
    ],
)
def test_the_gpu_is_known_by_its_memory(memory: str, gpu: str) -> None:
    observation = Observation(
        "vllm",
        engine_version="0.32.0",
        rows=(
            Row(
                available_kv_bytes=parse_count("16.00", "GiB"),
                kv_tokens=exact_count(131072),
                total_memory_bytes=parse_count(memory, "GiB"),
            ),
        ),
    )
    assert gpu in str(compare("llama-3.1-8b", observation=observation).settings["gpu"]).lower()


@given(
    blocks=st.integers(min_value=600, max_value=200_000),
    version=st.sampled_from(["0.10.0", "0.19.0", "0.21.0", "0.27.0", "0.32.0", "0.33.0"]),
    model=st.sampled_from(["llama-3.1-8b", "qwen3-32b", "gpt-oss-20b", "deepseek-v3"]),
)
@settings(max_examples=40, deadline=None)
def test_what_the_rules_print_is_what_they_agree_with(blocks: int, version: str, model: str) -> None:
    """Any pool, printed as that release prints it, agrees with itself to the digit."""
    settings_of: dict[str, Any] = {"engine": f"vllm@{version}", "max_model_len": 4096, "tokens": 4096}
    known = size(model, kv_cache_memory="900GiB", **settings_of).pool
    assert known is not None
    memory = known.bytes_per_block * blocks
    pool = size(model, kv_cache_memory=memory, **settings_of).pool
    if pool is None:
        return
    row = Row(
        available_kv_bytes=parse_count(f"{memory / 2**30:.2f}", "GiB"),
        kv_tokens=exact_count(pool.kv_tokens),
        max_concurrency=parse_ratio(f"{pool.max_concurrency:.2f}"),
        max_concurrency_tokens=exact_count(4096),
    )
    found = compare(model, observation=Observation("vllm", engine_version=version, rows=(row,)))
    assert found.verdict is Verdict.AGREES
    assert _all_agree(found)


def test_a_row_without_a_prediction_has_no_difference() -> None:
    row = ComparedRow("weights_bytes", "bytes", 5, "5")
    assert row.difference is None
    assert row.ratio is None
    assert row.off_by() == 0
