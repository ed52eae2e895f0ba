"""The least that a load needs: memory for the cache, the share of a GPU, GPUs, max_num_seqs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from kvplan.deployment.counts import ask, max_requests
from kvplan.deployment.gpus import fewest_gpus
from kvplan.deployment.held import least_memory
from kvplan.deployment.resolve import Deployment
from kvplan.engines.base import Choice
from kvplan.engines.budget import room_for_cache
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import replace
from kvplan.settings import Settings, started_in, with_setting

WAYS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_HUNDREDTHS = range(1, 100)


class Both(NamedTuple):
    """With the likely pool and with the safe one; None where none is enough."""

    likely: Fraction | int | None
    safe: Fraction | int | None


class Least(NamedTuple):
    """The least that a load needs."""

    tokens: int
    requests: int
    memory: int | None
    """bytes for the cache on each GPU, None where no memory is enough"""
    room: int | None = None
    """of them that there are"""
    flag: str | None = None
    share: Both | None = None
    """share, flag: of the GPU's memory and what the engine calls it, None where it has none"""
    gpus: Both | None = None
    """of the kind that was named"""
    tensor_parallel_size: Both | None = None
    """of those GPUs' servers, None where the engine has no such ranks"""
    seqs: int | None = None
    """max_num_seqs, where the engine takes it"""
    pools: int = 1
    """that share the requests"""
    why: str | None = None
    """what keeps the GPU's part from being answered"""

    def data(self) -> dict[str, object]:
        """As JSON: shares are floats."""
        found: dict[str, object] = self._asdict()
        for name in ("share", "gpus", "tensor_parallel_size"):
            both = getattr(self, name)
            found[name] = None if both is None else {k: _number(v) for k, v in both._asdict().items()}
        return found


def _number(one: Fraction | int | None) -> float | int | None:
    return float(one) if isinstance(one, Fraction) else one


def least(deployment: Deployment) -> Least:
    """The least of each, everything else as it was asked for."""
    model, choice, asked = deployment.model, deployment.choice, deployment.settings
    asked = replace(asked, tokens=asked.tokens or ask(model, choice, asked).request.tokens)
    traits = traits_of(choice.engine.name)
    seqs = None if "max_num_seqs" in traits.foreign else asked.requests
    asked, memory = _with_memory(model, choice, asked, seqs)
    found = Least(asked.tokens or 0, deployment.requests, memory, seqs=seqs, pools=deployment.pools)
    if asked.gpu is None:
        return found
    plain = replace(asked, kv_cache_memory=None)
    one = ask(model, choice, replace(plain, requests=1))
    budget, unknown = one.budget, [text for text in one.warnings if text.startswith("no pool")]
    if budget is None and one.refusal is None and unknown:
        return found._replace(why=unknown[0])
    if memory is None and one.refusal is not None:
        found = found._replace(why=one.refusal.message)
    if budget is not None and memory is not None:
        found = found._replace(room=room_for_cache(budget))
    if traits.memory_share is not None:
        share = _share(model, choice, plain, traits.memory_share.setting)
        found = found._replace(flag=traits.memory_share.flag, share=share)
    if asked.gpu.row:
        return found
    gpus, widths = _gpus(replace(deployment, settings=plain))
    return found._replace(gpus=gpus, tensor_parallel_size=widths)


def _with_memory(
    model: Model, choice: Choice, asked: Settings, seqs: int | None
) -> tuple[Settings, int | None]:
    """The settings, with max_num_seqs where the engine's own is below the requests, and the least memory."""
    memory = least_memory(model, choice, asked)
    if memory is not None or seqs is None or asked.max_num_seqs is not None:
        return asked, memory
    told = replace(asked, max_num_seqs=seqs)
    memory = least_memory(model, choice, told)
    return (asked if memory is None else told), memory


def _share(model: Model, choice: Choice, asked: Settings, name: str) -> Both:
    """The least share of the GPU's memory that the engine is to take. name: of its setting."""
    shares = (with_setting(asked, name, Fraction(step, 100)) for step in _HUNDREDTHS)
    return Both(*(_hundredth(step) for step in _both(model, choice, shares, asked)))


def _gpus(deployment: Deployment) -> tuple[Both, Both | None]:
    """The fewest GPUs, and the tensor-parallel ranks of their servers."""
    spread = traits_of(deployment.choice.engine.name).spread
    if spread is None:
        fewest = [fewest_gpus(deployment, safe=safe, narrower=True) for safe in (False, True)]
        return (
            Both(*(None if one is None else one.gpus for one in fewest)),
            Both(*(None if one is None else one.settings.tensor_parallel_size for one in fewest)),
        )
    model, choice, asked = deployment.model, deployment.choice, deployment.settings
    ways = _both(model, choice, (with_setting(asked, spread, number) for number in WAYS), asked)
    return Both(*(None if one is None else WAYS[one] for one in ways)), None


def _hundredth(step: int | None) -> Fraction | None:
    return None if step is None else Fraction(_HUNDREDTHS[step], 100)


def _both(
    model: Model, choice: Choice, variants: Iterator[Settings], asked: Settings
) -> tuple[int | None, int | None]:
    """The first of the variants, from little to much, whose likely pool holds the requests, and whose safe
    one does."""
    kept = list(variants)
    pools: dict[int, tuple[int, int]] = {}

    def holds(step: int, safe: bool) -> bool:
        try:
            if step not in pools:
                budget = ask(model, choice, replace(kept[step], requests=1)).budget
                pools[step] = (0, 0) if budget is None else (budget.kv_pool_bytes, budget.kv_pool_low_bytes)
            pool = pools[step][safe]
            pooled = replace(started_in(kept[step], pool), requests=1)
            return pool > 0 and max_requests(model, choice, pooled) >= asked.requests
        except KvplanError:
            return False

    likely, safe = (_first(len(kept), lambda step, safe=safe: holds(step, safe)) for safe in (False, True))  # type: ignore[misc]
    return likely, safe


def _first(steps: int, holds: Callable[[int], bool]) -> int | None:
    """The first step from which on all hold; those that cannot be (a model that does not divide by 3) are
    passed by."""
    found = None
    low, high = 0, steps - 1
    while low <= high:
        middle = (low + high) // 2
        at = next((step for step in range(middle, high + 1) if holds(step)), None)
        if at is None:
            high = middle - 1
            continue
        found, high = at, middle - 1
    return found
