"""The engine's own kernels over kvplan's pages: its slot mapping to write, its block tables to read.

Where vLLM is importable, its `triton_reshape_and_cache_flash` writes keys and values into cleared pages; what
it wrote must be the bytes that the layout has there, and nothing else in the pool may be written. Its
`unified_attention` (for latents `decode_attention_fwd`, the kernel of TRITON_MLA) then reads them through the
block table of the request (vllm-project/vllm 0.32 vllm/v1/attention/ops). Each query is a request of its own
that sees the request's tokens; a window is the kernel's own. Elsewhere a Triton kernel of kvplan's own is the
second reader of the pages (`triton_reader`). Both are compared with float64, within `attention`'s tolerance.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from kvplan.engines.tensors.base import Component, GroupKind, View
from kvplan.validate.attention import AttentionError, Probe, admitted
from kvplan.validate.blocks import BlockTables, Request
from kvplan.validate.kinds import LARGEST, Heads, probes, scale_of, width_of
from kvplan.validate.memory import Cache
from kvplan.validate.triton_reader import NotRun, attend_with_own, pages, table_of

VLLM, VLLM_MLA, OWN = "vllm.unified_attention", "vllm.triton_mla", "kvplan.triton"
SPLITS = 4
"""Pieces into which TRITON_MLA divides a request's tokens."""


class WrittenElsewhere(Exception):  # noqa: N818 - what was found, not an error of the program
    """The engine's kernel did not put the bytes where the layout has them."""


def attend_with_engine(cache: Cache, tables: BlockTables) -> tuple[AttentionError, ...]:
    """Every kind of layer; a kernel that cannot run here says why in its note. Raises nothing."""
    return tuple(_tried(cache, tables, heads) for heads in probes(cache.layout))


def is_the_engines(one: AttentionError) -> bool:
    """Whether the engine's kernel read, and not kvplan's."""
    return one.kernel.startswith("vllm.")


def _tried(cache: Cache, tables: BlockTables, heads: Heads) -> AttentionError:
    kernel = _kernel_of(cache, heads)
    note = fault = ""
    try:
        return _attended(cache, tables, heads, kernel)
    except NotRun as reason:
        note = f"not run: {reason}"
    except WrittenElsewhere as found:
        fault = str(found)
    except Exception as error:
        note = f"not run: {type(error).__name__}"
    kind, dtype = heads.kind(cache.layout), heads.key[1].dtype
    return AttentionError(kind, dtype, kernel, heads.view.layer, 0, 0, 0.0, 0.0, note, fault=fault)


def _kernel_of(cache: Cache, heads: Heads) -> str:
    """The engine's where it is here and reads such a layer, else kvplan's own."""
    if cache.layout.engine != "vllm" or find_spec("vllm") is None:
        return OWN
    if heads.value is None:
        return VLLM_MLA if heads.rope is not None and heads.rope[0] == heads.key[0] else OWN
    return VLLM if width_of(heads.key[1]) == width_of(heads.value[1]) else OWN


def _attended(cache: Cache, tables: BlockTables, heads: Heads, kernel: str) -> AttentionError:
    """Raises NotRun, WrittenElsewhere, and what the device raises."""
    if heads.key[1].dtype == "float32":
        raise NotRun("the kernels multiply float32 in less")
    request = admitted(cache.layout, tables, heads)
    if request is None:
        raise NotRun("no room for a request")
    try:
        probe = Probe(cache, tables, request, heads)
        if not bool(probe.visible.any()):
            raise NotRun("no token is visible")
        if kernel == VLLM:
            _write(probe)
        queries = probe.queries()
        output = _READERS[kernel](probe, request, queries)
        found = probe.error(kernel, output, probe.reference(queries), queries)
        if cache.device.startswith("cuda"):
            probe.torch.cuda.synchronize(cache.device)
        return found
    finally:
        tables.release(request)


# ------------------------------------------------------------------------------------------------ writing


def _write(probe: Probe) -> None:
    """The engine's kernel writes what the probe wrote, into a cleared pool. Raises WrittenElsewhere."""
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    torch, heads = probe.torch, probe.heads
    places = _places(heads)
    wanted = [_stored(probe, place).clone() for place in places]
    for raw in probe.cache.raw:
        raw.zero_()
    slots = probe.slots.single_blocks * probe.states + probe.slots.single_places
    name = heads.key[1].dtype
    scales = [
        torch.tensor(scale_of(part), dtype=torch.float32, device=probe.cache.device) for _view, part in places
    ]
    triton_reshape_and_cache_flash(
        probe.keys.to(probe.dtype),
        probe.values.to(probe.dtype),
        *(pages(probe.cache, place) for place in places),
        slots,
        "fp8" if name in LARGEST else "auto",
        *scales,
    )
    for place, mine in zip(places, wanted, strict=True):
        theirs = _stored(probe, place)
        if not bool((theirs == mine).all()):
            wrong = int((theirs != mine).any(dim=-1).any(dim=-1).sum())
            raise WrittenElsewhere(f"{wrong:,} of {mine.shape[0]:,} tokens are not where they belong")
    _check_nothing_else(probe, places)


def _check_nothing_else(probe: Probe, places: list[tuple[View, Component]]) -> None:
    """The pool without the request's own bytes is as clear as it was; they are put back."""
    kept = [_stored(probe, place).clone() for place in places]
    for place, mine in zip(places, kept, strict=True):
        _put(probe, place, probe.torch.zeros_like(mine))
    stray = any(bool(raw.reshape(-1).view(probe.torch.uint8).any()) for raw in probe.cache.raw)
    for place, mine in zip(places, kept, strict=True):
        _put(probe, place, mine)
    if stray:
        raise WrittenElsewhere("bytes outside the request's slots were written")


def _places(heads: Heads) -> list[tuple[View, Component]]:
    assert heads.value is not None
    return [heads.key, heads.value]


def _stored(probe: Probe, place: tuple[View, Component]) -> Any:
    """[tokens, heads, bytes] of the request's slots, through the layout's view."""
    view, part = place
    content = probe.cache.bytes_of(view)[..., part.offset : part.offset + part.bytes]
    return content[probe.slots.single_blocks, :, probe.slots.single_places]


def _put(probe: Probe, place: tuple[View, Component], payload: Any) -> None:
    view, part = place
    content = probe.cache.bytes_of(view)[..., part.offset : part.offset + part.bytes]
    content[probe.slots.single_blocks, :, probe.slots.single_places] = payload


# ------------------------------------------------------------------------------------------------ reading


def _window(probe: Probe) -> tuple[int, int]:
    """(left, right) as the kernel has it: the last token sees itself and ``left`` before it; -1: all."""
    group = probe.cache.layout.groups[probe.heads.view.group]
    if group.kind is GroupKind.FULL:
        return -1, -1
    return probe.tokens - 1 - probe.first, 0


def _unified(probe: Probe, request: Request, queries: Any) -> Any:
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    torch, heads, device = probe.torch, probe.heads, probe.cache.device
    assert heads.value is not None
    many = int(queries.shape[1])
    asked = queries.transpose(0, 1).contiguous()
    out = torch.empty_like(asked)
    fp8 = heads.key[1].dtype in LARGEST
    scales = [
        torch.full((many, heads.view.heads), scale_of(part), dtype=torch.float32, device=device)
        if fp8
        else None
        for _view, part in (heads.key, heads.value)
    ]
    unified_attention(
        q=asked,
        k=pages(probe.cache, heads.key),
        v=pages(probe.cache, heads.value),
        out=out,
        cu_seqlens_q=torch.arange(many + 1, dtype=torch.int32, device=device),
        max_seqlen_q=1,
        seqused_k=torch.full((many,), probe.tokens, dtype=torch.int32, device=device),
        max_seqlen_k=probe.tokens,
        softmax_scale=probe.scale,
        causal=True,
        window_size=_window(probe),
        block_table=table_of(probe, request).expand(many, -1).contiguous(),
        softcap=0.0,
        q_descale=None,
        k_descale=scales[0],
        v_descale=scales[1],
    )
    return out.transpose(0, 1)


def _latent(probe: Probe, request: Request, queries: Any) -> Any:
    """TRITON_MLA's decode: the latent with its rope key is the key, the latent alone the value."""
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    torch, heads, device = probe.torch, probe.heads, probe.cache.device
    assert heads.rope is not None
    if probe.first:
        raise NotRun("the kernel has no window")
    view, latent = heads.key
    rank, many = width_of(latent), int(queries.shape[1])
    whole = Component("latent and rope", latent.offset, latent.bytes + heads.rope[1].bytes, latent.dtype)
    if heads.rope[1].offset != latent.offset + latent.bytes or heads.rope[1].dtype != latent.dtype:
        raise NotRun("the rope key does not follow its latent")
    keys = pages(probe.cache, (view, whole))
    asked = queries.transpose(0, 1).contiguous()
    out = torch.empty((many, asked.shape[1], rank), dtype=asked.dtype, device=device)
    logits = torch.empty((many, asked.shape[1], SPLITS, rank + 1), dtype=torch.float32, device=device)
    scale = torch.tensor(scale_of(latent), dtype=torch.float32, device=device)
    decode_attention_fwd(
        asked,
        keys,
        keys[..., :rank],
        out,
        torch.empty((many, asked.shape[1]), dtype=torch.float32, device=device),
        table_of(probe, request).expand(many, -1).contiguous(),
        torch.full((many,), probe.tokens, dtype=torch.int32, device=device),
        logits,
        SPLITS,
        probe.scale,
        probe.states,
        k_scale=scale,
        v_scale=scale,
        is_mla=True,
    )
    return out.transpose(0, 1)


_READERS = {VLLM: _unified, VLLM_MLA: _latent, OWN: attend_with_own}
