"""The capacity model of any engine: its own answer, asked once for each start and length."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction

from kvplan.deployment.counts import IN_HOST, ask, uncounted
from kvplan.engines.base import Choice
from kvplan.engines.budget.law import Capacity, Rejection, weights_alone
from kvplan.engines.budget.sharing import Taken, block_of, dropped_of, runs_of, share_of, taken_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import SizeResult
from kvplan.settings import Settings, started_in

Answer = SizeResult | Rejection


class AskedCapacityModels:
    """Capacity models that ask `kvplan.deployment.counts.ask`; every GPU is a kind of its own."""

    def __init__(self) -> None:
        self._laws: dict[Hashable, AskedCapacityModel] = {}

    def kind(self, gpu: Gpu, choice: Choice, settings: Settings) -> Hashable:
        return gpu

    def law(
        self, model: Model, choice: Choice, settings: Settings, gpu: Gpu, kind: Hashable
    ) -> AskedCapacityModel:
        key = (model, choice.engine.name, choice.version, choice.asked, settings, kind)
        if key not in self._laws:
            self._laws[key] = AskedCapacityModel(model, choice, settings)
        return self._laws[key]


class AskedCapacityModel:
    """One class on one GPU."""

    def __init__(self, model: Model, choice: Choice, settings: Settings) -> None:
        self._model, self._choice = model, replace(choice, advice=False)
        self._settings = replace(settings, requests=1, tokens=None)
        self._rooms: dict[tuple[int, int, bool], Capacity | Rejection] = {}

    def room(
        self, gpu: Gpu, max_num_seqs: int, max_model_len: int, *, safe: bool = False
    ) -> Capacity | Rejection:
        key = (max_num_seqs, max_model_len, safe)
        if key not in self._rooms:
            settings = replace(
                self._settings, gpu=gpu, max_num_seqs=max_num_seqs, max_model_len=max_model_len
            )
            self._rooms[key] = self._room(settings, safe=safe)
        return self._rooms[key]

    def _room(self, settings: Settings, *, safe: bool) -> Capacity | Rejection:
        found = self._ask(settings)
        if isinstance(found, Rejection):
            return found
        if safe and found.budget is not None:
            settings = started_in(settings, found.budget.kv_pool_low_bytes)
            found = self._ask(settings)
            if isinstance(found, Rejection):
                return found
        return capacity_of(found, self._asked(settings))

    def _ask(self, settings: Settings) -> Answer:
        try:
            result = ask(self._model, self._choice, settings)
        except KvplanError as error:
            return Rejection(error.code, error.message)
        if result.refusal is not None:
            return _refused(result)
        if result.pool is None:
            if uncounted(result):
                return Rejection("no-pool", f"{IN_HOST}: --host-memory 64GiB")
            why = "the model keeps no cache: its requests take no room"
            return Rejection("no-pool", result.warnings[-1] if result.warnings else why)
        return result

    def _asked(self, settings: Settings) -> Callable[[int, int], Answer]:
        """The engine's answers for requests of a shape, each asked for once."""
        kept: dict[tuple[int, int], Answer] = {}

        def asked(tokens: int, answer: int) -> Answer:
            key = tokens, max(1, answer)
            if key not in kept:
                kept[key] = self._ask(replace(settings, tokens=tokens, answer_tokens=max(1, answer)))
            return kept[key]

        return asked


def capacity_of(found: SizeResult, asked: Callable[[int, int], Answer]) -> Capacity:
    """The capacity of an answer's pool, by the engine's answers for requests of other shapes."""
    assert found.pool is not None
    return Capacity(
        found.pool.bytes,
        lambda tokens, answer: _runs(asked(tokens, answer)),
        lambda tokens, answer: _taken(asked(tokens, answer)),
        lambda tokens: _share(asked(tokens, 0)),
        block_of(found),
        dropped_of(found),
        lambda tokens, answer: _rejected(asked(tokens, answer)),
    )


def _runs(found: Answer) -> int:
    return 0 if isinstance(found, Rejection) else runs_of(found)


def _rejected(found: Answer) -> Rejection | None:
    return found if isinstance(found, Rejection) else None


def _taken(found: Answer) -> Taken | None:
    return None if isinstance(found, Rejection) else taken_of(found)


def _share(found: Answer) -> Fraction | None:
    return None if isinstance(found, Rejection) else share_of(found)


def _refused(result: SizeResult) -> Rejection:
    refusal, budget, weights = result.refusal, result.budget, result.weights
    assert refusal is not None
    if refusal.code == "no-memory-for-cache" and budget is not None and weights is not None:
        usable = budget.total_bytes - budget.unused_bytes
        if weights.bytes_per_gpu >= usable:
            return weights_alone(weights.bytes_per_gpu, usable)
    return Rejection(refusal.code, refusal.message)
