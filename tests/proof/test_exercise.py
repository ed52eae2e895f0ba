"""Every family under every engine: bytes as predicted, requests as predicted, everything read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.api import make_settings
from kvplan.engines.tensors import BlockPool, Group, GroupKind, Layout, Rank, layout_of
from kvplan.errors import KvplanError
from kvplan.families import FAMILIES
from kvplan.proof.validate.checks import odd_length
from kvplan.proof.validate.findings import WorkloadTest
from kvplan.proof.validate.workload_test import workload_test
from tests.laws.sampling import some
from tests.proof.models import CARDS, MORE_CARDS, OPTIONS, SYNTHETIC, small, smallest

NAMES = (*CARDS, *MORE_CARDS, *SYNTHETIC)
# What the engines do not serve, or kvplan's rules for them do not describe.
REFUSED: dict[str, set[str]] = {
    "vllm": {"mamba2", "lightning_attention", "rg_lru", "rwkv4", "rwkv5", "xlstm"},
    "sglang": {"compressed_attention", "mamba1", "mamba2", "lightning_attention", "rg_lru", "rwkv4", "rwkv5"},
    "trtllm": {"compressed_attention", "mamba1", "kda", "lightning_attention", "short_convolution", "rg_lru"},
    "llamacpp": {"rg_lru", "rwkv4", "rwkv5", "xlstm", "cross_attention", "whisper", "index beside heads"},
    "transformers": set(),
    "generic": set(),
}
REFUSED["sglang"] |= {"xlstm", "cross_attention", "whisper", "mamba1+attention", "index beside heads"}
REFUSED["sglang"] |= {"no_cache"}  # five states of this model do not fit into the largest pool tried
REFUSED["trtllm"] |= {"rwkv4", "rwkv5", "xlstm", "cross_attention", "whisper", "mamba1+attention"}
# Classes that its PyTorch backend does not register.
REFUSED["trtllm"] |= {"mamba2", "mha", "mqa", "shared_kv", "index beside heads", "wide keys"}
for _engine in ("vllm", "sglang", "trtllm", "llamacpp"):
    REFUSED[_engine] |= set(SYNTHETIC)
REFUSED["llamacpp"] -= {"ngram_embedding"}
REFUSED["vllm"] -= {"kv_convolution", "ngram_embedding", "windowed_convolution"}


def options_for(engine: str, name: str) -> dict[str, Any]:
    options: dict[str, Any] = {"tokens": 300, **OPTIONS[engine]}
    if name == "compressed_attention" and engine == "vllm":
        options["kv_cache_dtype"] = "fp8"
    if name in ("cross_attention", "whisper") and engine == "vllm":
        options["max_model_len"] = 448
    if name == "two heads" and engine == "vllm":
        options["language_model_only"] = True  # a video would have to fit into a batch
    return options


def passes(layout: Layout) -> WorkloadTest:
    """Everything as predicted, and something was really done."""
    found = workload_test(layout)
    assert found.bytes_allocated == found.bytes_predicted == layout.bytes
    assert found.requests_admitted == found.requests_predicted >= 1
    assert found.tensors_wrong == ()
    assert found.mismatches == ()
    assert (found.states_wrong, found.states_missing) == (0, 0)
    assert found.extra_refused
    assert found.undisturbed
    assert found.all_freed
    assert found.reserved_untouched
    assert all(one.ok and not one.note for one in found.attention), found.attention
    assert found.states_verified >= found.requests_admitted
    assert found.ok
    return found


def test_every_family_is_here() -> None:
    assert set(FAMILIES) == {*CARDS, *SYNTHETIC}


ASKED = some(((engine, name) for engine in OPTIONS for name in NAMES), 4, by=lambda asked: asked[0])


@pytest.mark.laws
@pytest.mark.parametrize(("engine", "name"), ASKED)
def test_family(engine: str, name: str) -> None:
    model, options = small(name), options_for(engine, name)
    if name in REFUSED[engine]:
        with pytest.raises(KvplanError) as refused:
            smallest(model, engine, **options)
        assert refused.value.code in ("engine-refuses", "unknown-layer-type", "unknown-rule")
        return
    passes(smallest(model, engine, **options))


@pytest.mark.parametrize(
    ("engine", "name", "options"),
    [
        ("vllm", "full_attention", {"kv_cache_dtype": "fp8"}),
        ("vllm", "full_attention", {"kv_cache_dtype": "int8_per_token_head"}),
        ("vllm", "full_attention", {"kv_cache_dtype": "int4_per_token_head"}),
        ("vllm", "full_attention", {"kv_cache_dtype": "nvfp4", "gpu": "b200"}),
        ("vllm", "full_attention", {"kv_cache_dtype": "turboquant_k3v4_nc"}),
        ("vllm", "full_attention", {"gpu": "b200", "attention_backend": "FLASHINFER"}),
        ("vllm", "sparse_indexer", {"kv_cache_dtype": "fp8_ds_mla"}),
        ("vllm", "sliding_window", {"disable_hybrid_kv_cache_manager": True}),
        ("vllm", "sliding_window", {"tensor_parallel_size": 2}),
        ("vllm", "gated_delta_net", {"enable_prefix_caching": False}),
        ("sglang", "full_attention", {"kv_cache_dtype": "fp8_e5m2", "block_size": 16}),
        ("sglang", "full_attention", {"kv_cache_dtype": "nvfp4", "gpu": "b200"}),
        ("sglang", "full_attention", {"kv_cache_dtype": "mxfp8", "gpu": "b200"}),
        ("sglang", "sparse_indexer", {"kv_cache_dtype": "fp8_e4m3"}),
        ("sglang", "sliding_window", {"block_size": 64, "tensor_parallel_size": 2}),
        ("trtllm", "full_attention", {"kv_cache_dtype": "fp8"}),
        ("trtllm", "full_attention", {"kv_cache_dtype": "nvfp4", "gpu": "b200"}),
        ("trtllm", "full_attention", {"engine_options": {"max_attention_window": "128,512"}}),
        ("llamacpp", "full_attention", {"kv_cache_dtype": "q8_0"}),
        ("llamacpp", "full_attention", {"kv_cache_dtype": "q4_0"}),
        ("llamacpp", "sliding_window", {"engine_options": {"kv_unified": "on"}}),
        ("llamacpp", "sliding_window", {"engine_options": {"flash_attn": "off"}}),
        ("llamacpp", "sliding_window", {"engine_options": {"flash_attn": "off", "kv_unified": "on"}}),
        ("llamacpp", "sliding_window", {"engine_options": {"swa_full": "on"}}),
        ("transformers", "sliding_window", {"cache_implementation": "static", "max_model_len": 512}),
        ("generic", "full_attention", {"kv_cache_dtype": "int4_g32"}),
        ("generic", "full_attention", {"kv_cache_dtype": "kivi2_g32"}),
        ("generic", "mla", {"kv_cache_dtype": "nvfp4"}),
    ],
)
def test_formats_and_settings(engine: str, name: str, options: dict[str, Any]) -> None:
    given = {**options_for(engine, name), **options}
    own = given.pop("engine_options", {})
    passes(smallest(small(name), engine, **given, **own))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp", "generic"])
@pytest.mark.parametrize("name", ["full_attention", "sliding_window", "mla"])
def test_every_pipeline_stage(engine: str, name: str) -> None:
    for stage in range(2):
        given = {**options_for(engine, name), "pipeline_parallel_size": 2}
        passes(smallest(small(name), engine, rank=Rank(stage=stage), **given))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_context_rank_holds_its_tokens(engine: str) -> None:
    written = []
    for context in range(2):
        given = {
            **options_for(engine, "mla"),
            "tokens": 301,
            "tensor_parallel_size": 2,
            "decode_context_parallel_size": 2,
        }
        layout = smallest(small("mla"), engine, rank=Rank(context=context), **given)
        found = passes(layout)
        written.append(found.states_written)
        assert layout.groups[0].shards == 2
    # 301 tokens: the first rank holds one more of every request.
    assert written[0] > written[1]


def test_a_short_request_and_a_long_one() -> None:
    for tokens in (1, 15, 16, 17, 512):
        passes(smallest(small("sliding_window"), "vllm", **{**OPTIONS["vllm"], "tokens": tokens}))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_requests_of_several_lengths(engine: str) -> None:
    layout = smallest(small("sliding_window"), engine, **options_for(engine, "sliding_window"))
    found = workload_test(layout, lengths=(17, 300, 128))
    assert found.ok
    assert found.requests_admitted == found.requests_predicted > layout.requests
    alone = workload_test(layout, lengths=(300,))
    assert alone.requests_admitted == layout.requests


def test_stop_and_progress() -> None:
    layout = smallest(small("full_attention"), "vllm", **options_for("vllm", "full_attention"))
    seen: list[tuple[str, int, int]] = []
    whole = workload_test(layout, progress=lambda *step: seen.append(step))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["write", "read", "refill", "fork", "grow", "read again", "attention"]
    assert all(0 <= done <= total for _, done, total in seen)
    for after in (1, len(seen) // 2, len(seen) - 1):
        left = iter(range(after))
        part = workload_test(layout, stop=lambda left=left: next(left, None) is None)  # type: ignore[misc]
        assert part.stopped_at in stages
        assert not part.ok
        assert part.states_written <= whole.states_written


def test_a_full_pool_is_written_in_as_many_passes_as_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of 16 MiB full of requests of one block: calls of ``write`` follow the views."""
    from kvplan.proof.validate import workload_test as module
    from kvplan.proof.validate.fill import write

    calls: list[int] = []

    def counted(*words: Any) -> int:
        calls.append(words[2].count)
        return write(*words)

    monkeypatch.setattr(module, "write", counted)
    model = small("full_attention")
    settings = make_settings(kv_cache_memory=16 * 2**20, tokens=16, max_model_len=16, max_num_seqs=4096)
    layout = layout_of(model, "vllm", "0.32", settings)
    found = passes(layout)
    assert found.requests_admitted == 50
    assert found.refilled >= 25
    stages = 5  # write, refill, fork, grow, step
    assert len(layout.views) <= len(calls) <= stages * len(layout.views)


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])  # SGLang's pages have one token
def test_whole_blocks_are_copied_and_grown_all_the_same(engine: str) -> None:
    """Requests of whole blocks that fill the pool: those that come after them end inside a block."""
    layout = smallest(small("full_attention"), engine, **{**OPTIONS[engine], "tokens": 256, "requests": 3})
    assert all(layout.tokens % group.block_size == 0 for group in layout.groups)
    found = passes(layout)
    assert found.blocks_copied >= 1
    assert found.refilled >= 1


@given(
    st.lists(st.tuples(st.integers(1, 70), st.integers(1, 4), st.integers(1, 900) | st.none()), min_size=1,
             max_size=4),
    st.integers(1, 3000),
)  # fmt: skip
def test_an_odd_length_is_charged_the_same(groups: list[tuple[int, int, int | None]], tokens: int) -> None:
    made = tuple(
        Group(str(size), GroupKind.FULL if limit is None else GroupKind.WINDOW, 0, 1, size,
              window=limit, limit=limit, shards=shards)
        for size, shards, limit in groups
    )  # fmt: skip
    layout = Layout("e", "1", Rank(), (), (), (BlockPool("p", 9),), made, 0, tokens, 0, 1, 4096)
    odd = odd_length(layout, tokens)
    assert 1 <= odd <= tokens
    for group in made:
        assert group.blocks(odd) == group.blocks(tokens)
    if len(made) == 1 and made[0].block_size * made[0].shards > 1 and tokens > 1:
        assert odd % (made[0].block_size * made[0].shards) or made[0].limit is not None
