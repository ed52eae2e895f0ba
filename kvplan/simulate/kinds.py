"""Which replica an engine's settings ask for, and views of any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kvplan.simulate.clock import Clock
from kvplan.simulate.replica import Replica
from kvplan.simulate.results import Answer
from kvplan.simulate.settings import Engine
from kvplan.simulate.sglang.settings import SglangEngine
from kvplan.simulate.timeline import AnyEngine, Timeline, Trace
from kvplan.simulate.trtllm.settings import TrtllmEngine

View = TypeVar("View", bound=Timeline)


def kind_of(engine: AnyEngine) -> type[Timeline]:
    """The replica with its scheduler."""
    if isinstance(engine, SglangEngine):
        from kvplan.simulate.sglang.replica import SglangReplica

        return SglangReplica
    if isinstance(engine, TrtllmEngine):
        from kvplan.simulate.trtllm.replica import TrtllmReplica

        return TrtllmReplica
    if isinstance(engine, Engine) and engine.offload is not None:
        from kvplan.simulate.offload.replica import Offloaded

        return Offloaded
    return Replica


def viewed(view: Callable[..., View], engine: AnyEngine) -> Callable[..., View]:
    """A view (a `Timeline` with more to note, and no scheduler) on the replica that an engine asks for."""
    bases: Any = (view, kind_of(engine))
    found = _COMPOSED.get(bases)
    if found is None:
        found = _COMPOSED[bases] = type("".join(base.__name__ for base in bases), bases, {})
    return cast("Callable[..., View]", found)


_COMPOSED: dict[tuple[Any, Any], Any] = {}


def simulate_any(
    trace: Trace, engine: AnyEngine, time: Clock, *, jump: bool = True, rows: bool = False
) -> Answer:
    """`kvplan.simulate.replica.simulate` for whichever engine."""
    engine.check()
    trace.check()
    kind: Any = kind_of(engine)
    return cast(Answer, kind(trace, engine, time, jump=jump, rows=rows).run())
