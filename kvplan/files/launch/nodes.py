"""One engine that runs over several pods or machines is one engine.

vLLM 0.33 vllm/engine/arg_utils.py (``--nnodes``, ``--node-rank``, ``--data-parallel-size-local``,
``--data-parallel-start-rank``) and entrypoints/cli/serve.py (``--headless``); SGLang 0.5.23
srt/server_args.py (``--nnodes``, ``--node-rank``).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.files.launch.entries import Served
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.starts import Start
from kvplan.files.launch.words import take_apart
from kvplan.plans.serve import flag_for
from kvplan.record import record, replace

_ALONE = "machines of its engine stands here"
_RANKS = ("--node-rank", "--data-parallel-start-rank", "--data-parallel-rank")


@record()
class Node:
    """The part of an engine that one command starts. nodes: of the engine, 1 where it says nothing. rank:
    None where a variable says it. follows: it is one of the others, known by its words. spans: the engine
    has other parts."""

    nodes: int = 1
    rank: int | None = 0
    follows: bool = False
    spans: bool = False


def node_of(start: Start) -> Node:
    """The machines that an engine takes, as far as its command says it."""
    given: dict[str, object] = {}
    for option in take_apart(start.server, start.words).options:
        for name in option.flag.names if option.flag is not None else ():
            given[name] = option.value
    nodes = _whole(given.get("--nnodes"))
    said = [_whole(given[name]) for name in _RANKS if name in given]
    rank = None if None in said else max((one for one in said if one is not None), default=0)
    local, data = _whole(given.get("--data-parallel-size-local")), _whole(given.get("--data-parallel-size"))
    fewer = local is not None and (data is None or local < data)
    headless = given.get("--headless") is True
    several = (nodes or 0) > 1 or ("--nnodes" in given and nodes is None)
    return Node(nodes or 1, rank, headless or bool(rank), several or headless or bool(said) or fewer)


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 7 else None


def gpus_of_engine(launch: Launch) -> int:
    """The GPUs that an engine's flags come to (`kvplan.settings.gpus_per_replica`)."""
    total = 1
    for setting in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        name = flag_for(launch.engine, setting)
        value = launch.serve.get(name) if name is not None else None
        inside = setting == "data_parallel_size" and launch.serve.get("enable_dp_attention") is True
        if isinstance(value, int) and value > 0 and not inside:
            total *= value
    return total


def joined(read: Sequence[tuple[Served, Launch]]) -> list[tuple[Served, Launch]]:
    """The engines of a text: those that are started several times over, as a leader and its workers or a
    machine at a time, once. Order of the text."""
    groups: dict[str, list[tuple[Served, Launch]]] = {}
    for place, (served, launch) in enumerate(read):
        groups.setdefault(served.group or str(place), []).append((served, launch))
    return _across_objects([one for members in groups.values() for one in _of_group(members)])


def _of_group(members: list[tuple[Served, Launch]]) -> list[tuple[Served, Launch]]:
    """The servers of one group's pods. Several containers of one pod are engines of their own."""
    leaders = [one for one in members if not one[0].worker]
    workers = [one for one in members if one[0].worker]
    found = []
    for served, launch in leaders:
        same = [one for one, other in workers if _alike(launch, other)]
        found.append(_placed(served, launch, served.pods + sum(one.pods for one in same)))
    led = [launch for _, launch in leaders]
    alone = [(one, other) for one, other in workers if not any(_alike(leader, other) for leader in led)]
    return found + [_placed(served, launch, served.pods) for served, launch in alone]


def _alike(one: Launch, other: Launch) -> bool:
    return one.engine.partition("@")[0] == other.engine.partition("@")[0] and (
        one.model == other.model or other.unnamed is not None
    )


def _placed(served: Served, launch: Launch, pods: int) -> tuple[Served, Launch]:
    """The engines that so many pods of a group make."""
    node, each, own = node_of(served.start), gpus_of_engine(launch), served.gpus
    more = own is not None and each > own
    engines, spans = pods, False
    if served.one:
        engines, spans = 1, pods > 1
    elif node.nodes > 1:
        engines, spans = max(1, pods // node.nodes), True
    elif node.spans or (more and served.gang and pods > 1):
        engines, spans = max(1, pods * (own or each) // max(1, each)), True
    note = ""
    if spans and pods > engines:
        note = f"{pods} pods are {engines} engine{'s' if engines > 1 else ''}"
    elif pods < node.nodes:
        note = f"one of the {node.nodes} {_ALONE}"
    gpus = _gpus(served, node, pods // engines if spans else 1, more)
    notes = (*launch.notes, note) if note else launch.notes
    return served, replace(launch, replicas=served.replicas * engines, gpus=gpus, notes=notes)


def _gpus(served: Served, node: Node, pods: int, more: bool) -> int | None:
    """The GPUs that one engine is given by its pods, those too that only wait for its leader."""
    if served.gpus is None:
        return None
    if node.nodes > 1 or pods > 1:
        return served.gpus * max(node.nodes, pods)
    if more and served.gang:
        return None if served.one and served.size == 1 else served.gpus * served.size
    return served.gpus


def _across_objects(found: Sequence[tuple[Served, Launch]]) -> list[tuple[Served, Launch]]:
    """Without the parts of engines whose first part another object starts; it gets their GPUs."""
    nodes = [node_of(served.start) for served, _ in found]
    gpus = {place: launch.gpus for place, (_, launch) in enumerate(found)}
    kept, whole_here = [], set[int]()
    for place, (_, launch) in enumerate(found):
        head = next(
            (one for one, (_, other) in enumerate(found)
             if nodes[one].spans and not nodes[one].follows and _alike(other, launch)), None,
        )  # fmt: skip
        if not nodes[place].follows or head is None:
            kept.append(place)
            continue
        whole_here.add(head)
        before, own = gpus[head], launch.gpus
        whole = gpus_of_engine(found[head][1])
        gpus[head] = None if before is None or own is None else min(whole, before + own * launch.replicas)
    return [
        (found[place][0], _known(found[place][1], gpus[place], whole=place in whole_here)) for place in kept
    ]


def _known(launch: Launch, gpus: int | None, *, whole: bool) -> Launch:
    notes = tuple(one for one in launch.notes if not (whole and one.endswith(_ALONE)))
    return replace(launch, gpus=gpus, notes=notes)
