"""Parts of a model, and groups of ranks that share them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.architectures.weights import sources_of
from kvplan.dtypes import BFLOAT16
from kvplan.errors import KvplanError
from kvplan.files.cards.find import load_card
from kvplan.weights.by_name import Shape, bytes_by_name
from kvplan.weights.inventory import Dim, Inventory, Role, Split
from kvplan.weights.parts import Part, part_of
from kvplan.weights.ranks import Parallel, bytes_by_stage, on_rank
from kvplan.weights.stored import Checkpoint, Stored


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("self_attn.q_b_proj", Part.ATTENTION),
        ("linear_attn.in_proj_qkvz", Part.ATTENTION),
        ("mamba.conv1d", Part.ATTENTION),
        ("input_layernorm", Part.ATTENTION),
        ("mlp.gate_proj", Part.DENSE),
        ("mlp.gate", Part.DENSE),
        ("model.layers.3.mlp.down_proj", Part.DENSE),
        ("block_sparse_moe.gate", Part.DENSE),
        ("feed_forward.w1", Part.DENSE),
        ("mixer.up_proj", Part.DENSE),
        ("mlp_block.up_proj", Part.DENSE),
        ("fc1", Part.DENSE),
        ("mixer.q_proj", Part.ATTENTION),
        ("mlp.shared_experts.up_proj", Part.SHARED),
        ("mlp.shared_expert.up_proj", Part.SHARED),
        ("share_expert.gate_proj", Part.SHARED),
        ("visual.blocks.0.mlp.linear_fc1", Part.TOWER),
        ("model.vision_tower.layers.0.self_attn.q_proj", Part.TOWER),
    ],
)
def test_the_part_of_a_name(name: str, part: Part) -> None:
    assert part_of(name) is part


def test_the_tables_of_the_vocabulary() -> None:
    assert part_of("model.embed_tokens", Role.EMBEDDING) is Part.EMBEDDING
    assert part_of("lm_head", Role.HEAD) is Part.HEAD


def test_a_part_is_divided_by_its_own_group() -> None:
    parallel = Parallel(8, groups=((Part.ATTENTION, 2),))
    dim = Dim("heads", 64, Split.EVEN)
    assert on_rank(dim, parallel, Part.ATTENTION) == 32
    assert on_rank(dim, parallel, Part.DENSE) == 8
    assert on_rank(Dim("kv", 4, Split.HEADS_KEPT), parallel, Part.ATTENTION) == 2


@pytest.mark.parametrize(
    ("ep", "redundant", "count", "width"),
    [(1, 0, 256, 256), (2, 0, 128, 512), (8, 0, 32, 2048), (8, 32, 36, 2048)],
)
def test_experts_over_some_ranks_and_their_width_over_the_rest(
    ep: int, redundant: int, count: int, width: int
) -> None:
    parallel = Parallel(8, expert_parallel_size=ep, redundant_experts=redundant)
    assert on_rank(Dim("experts", 256, Split.EXPERTS), parallel) == count
    assert on_rank(Dim("width", 2048, Split.EXPERT_WIDTH), parallel) == width


def inventory_of_card(name: str) -> Inventory:
    found = sources_of(load_card(name)).inventory
    assert found is not None
    return found


@given(
    name=st.sampled_from(
        ["deepseek-v3", "qwen3-235b-a22b", "qwen3-next-80b-a3b", "glm-4.5-air", "gpt-oss-120b"]
    ),
    part=st.sampled_from(list(Part)),
    tp=st.sampled_from([2, 4, 8]),
    ways=st.sampled_from([1, 2, 4, 8]),
)
def test_fewer_ranks_for_a_part_never_need_less(name: str, part: Part, tp: int, ways: int) -> None:
    inventory = inventory_of_card(name)
    plain = bytes_by_stage(inventory, Parallel(tp))
    assert bytes_by_stage(inventory, Parallel(tp, groups=tuple((each, tp) for each in Part))) == plain
    grouped = bytes_by_stage(inventory, Parallel(tp, groups=((part, min(ways, tp)),)))
    assert grouped >= plain


def test_every_part_whole_is_the_model_on_one_gpu() -> None:
    inventory = inventory_of_card("qwen3-32b")
    assert bytes_by_stage(inventory, Parallel(8, groups=tuple((part, 1) for part in Part))) == bytes_by_stage(
        inventory
    )


NAMED = Checkpoint(
    (
        Stored("model.embed_tokens.weight", "BF16", (640, 64)),
        Stored("model.layers.0.self_attn.q_proj.weight", "BF16", (64, 64)),
        Stored("model.layers.0.mlp.up_proj.weight", "BF16", (256, 64)),
        Stored("lm_head.weight", "BF16", (640, 64)),
    ),
    "here",
)


def test_by_name_a_part_has_its_group_too() -> None:
    shape = Shape(num_layers=1, num_kv_heads=4, tied=False)
    parallel = Parallel(4, groups=((Part.ATTENTION, 1), (Part.EMBEDDING, 2)))
    (rank,), _ = bytes_by_name(NAMED, shape, parallel, BFLOAT16)
    assert rank == 2 * 64 * (640 // 2 + 64 + 256 // 4 + 640 // 4)
    with pytest.raises(KvplanError) as caught:
        bytes_by_name(NAMED, shape, Parallel(4, redundant_experts=4), BFLOAT16)
    assert caught.value.code == "cannot-shard"
