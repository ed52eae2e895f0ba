"""The lineages: both halves of every type or a reason, cache and tensors that cannot drift, one registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvplan.architectures.config.read import read_config
from kvplan.architectures.inventory import inventory_of
from kvplan.architectures.lineages import lineage_of, lineages
from kvplan.architectures.registry import LINEAGES, Lineage, lineage
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Layer
from kvplan.weights.inventory import Block

HALF_KNOWN: dict[str, list[str]] = yaml.safe_load(
    (Path(__file__).parent / "half_known.yaml").read_text(encoding="utf-8")
)
ATTENTION = (Kind.FULL, Kind.SLIDING, Kind.CHUNKED)
DECODERS = sorted(name for name, known in lineages().items() if known.tensors)
LEAST = 130
"""Types whose layers and tensors are compared (the others need keys that only their own files have)."""
EXCUSED = {"baichuan": "its class reads no head_dim, the layers of custom types do; no file of it has one"}


def halves(name: str) -> tuple[bool, bool]:
    """Whether layers and tensors of a type are known, its own or those of the type that reads it."""
    own = lineages()[name]
    both = [own, lineage_of(own.reads.like)] if own.reads and own.reads.like else [own]
    return any(known.layers for known in both), any(known.tensors or known.whole for known in both)


def test_a_type_has_both_halves_or_a_reason() -> None:
    excused = [name for names in HALF_KNOWN.values() for name in names]
    half = {name for name in lineages() if len({*halves(name)}) == 2}
    assert len(excused) == len(set(excused))
    assert set(excused) == half, "layers without tensors, or the reverse, want a reason; a reason wants that"
    assert all(len(reason) > 20 for reason in HALF_KNOWN)


def config(name: str, kv: int, share: int, width: int) -> dict[str, Any]:
    """A small decoder, its sizes under every usual name; the model's width follows from no other."""
    heads = kv * share
    hidden = heads * 40
    return {
        "model_type": name,
        **dict.fromkeys(("hidden_size", "n_embd", "d_model"), hidden),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), 6),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), heads),
        "num_key_value_heads": kv,
        "head_dim": width,
        "intermediate_size": 256,
        "vocab_size": 512,
        "max_position_embeddings": 2048,
    }


def differences(layers: list[Layer], blocks: tuple[Block, ...]) -> Iterator[str]:
    """Where a layer's K and V and its projections disagree about heads and widths.

    Several layers may stand in one block of tensors; a fused or foreign layout names no such dimension.
    """
    if not blocks or len(layers) % len(blocks):
        yield f"{len(layers)} layers and {len(blocks)} blocks"
        return
    for index, layer in enumerate(layers):
        tensors = blocks[index * len(blocks) // len(layers)].tensors
        dims = [dim for one in tensors for dim in (*one.rows, *one.columns)]
        for part in layer.parts:
            if part.kind not in ATTENTION:
                continue
            for field, name in (("num_kv_heads", "num_key_value_heads"), ("head_dim", "head_dim")):
                stored = {dim.value for dim in dims if dim.name == name}
                if stored and getattr(part, field) not in stored:
                    yield f"layer {index}: {field} {getattr(part, field)}, its projections {sorted(stored)}"


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([16, 48, 96]))
def test_what_a_layer_keeps_is_what_its_projections_make(kv: int, share: int, width: int) -> None:
    """Whatever the config says: KV heads and a head's width are the same for cache and tensors."""
    seen = 0
    wrong: list[str] = []
    for name in (name for name in DECODERS if name not in EXCUSED):
        raw = config(name, kv, share, width)
        try:
            layers, blocks = read_config(raw, id="m", source="m").layers(), inventory_of(raw).layers
        except KvplanError:
            continue
        seen += 1
        wrong += [f"{name}: {difference}" for difference in differences(layers, blocks)]
    assert not wrong
    assert seen >= LEAST


def test_a_type_stands_in_one_file() -> None:
    name = next(iter(lineages()))
    with pytest.raises(ValueError, match="two lineages"):
        lineage(name)
    assert all(isinstance(known, Lineage) for known in LINEAGES.values())


def test_a_name_that_nobody_knows_is_an_empty_lineage() -> None:
    known = lineage_of("no such type")
    assert known == Lineage()
    assert "no such type" not in lineages()
