"""transformers' own allocators over kvplan's pages, in host memory, and injected faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import kvplan
from kvplan.engines.tensors import Layout, layout_of
from kvplan.engines.transformers import kernels
from kvplan.own_options import OwnOptions
from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.blocks import BlockTables
from kvplan.proof.validate.engine_kernels import attend_with_engine
from kvplan.proof.validate.memory import allocate
from kvplan.settings import Settings
from kvplan.units import MIB

pytestmark = pytest.mark.skipif(not kernels.are_here(), reason="transformers 5.20 or newer is not installed")
OWN = OwnOptions.of({"continuous_batching": True})


def small(layers: int, *, window: int | None = None, full: int = 1) -> dict[str, Any]:
    """A model of ``layers`` layers, of which all but ``full`` have the window."""
    config = {
        "model_type": "qwen3", "num_hidden_layers": layers, "hidden_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "vocab_size": 1000,
        "torch_dtype": "bfloat16", "max_position_embeddings": 4096,
    }  # fmt: skip
    if window is None:
        return config
    types = ["sliding_attention"] * (layers - full) + ["full_attention"] * full
    return {**config, "layer_types": types, "sliding_window": window, "use_sliding_window": True}


def laid(config: dict[str, Any], tokens: int = 700, page: int = 64) -> Layout:
    model = kvplan.load_model(config)
    settings = Settings(tokens=tokens, kv_cache_memory=24 * MIB, block_size=page, own=OWN)
    return layout_of(model, "transformers", "5.23", settings)


def found(layout: Layout) -> list[AttentionError]:
    with allocate(layout, "cpu") as cache:
        return list(attend_with_engine(cache, BlockTables(layout)))


@pytest.mark.parametrize(
    ("config", "kinds"),
    [(small(4), 1), (small(6, window=256), 2), (small(5, window=128, full=0), 1), (small(3, window=256), 2)],
)
@pytest.mark.parametrize("tokens", [64, 100, 257, 700])
def test_the_library_s_indices_find_every_token(config: dict[str, Any], kinds: int, tokens: int) -> None:
    errors = found(laid(config, tokens))
    assert len(errors) == kinds
    assert all(one.ran and one.ok and one.kernel == kernels.NAME for one in errors), errors


def test_a_page_elsewhere_refutes() -> None:
    layout = laid(small(4))
    views = tuple(
        replace(view, offset=view.offset + view.state_stride) if view.name.endswith(".v") else view
        for view in layout.views
    )
    (error,) = found(replace(layout, views=views))
    assert not error.ok
    assert "not where they belong" in error.fault


def test_keys_and_values_exchanged_refute() -> None:
    layout = laid(small(4))
    sides = {view.name: view for view in layout.views}
    views = tuple(
        replace(view, offset=sides[view.name[:-1] + ("v" if view.name.endswith("k") else "k")].offset)
        for view in layout.views
    )
    assert not found(replace(layout, views=views))[0].ok


def test_a_ring_of_another_window_refutes() -> None:
    layout = laid(small(6, window=256))
    groups = tuple(
        replace(group, window=192) if group.window is not None else group for group in layout.groups
    )
    errors = found(replace(layout, groups=groups))
    assert any(not one.ok for one in errors)


def test_caches_of_requests_have_no_such_reader() -> None:
    model = kvplan.load_model(small(4))
    layout = layout_of(model, "transformers", "5.23", Settings(tokens=64, requests=2))
    assert not kernels.takes(layout)


def test_a_window_that_is_no_whole_number_of_pages_is_refused() -> None:
    with pytest.raises(kvplan.KvplanError, match="no whole number of pages"):
        laid(small(6, window=100))
