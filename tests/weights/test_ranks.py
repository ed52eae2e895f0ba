"""How tensors are divided: the rules one by one, and what must hold for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.dtypes import BFLOAT16, FLOAT32
from kvplan.engines.vllm.backends.expert_kernels import MARLIN, TRITON
from kvplan.errors import KvplanError
from kvplan.weights.formats import MXFP4, NVFP4, fp8_block, grouped
from kvplan.weights.inventory import Block, Dim, Inventory, Place, Placed, Role, Split, Tensor
from kvplan.weights.ranks import ALONE, Parallel, bytes_by_stage, on_rank, stage_layers, tensor_bytes


@pytest.mark.parametrize(
    ("split", "value", "tp", "expected"),
    [
        (Split.WHOLE, 7, 4, 7),
        (Split.EVEN, 32, 4, 8),
        (Split.HEADS_KEPT, 8, 4, 2),
        (Split.HEADS_KEPT, 2, 8, 1),
        (Split.VOCABULARY, 32_001, 2, 16_032),
        (Split.EXPERTS, 128, 4, 128),
        (Split.EXPERT_WIDTH, 1536, 4, 384),
    ],
)
def test_one_dimension(split: Split, value: int, tp: int, expected: int) -> None:
    assert on_rank(Dim("n", value, split), Parallel(tp)) == expected


def test_expert_parallelism_divides_experts_instead_of_their_width() -> None:
    parallel = Parallel(4, data_parallel_size=2, enable_expert_parallel=True)
    assert on_rank(Dim("experts", 100, Split.EXPERTS), parallel) == 13  # the fullest of 8 ranks
    assert on_rank(Dim("width", 1536, Split.EXPERT_WIDTH), parallel) == 1536


def test_without_expert_parallelism_data_parallel_ranks_share_the_width() -> None:
    assert on_rank(Dim("width", 1536, Split.EXPERT_WIDTH), Parallel(4, data_parallel_size=2)) == 192


def test_sequence_parallel_experts_keep_shared_experts_whole() -> None:
    dim = Dim("shared", 64, Split.SHARED_EXPERT)
    assert on_rank(dim, Parallel(4, enable_expert_parallel=True)) == 16
    assert on_rank(dim, Parallel(4, data_parallel_size=2)) == 16
    assert on_rank(dim, Parallel(4, data_parallel_size=2, enable_expert_parallel=True)) == 64


@pytest.mark.parametrize("split", [Split.EVEN, Split.HEADS_KEPT, Split.EXPERT_WIDTH])
def test_what_does_not_divide_is_refused(split: Split) -> None:
    with pytest.raises(KvplanError) as caught:
        on_rank(Dim("heads", 6, split), Parallel(4))
    assert caught.value.code == "cannot-shard"
    assert "heads is 6" in caught.value.message


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(32, 1, (32,)), (32, 2, (16, 16)), (61, 4, (15, 15, 16, 15)), (26, 4, (6, 7, 7, 6)), (7, 3, (2, 3, 2))],
)
def test_layers_of_stages(layers: int, stages: int, expected: tuple[int, ...]) -> None:
    assert stage_layers(layers, stages) == expected


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(KvplanError, match="2 layers cannot be divided"):
        stage_layers(2, 3)


@given(st.integers(1, 200), st.integers(1, 16))
def test_every_layer_is_on_one_stage(layers: int, stages: int) -> None:
    if stages <= layers:
        counts = stage_layers(layers, stages)
        assert sum(counts) == layers
        assert max(counts) - min(counts) <= 1


def test_a_tied_embedding_counts_once_on_one_stage_and_on_both_ends_of_a_pipeline() -> None:
    table = Tensor("embed", (Dim("vocab", 640, Split.VOCABULARY),), (Dim("hidden", 10),), (), Role.EMBEDDING)
    layers = tuple(Block(str(index), ()) for index in range(3))
    inventory = Inventory((Placed(Place.TIED, table),), layers)
    assert bytes_by_stage(inventory) == (12_800,)
    assert bytes_by_stage(inventory, Parallel(pipeline_parallel_size=3)) == (12_800, 0, 12_800)


def test_fixed_element_types_stay() -> None:
    router = Tensor("gate", (Dim("experts", 8),), (Dim("hidden", 10),), dtype="float32")
    assert tensor_bytes(router, ALONE, BFLOAT16) == 320
    plain = Tensor("norm", (Dim("hidden", 10),))
    assert tensor_bytes(plain, ALONE, FLOAT32) == 40


def _matrix(form: object, role: Role = Role.LINEAR) -> Tensor:
    return Tensor("w", (Dim("out", 256, Split.EVEN),), (Dim("in", 512),), (), role, form=form)  # type: ignore[arg-type]


def test_quantised_matrices() -> None:
    """256 × 512 numbers: their bits, and the scales of each format."""
    assert tensor_bytes(_matrix(fp8_block(128, 128)), ALONE, BFLOAT16) == 131_072 + 8 * 4
    assert tensor_bytes(_matrix(NVFP4), ALONE, BFLOAT16) == 65_536 + 8_192 + 8
    assert tensor_bytes(_matrix(MXFP4), ALONE, BFLOAT16) == 65_536 + 4_096
    assert tensor_bytes(_matrix(grouped(4, 128, zeros=True)), ALONE, BFLOAT16) == 65_536 + 1024 * 2 + 512
    assert tensor_bytes(_matrix(fp8_block(128, 128)), Parallel(4), BFLOAT16) == 32_768 + 4 * 4


def test_mxfp4_experts_are_padded_on_the_rank() -> None:
    """GPT-OSS: 2880 wide experts of width 2880 on two GPUs are 1536 × 3072."""
    width, hidden = Dim("width", 2880, Split.EXPERT_WIDTH), Dim("hidden", 2880)
    stack = (Dim("experts", 32, Split.EXPERTS),)
    up = Tensor("up", (width,), (hidden,), stack, Role.EXPERT, form=MXFP4)
    bias = Tensor("up.bias", (width,), (), stack, Role.EXPERT, form=MXFP4)
    marlin = Parallel(2, kernel=MARLIN)
    assert tensor_bytes(up, marlin, BFLOAT16) == 32 * (1536 * 1536 + 1536 * 96)
    assert tensor_bytes(bias, marlin, BFLOAT16) == 32 * 1536 * 2
    assert tensor_bytes(up, Parallel(2), BFLOAT16) == 32 * (1440 * 1440 + 1440 * 90)


def test_a_kernel_may_keep_the_scales_twice() -> None:
    """GPT-OSS on one Hopper GPU, Triton: rows of scales in 256s, gate and up together; float32 biases."""
    width, hidden = Dim("width", 2880, Split.EXPERT_WIDTH), Dim("hidden", 2880)
    up = Tensor("up", (width,), (hidden,), (), Role.EXPERT, form=MXFP4)
    down = Tensor("down", (hidden,), (width,), (), Role.EXPERT, form=MXFP4)
    bias = Tensor("up.bias", (width,), (), (), Role.EXPERT, form=MXFP4)
    values, scales = 2880 * 2880 // 2, 2880 * 90
    once, twice = Parallel(kernel=TRITON), Parallel(kernel=replace(TRITON, keeps_scales=True))
    assert tensor_bytes(up, once, BFLOAT16) == values + (5888 // 2) * 90
    assert tensor_bytes(down, once, BFLOAT16) == values + 3072 * 90
    assert tensor_bytes(down, twice, BFLOAT16) == values + 3072 * 90 + scales
    assert tensor_bytes(bias, once, BFLOAT16) == 2880 * 4


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 64))
def test_a_rank_never_holds_less_than_its_share(tp: int, heads: int) -> None:
    dim = Dim("kv heads", heads, Split.HEADS_KEPT)
    try:
        own = on_rank(dim, Parallel(tp))
    except KvplanError:
        return
    assert own * tp >= heads
    assert own <= heads
