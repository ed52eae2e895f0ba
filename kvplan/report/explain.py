"""The screen of ``kvplan explain``: the terms that the answer was multiplied from, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.api.explaining import Explanation
from kvplan.engines.traits import traits_of
from kvplan.model import Model
from kvplan.report.explain_layers import layer_bytes, layer_terms, whole_layer
from kvplan.report.layout import (
    BLANK,
    Piece,
    Screen,
    Section,
    Span,
    columns,
    joined,
    line,
    shorten,
    span,
    table,
    table_width,
    wrapped,
)
from kvplan.report.notes import (
    help_lines,
    more_line,
    source_lines,
    styled,
    warning_lines,
    warning_section,
)
from kvplan.report.words import count, engine_title, gpus_of_request, of_bytes, size_words
from kvplan.results import Pool, SizeResult

MOST_LINES = 20
_MOST_WARNINGS, _MOST_KINDS, _LONGEST_KIND = 3, 9, 28


def answer_screen(found: Explanation) -> Screen:
    """The terms, the sum at this length and what the engine makes of it, in at most 20 lines: each kind of
    layer in full where there is room, else its terms, else a line."""
    assert found.basis is not None
    model, result, pool = found.basis
    data, last = _data(result), [*_tail(result, pool)]
    head = (Section(_refused(result)), Section(_head(model, result, data)))
    form = whole_layer if len(result.layers) == 1 else layer_terms
    kinds = [form(model, entry, result) for entry in result.layers]
    screen = joined([*head, *map(Section, kinds), *last])
    return screen if len(screen) <= MOST_LINES else joined([*head, Section(_rows(result, data)), *last])


def whole_screen(found: Explanation, *, rules_file: str) -> Screen:
    """Each different layer with its terms, keys and source, the sum, and how the engine allocates."""
    assert found.basis is not None
    model, result, pool = found.basis
    data = _data(result)
    sections = [
        _refused(result),
        _head(model, result, data),
        *(whole_layer(model, entry, result) for entry in result.layers),
        _sum(result, data),
        _engine(result, pool, data) if result.sized else [],
        warning_lines(result.warnings),
        source_lines(result, rules_file),
    ]
    return joined(map(Section, sections))


def _data(result: SizeResult) -> int:
    return sum(layer_bytes(entry, result) * entry.count for entry in result.layers)


def _head(model: Model, result: SizeResult, data: int) -> Screen:
    tokens, encoder = result.request.tokens, result.request.encoder_tokens
    lengths = count(tokens, "token") + (f" (and {encoder:,} encoder tokens)" if encoder else "")
    return wrapped(
        f"{model.id} has {count(model.num_layers, 'layer')} of {count(len(result.layers), 'kind')};"
        f" one request of {lengths} stores {of_bytes(data)} ({size_words(data)}) in the cache."
    )


def _tail(result: SizeResult, pool: Pool | None) -> Iterator[Section]:
    """The engine's use of it, warnings, further commands."""
    yield Section(_engine_line(result, pool) if result.sized else [])
    yield warning_section(result.warnings, _MOST_WARNINGS, 9, close=True)
    yield Section(more_line("-v: config keys, sources, blocks, settings; --json"), close=True)


def _engine_line(result: SizeResult, pool: Pool | None) -> Screen:
    """``vLLM 0.33: 2,560 blocks × 4,194,304 B = 10,737,418,240 B a request on one GPU``."""
    own, gpus = result.per_gpu.kv_bytes_per_request, gpus_of_request(result)
    blocks = 0 if pool is None or not pool.bytes_per_block else own // pool.bytes_per_block
    whole = pool is not None and blocks and blocks * pool.bytes_per_block == own
    product = f"{blocks:,} blocks × {pool.bytes_per_block:,} B = " if whole and pool is not None else ""
    text = f"{engine_title(result.engine)}: {product}{own:,} B a request"
    if gpus > 1:
        text += f" on each of {gpus} GPUs, {result.total.kv_bytes_per_request:,} B together"
    held, data = result.total.kv_bytes_per_request, _data(result)
    if held != data:
        text += f", {abs(held - data):,} B {'more' if held > data else 'less'} than the sum"
    return wrapped(f"{text}; {of_bytes(result.per_gpu.bytes_per_token)} a further token", indent=1)


def _rows(result: SizeResult, data: int) -> Screen:
    """A line for each kind of layer."""
    heads = ("layers", "kind", "bytes of one", "of all", "keeps")
    rows: list[list[Piece]] = [[Span(head, "dim") for head in heads]]
    for entry in result.layers[:_MOST_KINDS]:
        one = layer_bytes(entry, result)
        rows.append(
            [
                f"{entry.count:,}",
                f"× {shorten(entry.layer.family, _LONGEST_KIND)}",
                f"{one:,}",
                f"{one * entry.count:,}",
                Span(", ".join(term.name for term in entry.terms) or "nothing", "dim"),
            ]
        )
    left = len(result.layers) - _MOST_KINDS
    if left > 0:
        rows.append([f"{left:,}", "kinds more"])
    rows.append(["", Span("sum", "bold"), "", Span(f"{data:,}", "bold")])
    left = table_width(table([row[:4] for row in rows], "rlrr", gap="  ", spare=("bytes of one",)))
    room = columns() - left - 2
    for row in rows[1:]:
        if len(row) == len(heads):
            row[-1] = Span(shorten(span(row[-1]).text, room), "dim")
    return table(rows, "rlrrl", gap="  ", spare=("keeps", "bytes of one"))


def _sum(result: SizeResult, data: int) -> Screen:
    rows: list[list[Piece]] = []
    for entry in result.layers:
        one = layer_bytes(entry, result)
        rows.append(
            [f"{entry.count:,}", f"× {entry.layer.family}", f"× {one:,}", f"= {one * entry.count:,} B"]
        )
    rows.append(["", Span("sum", "bold"), "", Span(f"{data:,} B", "bold")])
    return [
        line(Span(f"Sum at {count(result.request.tokens, 'token')}", "bold")),
        *table(rows, "rlrr", gap=" "),
    ]


def _refused(result: SizeResult) -> Screen:
    """The answer where the engine does not serve it; what a layer stores is true all the same."""
    if result.refusal is None:
        return []
    text = f"No: {engine_title(result.engine)} would not serve it: {result.refusal.message}"
    head = wrapped(text)
    return [styled(head[0], "No:", "bad"), *head[1:], *help_lines(result.refusal.help)]


def _engine(result: SizeResult, pool: Pool | None, data: int) -> Screen:
    """How the engine's own figure differs from the sum, and in which units it allocates."""
    gpus, gpu = gpus_of_request(result), result.per_gpu
    held = result.total.kv_bytes_per_request
    screen: Screen = [line(Span(f"Under {engine_title(result.engine)}", "bold"))]
    rows: list[list[Piece]] = [["one request, one GPU", f"{gpu.kv_bytes_per_request:,} B"]]
    if gpus > 1:
        rows.append([f"one request, all {gpus} GPUs", f"{held:,} B"])
    if held != data:
        rows.append(["more than the sum" if held > data else "less than the sum", f"{abs(held - data):,} B"])
    rows.append(["each further token, one GPU", of_bytes(gpu.bytes_per_token)])
    if gpu.fixed_bytes_per_request:
        rows.append(["fixed for one request, one GPU", f"{gpu.fixed_bytes_per_request:,} B"])
    screen += table(rows, "lr")
    if pool is not None and pool.groups:
        screen += _blocks(result, pool)
    rule = traits_of(result.engine.name).at_once
    if rule is not None:
        screen += wrapped(f"at once: {rule}", style="dim", indent=1, hang=2)
    return screen


# vllm-project/vllm 0.32 vllm/v1/kv_cache_interface.py, max_memory_usage_bytes of the spec classes.
_WINDOW = "a window takes blocks for window - 1 tokens and for all that are in flight, and one more"
_CHARGES = {
    "sliding_window": _WINDOW,
    "sliding_window_mla": _WINDOW,
    "chunked_local_attention": "a chunk takes blocks for its tokens and for all that are in flight",
    "mamba": "a state takes a whole block, as large as an attention block, for each copy that is kept",
    "cross_attention": "cross attention is reserved blocks for max_num_batched_tokens encoder tokens",
}


def _blocks(result: SizeResult, pool: Pool) -> Screen:
    """The groups that share the pool's blocks, and what a request takes of them."""
    heads = ("group", "layers", "tokens/block", "bytes/page", "blocks each")
    rows: list[list[Piece]] = [[Span(word, "dim") for word in heads]]
    rows += [
        [g.kind, f"{g.layers:,}", f"{g.block_size:,}", f"{g.page_bytes:,}", f"{g.blocks_per_request:,}"]
        for g in pool.groups
    ]
    own = result.per_gpu.kv_bytes_per_request
    blocks = own // pool.bytes_per_block
    product = f"{blocks:,} blocks × {pool.bytes_per_block:,} B = {own:,} B"
    screen = [BLANK, *table(rows, "lrrrr", spare=("bytes/page",))]
    if blocks * pool.bytes_per_block == own:
        whole = f"one request of {count(result.request.tokens, 'token')}: {product}"
        screen += wrapped(whole, indent=1, hang=2)
    if pool.running_blocks is not None and pool.prompt_blocks is not None and pool.running_blocks != blocks:
        held = (
            f"{pool.running_blocks:,} blocks once its prompt is computed, {pool.prompt_blocks:,} to admit it"
        )
        screen += wrapped(held, indent=1, hang=2)
    for kind in dict.fromkeys(group.kind for group in pool.groups):
        if kind in _CHARGES:
            screen += wrapped(_CHARGES[kind], style="dim", indent=1, hang=2)
    return screen
