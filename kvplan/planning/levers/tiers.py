"""Caches outside the GPU: host memory, NVMe, and a second engine that only prefills.

    tokens held      = tier bytes / bytes of one token on all ranks
    load time        = prefix bytes of one GPU / bandwidth of its link
    break-even       = prefix bytes of one GPU / time to compute the prefix: a faster link wins
    transfer time    = t0 + prompt bytes / bandwidth;  shown late by max(T − t_prefill·(L−1)/L, T/L) + t0

Every rank stores and loads its own share (vllm-project/vllm v1/kv_offload).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.planning.levers.results import Effect, Lever, exactly
from kvplan.planning.levers.situation import Link, Seconds, Situation

PrefillTime = Callable[[int], "Seconds | None"]
"""Seconds to compute a prompt of so many tokens on one idle replica; None where nobody knows."""


def offload(seen: Situation, link: Link | None, tier_bytes: int, prefill: PrefillTime) -> Lever:
    """A tier of so many bytes over all GPUs of the replica, reached through each GPU's own link."""
    name = f"offload over {link.name}" if link is not None else "offload"
    if link is None:
        return Lever(name, "the GPU's file does not say how fast its host is reached", applies=False)
    tokens = seen.workload.shared_prefix_tokens or seen.typical.input_tokens
    one_gpu = seen.held_bytes(tokens)
    everywhere = int(one_gpu * seen.copies)  # of a latent that all ranks hold a store may keep one copy
    load = _over(link, one_gpu)
    effects = [
        exactly("prefix on all GPUs", everywhere, "bytes"),
        Effect("time to load it", load.value, "seconds", load.low, load.high),
    ]
    if tier_bytes:
        held = tier_bytes * tokens // everywhere if everywhere else 0
        effects.append(exactly("tokens held", held, "tokens"))
    computed = prefill(tokens)
    if computed is None:
        summary = f"a prefix of {tokens:,} tokens loads in {_shown(load.value)}"
        return Lever(name, summary, tuple(effects), (link.source, _ALONE), setting=_FLAG)
    need = Effect(
        "break-even bandwidth",
        one_gpu / computed.value,
        "bytes_per_second",
        one_gpu / computed.high,
        one_gpu / computed.low,
    )
    effects += [
        Effect("time to compute it", computed.value, "seconds", computed.low, computed.high),
        need,
        Effect(
            "added to the first token", load.value - computed.value, "seconds",
            load.low - computed.high, load.high - computed.low,
        ),
    ]  # fmt: skip
    wins = load.value < computed.value
    sure = load.high < computed.low if wins else load.low > computed.high
    verb = "loading" if wins else "computing"
    summary = (
        f"a prefix of {tokens:,} tokens loads in {_shown(load.value)} and computes in"
        f" {_shown(computed.value)}: {verb} it is faster" + ("" if sure else ", within the estimate's error")
    )
    return Lever(name, summary, tuple(effects), (link.source, _ALONE), wins, _FLAG)


_ALONE = "the link is free: loads of several requests at once share it"
_FLAG = "kv_offloading_size"


def disaggregated(seen: Situation, links: Sequence[Link], prefill: PrefillTime) -> Lever:
    """Prefill on other engines: what a prompt's cache takes to travel, and what each side holds."""
    tokens = seen.typical.input_tokens
    prompt = seen.held_bytes(tokens)
    layers = max(1, seen.model.num_layers)
    computed = prefill(tokens)
    effects = [
        exactly("prompt on one GPU", prompt, "bytes"),
        exactly("decode pool of the load", seen.held_bytes(seen.typical.tokens) * seen.requests, "bytes"),
    ]
    for link in links:
        sent = _over(link, prompt)
        effects.append(Effect(f"transfer over {link.name}", sent.value, "seconds", sent.low, sent.high))
        if computed is not None:
            # Layer-wise overlap: all but the last layer travel during prefill.
            late = [
                max(time - compute * (layers - 1) / layers, time / layers) + link.seconds
                for time, compute in (
                    (sent.value, computed.value), (sent.low, computed.high), (sent.high, computed.low),
                )
            ]  # fmt: skip
            effects.append(Effect(f"shown of it over {link.name}", late[0], "seconds", late[1], late[2]))
    rate = seen.workload.requests_per_second
    if rate is not None:
        effects.append(exactly("bandwidth of the load", float(rate * prompt), "bytes_per_second"))
        if computed is not None:
            busy = [float(rate) * time for time in (computed.value, computed.low, computed.high)]
            effects.append(Effect("prefill engines busy", busy[0], "requests", busy[1], busy[2]))
    if not links:
        why = "the GPU's file names no link to another engine"
        return Lever("disaggregated prefill", why, tuple(effects), applies=False)
    best = min(links, key=lambda link: _over(link, prompt).value)
    time = _shown(_over(best, prompt).value)
    summary = f"the cache of a {tokens:,}-token prompt travels over {best.name} in {time}"
    sources = tuple(dict.fromkeys(link.source for link in links))
    return Lever("disaggregated prefill", summary, tuple(effects), (*sources, _BOTH))


_BOTH = "both sides have the same parallelism: with other sizes heads are split again"


def _over(link: Link, amount: int) -> Seconds:
    return Seconds(
        link.seconds + amount / link.bytes_per_second,
        link.seconds + amount / link.high,
        link.seconds + amount / link.low,
    )


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
