"""The kernel of `triton_reader`; imported where Triton is.

Triton reads annotations as names of the kernel: any that is not of its language ends the compilation.
"""

from __future__ import annotations

from triton import language as tl


def attend_paged(
    queries: tl.tensor, keys: tl.tensor, ropes: tl.tensor, values: tl.tensor,
    table: tl.tensor, out: tl.tensor,
    scale: tl.tensor, rope_scale: tl.tensor, value_scale: tl.tensor,
    first: tl.tensor, tokens: tl.tensor, states: tl.tensor, group: tl.tensor, many: tl.tensor,
    key_block: tl.int64, key_state: tl.int64, key_head: tl.int64,
    rope_block: tl.int64, rope_state: tl.int64, rope_head: tl.int64,
    value_block: tl.int64, value_state: tl.int64, value_head: tl.int64,
    width: tl.tensor, rope_width: tl.tensor, value_width: tl.tensor,
    TOKENS: tl.constexpr, K: tl.constexpr, R: tl.constexpr, V: tl.constexpr,  # noqa: N803 - Triton's custom
) -> None:  # fmt: skip
    """One query of one head over the tokens ``first`` to ``tokens`` (exclusive), softmax as it goes.

    queries: [heads, many, width + rope_width]; out: [heads, many, value_width] of float32.
    """
    head, query = tl.program_id(0), tl.program_id(1)
    kept = head // group
    across, beside, along = tl.arange(0, K), tl.arange(0, R), tl.arange(0, V)
    row = queries + (head * many + query) * (width + rope_width)
    asked = tl.load(row + across, mask=across < width, other=0.0).to(tl.float32)
    asked_rope = tl.load(row + width + beside, mask=beside < rope_width, other=0.0).to(tl.float32)
    highest = -1.0e30
    total = 0.0
    found = tl.zeros([V], dtype=tl.float32)
    for start in range(first, tokens, TOKENS):
        position = start + tl.arange(0, TOKENS)
        there = position < tokens
        in_key = there[:, None] & (across < width)[None, :]
        in_rope = there[:, None] & (beside < rope_width)[None, :]
        in_value = there[:, None] & (along < value_width)[None, :]
        block = tl.load(table + position // states, mask=there, other=0).to(tl.int64)
        state = (position % states).to(tl.int64)
        place = block * key_block + state * key_state + kept * key_head
        key = tl.load(keys + place[:, None] + across[None, :], mask=in_key, other=0.0).to(tl.float32)
        score = tl.sum(key * asked[None, :], 1)
        place = block * rope_block + state * rope_state + kept * rope_head
        rope = tl.load(ropes + place[:, None] + beside[None, :], mask=in_rope, other=0.0).to(tl.float32)
        score = (score + rope_scale * tl.sum(rope * asked_rope[None, :], 1)) * scale
        score = tl.where(there, score, -1.0e30)
        new = tl.maximum(highest, tl.max(score, 0))
        weight = tl.where(there, tl.exp(score - new), 0.0)
        shrink = tl.exp(highest - new)
        place = block * value_block + state * value_state + kept * value_head
        value = tl.load(values + place[:, None] + along[None, :], mask=in_value, other=0.0).to(tl.float32)
        found = found * shrink + tl.sum(value * weight[:, None], 0)
        total = total * shrink + tl.sum(weight, 0)
        highest = new
    result = out + (head * many + query) * value_width + along
    tl.store(result, found / total * value_scale, mask=along < value_width)
