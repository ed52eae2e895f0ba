"""KV connectors (``--kv-transfer-config``): what they do to the hybrid KV cache manager, and beside the pool.

vllm-project/vllm 0.9 to 0.33: vllm/config/vllm.py (disable_hybrid_kv_cache_manager,
_post_init_kv_transfer_config), vllm/config/kv_transfer.py, and below vllm/distributed/kv_transfer/
kv_connector/factory.py (the registered names, create_connector) and which classes derive from SupportsHMA:
``data/connectors.tsv``. A connector that asks for another layout (required_kvcache_layout) changes the order
of a page's numbers, not their count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.engines.release_rules import reached, within
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.versions import Rules
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.named import NamedTuple
from kvplan.results import Refusal
from kvplan.settings import Layout
from kvplan.units import gib

ROLES = ("kv_producer", "kv_consumer", "kv_both")
MULTI, P2P, LMCACHE, HISPARSE = (
    "MultiConnector",
    "P2pNcclConnector",
    "LMCacheConnectorV1",
    "HiSparseConnector",
)
OFFLOADING = "OffloadingConnector"
_CODE = "kv-connector"
_RECEIVED = 10**9
"""KVTransferConfig.kv_buffer_size, until 0.23."""
_CHUNK = 256
"""LMCache's chunk_size, in tokens (LMCache/LMCache lmcache/v1/config.py)."""
_WINDOWS = frozenset({Kind.SLIDING, Kind.CHUNKED})


class Row(NamedTuple):
    """A registered connector. since, until: its releases; hybrid: the first whose class supports the hybrid
    manager (``never``: none does)."""

    since: str
    until: str
    hybrid: str


class Part(NamedTuple):
    """One connector of a configuration. path: the module that it is loaded from, where vLLM has it not."""

    name: str
    path: str
    role: str
    config: Mapping[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        found = self.config.get("kv_connector_extra_config")
        return found if isinstance(found, dict) else {}


@cache
def _rows() -> Mapping[str, tuple[Row, ...]]:
    text = (Path(__file__).parents[1] / "data" / "connectors.tsv").read_text(encoding="utf-8")
    found: dict[str, tuple[Row, ...]] = {}
    for line in text.splitlines()[1:]:
        name, since, until, hybrid = line.split("\t")
        found[name] = (*found.get(name, ()), Row(since, until, hybrid or "never"))
    return found


def row_of(name: str, release: str) -> Row | None:
    """The row in force of a connector's name."""
    rows = _rows().get(name, ())
    return next((row for row in rows if within(release, row.since, row.until)), None)


@cache
def _read(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text)
    return found


def _part(config: Mapping[str, Any]) -> Part:
    said = (config.get(key) for key in ("kv_connector", "kv_connector_module_path", "kv_role"))
    name, path, role = (one if isinstance(one, str) else "" for one in said)
    return Part(name, path, role, config)


def transfer_of(settings: Layout) -> Part | None:
    """The connector of --kv-transfer-config; None where it is not given."""
    text = VllmOptions.of(settings).kv_transfer_config if settings.own else None
    return None if text is None else _part(_read(text))


def offload_of(settings: Layout, rules: Rules) -> Part | None:
    """The connector that --kv-offloading-size comes to (_post_init_kv_transfer_config)."""
    own = VllmOptions.of(settings) if settings.own else None
    if own is None or not own.kv_offloading_size or not (own.kv_offloading_backend or rules.offload_native):
        return None
    name = rules.lmcache_offload if own.kv_offloading_backend == "lmcache" else OFFLOADING
    return Part(name, "", "kv_both", {})


def is_connected(settings: Layout, rules: Rules) -> bool:
    """Whether a connector moves the cache (is_kv_transfer_instance)."""
    return transfer_of(settings) is not None or offload_of(settings, rules) is not None


def parts_of(part: Part | None) -> tuple[Part, ...]:
    """The connector, or those that a MultiConnector holds."""
    if part is None or part.name != MULTI or part.path:
        return () if part is None else (part,)
    listed = part.extra.get("connectors")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(_part(one) for one in entries)


def _is_own(part: Part) -> bool:
    """Whether the class is vLLM's; others come from a module, or a plugin registers them."""
    return not part.path and part.name in _rows()


def supports_hybrid(part: Part, release: str) -> bool | None:
    """Whether the connector works with the hybrid manager (supports_hma_config); None: its class is not
    vLLM's, and is not known here."""
    parts = parts_of(part)
    if part.name == MULTI and not part.path:
        found = [supports_hybrid(one, release) for one in parts]
        return False if False in found or not found else None if None in found else True
    if not _is_own(part):
        return None
    row = row_of(part.name, release)
    return row is not None and row.hybrid != "never" and reached(release, row.hybrid)


class Manager(NamedTuple):
    """The hybrid manager as a configuration leaves it. doubt: the connector that decides it is not known."""

    off: bool
    doubt: Part | None = None


def manager_of(settings: Layout, rules: Rules, kinds: set[Kind]) -> Manager:
    """Whether connectors or events switch the hybrid manager off. kinds: of the model's layers.

    Of a class that is not vLLM's nobody knows: with windows it is counted as off, where long requests take
    most; states beside attention run with the manager alone, so a server that starts has it on."""
    asked = settings.disable_hybrid_kv_cache_manager
    if asked:
        return Manager(off=True)
    if rules.events_end_hybrid and settings.own and VllmOptions.of(settings).kv_events_config is not None:
        return Manager(off=True)
    part = transfer_of(settings)
    if part is None and rules.offload_decides:
        part = offload_of(settings, rules)
    if part is None or (asked is False and rules.connector_ends_hybrid != "always"):
        return Manager(off=False)
    if rules.connector_ends_hybrid != "unsupported":
        return Manager(off=True)
    works = supports_hybrid(part, rules.release)
    if works is not None:
        return Manager(off=not works)
    unknown = next(one for one in parts_of(part) if supports_hybrid(one, rules.release) is None)
    return Manager(bool(kinds & _WINDOWS) and Kind.STATE not in kinds, unknown)


def connector_refusal(settings: Layout, off: bool, version: str, rules: Rules) -> Refusal | None:
    """Why vLLM does not start with a connector. off: the hybrid manager is. Raises KvplanError(unknown-rule):
    HiSparse, which keeps a part of the cache on the GPU by rules of its own."""
    transfer, offload = transfer_of(settings), offload_of(settings, rules)
    if _events_contradict(settings, rules):
        return Refusal(
            _CODE,
            f"vLLM {version} has no hybrid KV cache manager beside KV events, and one was asked for",
            help=("leave out --no-disable-hybrid-kv-cache-manager",),
        )
    for part in () if transfer is None else (transfer, *parts_of(transfer)):
        refusal = _unnamed(part, version)
        if refusal is not None:
            return refusal
        if part.name == HISPARSE and not part.path:
            raise KvplanError(
                "unknown-rule",
                f"what {HISPARSE} keeps on the GPU is not known here",
                help="leave out --kv-transfer-config",
            )
    if off or not rules.hybrid_checked:
        return None
    last = offload or transfer
    if last is None or supports_hybrid(last, rules.release) is not False:
        return None
    return Refusal(
        _CODE,
        f"vLLM {version} does not run {last.name} with the hybrid KV cache manager",
        help=("--disable-hybrid-kv-cache-manager",),
    )


def _events_contradict(settings: Layout, rules: Rules) -> bool:
    """ "Hybrid KV cache manager was explicitly enabled but is not supported" (0.13 to 0.19)."""
    asked = settings.disable_hybrid_kv_cache_manager is False and rules.connector_ends_hybrid != "always"
    return asked and rules.events_end_hybrid and VllmOptions.of(settings).kv_events_config is not None


def _unnamed(part: Part, version: str) -> Refusal | None:
    """KVTransferConfig.__post_init__ and get_connector_class."""
    if not part.name:
        return Refusal(_CODE, "kv_transfer_config has no kv_connector", help=("name one: NixlConnector",))
    if part.role not in ROLES:
        said = f"kv_role is {part.role}" if part.role else f"kv_connector {part.name} has no kv_role"
        return Refusal(_CODE, said, help=("kv_role is one of " + ", ".join(ROLES),))
    from difflib import get_close_matches  # where a name is not known: every start would pay for it

    rows = _rows().get(part.name, ())
    near = [] if rows or part.path else get_close_matches(part.name, _rows(), 1, 0.9)
    if not near and (not _is_own(part) or row_of(part.name, version) is not None):
        return None
    since = next((row.since for row in rows if not reached(version, row.since)), None)
    until = next((row.until for row in reversed(rows) if row.until and reached(version, row.until)), None)
    known = f": {since} is the first with it" if since else f": it went with {until}" if until else ""
    way = f"did you mean {near[0]}?" if near else "kv_connector_module_path names a module that has it"
    return Refusal(_CODE, f"vLLM {version} has no KV connector {part.name}{known}", help=(way,))


def said_of_manager(settings: Layout, rules: Rules, kinds: set[Kind], ends: Iterable[int]) -> Iterator[str]:
    """A connector's effect on the cache of a model that has windows, in a sentence. ends: bytes of the
    longest request as counted, and with the hybrid manager in the other state; the same where nothing
    changes."""
    counted, other = ends
    manager, part = manager_of(settings, rules, kinds), transfer_of(settings) or offload_of(settings, rules)
    if counted == other or part is None:
        return
    if manager.doubt is not None:
        word = "--no-disable-hybrid-kv-cache-manager" if manager.off else "--disable-hybrid-kv-cache-manager"
        yield (
            f"whether {manager.doubt.name} runs with the hybrid KV cache manager is not known: the longest"
            f" request takes {gib(counted)}, as counted, or {gib(other)}; {word} says which"
        )
    elif manager.off and not settings.disable_hybrid_kv_cache_manager:
        yield (
            f"{part.name} turns the hybrid KV cache manager of vLLM {rules.release} off: the longest request"
            f" takes {gib(counted)}, not {gib(other)}"
        )


def layer_by_layer(settings: Layout, rules: Rules) -> bool:
    """Whether a connector asks for piecewise graphs (requires_piecewise_for_cudagraph): LMCache's, moving
    the cache layer by layer."""
    return rules.layerwise_piecewise and any(
        part.name == LMCACHE and bool(part.extra.get("use_layerwise"))
        for part in parts_of(transfer_of(settings))
    )


def host_bytes(settings: Layout) -> int:
    """cpu_bytes_to_use of an OffloadingConnector: of the host, all ranks of an engine together (since 0.14:
    v1/kv_offload/cpu/, and what _post_init_kv_transfer_config writes)."""
    return sum(
        _number(part.extra.get("cpu_bytes_to_use"), 0)
        for part in parts_of(transfer_of(settings))
        if part.name == OFFLOADING
    )


def beside_the_pool(settings: Layout, token_bytes: int) -> Iterator[str]:
    """Memory that connectors take of a GPU beside the pool, in sentences. token_bytes: of the cache of one
    GPU, a token.

    P2pNcclConnector keeps received tensors until their bytes pass kv_buffer_size (p2p/p2p_nccl_engine.py);
    LMCache copies through a buffer of one chunk, of all layers (lmcache_integration/vllm_v1_adapter.py,
    need_gpu_interim_buffer; LMCache/LMCache lmcache/v1/gpu_connector). NIXL and Mooncake register the pool
    itself, and allocate on the GPU nothing of their own; with kv_buffer_device cpu NIXL copies it whole.
    """
    for part in parts_of(transfer_of(settings)):
        if not _is_own(part):
            yield (
                f"the KV connector {part.name} is not vLLM's: what it takes of the GPU beside the pool is not"
                " known"
            )
        elif part.name == P2P and part.role != "kv_producer":
            most = _number(part.config.get("kv_buffer_size"), _RECEIVED)
            yield (
                f"{P2P} keeps up to {gib(most)} of what it receives (kv_buffer_size) on the GPU, beside the"
                " pool; NCCL's buffers for each peer are not counted"
            )
        elif part.name == LMCACHE:
            yield from _of_lmcache(part, token_bytes)
        elif part.name.startswith("Nixl") and part.config.get("kv_buffer_device") == "cpu":
            yield f"{part.name} with kv_buffer_device cpu keeps a copy of the whole pool on the host"


def _of_lmcache(part: Part, token_bytes: int) -> Iterator[str]:
    """Between prefill and decode servers (PD, NIXL) a buffer of a size that is told; else one of a chunk."""
    said = {key.removeprefix("lmcache."): value for key, value in part.extra.items()}
    tokens = _number(said.get("chunk_size"), _CHUNK)
    for way in ("pd", "nixl"):
        if _is_true(said.get(f"enable_{way}")):
            size, device = said.get(f"{way}_buffer_size"), str(said.get(f"{way}_buffer_device", "cuda"))
            if size is None:
                yield f"the size of {LMCACHE}'s buffer for {way.upper()} ({way}_buffer_size) is not known"
            elif device.startswith("cuda"):
                amount = gib(_number(size, 0))
                yield f"{LMCACHE} takes {amount} of each GPU ({way}_buffer_size) beside the pool"
            return
    if _is_true(said.get("use_layerwise")) or not token_bytes:
        yield f"what {LMCACHE} takes of the GPU for single layers, beside the pool, is not known"
    else:
        yield f"{LMCACHE} copies through {gib(tokens * token_bytes)} of the GPU, a chunk of {tokens} tokens"


def _is_true(given: object) -> bool:
    return str(given).lower() in ("true", "1", "yes")


def _number(given: object, otherwise: int) -> int:
    """A number of a configuration as the engine takes it."""
    try:
        return int(float(str(given))) if given is not None else otherwise
    except (ValueError, OverflowError):
        return otherwise
