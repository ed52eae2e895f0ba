"""``--fit``: the context, the layers of each GPU and the experts in host memory that llama.cpp chooses.

ggml-org/llama.cpp at 0c1e57098 common/fit.cpp (``common_params_fit_impl``), step by step: without ``-c``
the context is cut by the sum of what is free; layers are dealt from the last GPU to the first, each as full
as it may be; experts follow from the first GPU on, at last a part of one more layer. What is measured there
is given here (`Measure`): the same answers give the same placement (tests/engines/test_llamacpp_fit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from kvplan.named import NamedTuple
from kvplan.record import record

PAD = 256


class Rest(IntEnum):
    """Which tensors of a layer that lies on a GPU only in part lie elsewhere."""

    DOWN_GATE_UP = 1
    """all of the perceptron, with the experts (LAYER_FRACTION_ATTN)"""
    DOWN_GATE = 2
    DOWN = 3
    EXPERTS = 4


class Share(NamedTuple):
    """The layers of one GPU, counted with the output layer: so many, of which the last ``part`` lie there
    without their experts; of the first of these ``rest`` lies on the GPU ``to``, or in host memory."""

    layers: int = 0
    part: int = 0
    rest: Rest = Rest.EXPERTS
    to: int | None = None

    @property
    def whole(self) -> int:
        return self.layers - self.part


Shares = tuple[Share, ...]


class Moved(NamedTuple):
    """Tensors of a layer that lie elsewhere than its GPU: on the GPU ``to``, or in host memory."""

    layer: int
    rest: Rest
    to: int | None


class Amount(NamedTuple):
    """Bytes of a GPU: the weights', and all of it with cache and compute buffer."""

    weights: int
    total: int


Measure = Callable[[int, Shares | None, bool], Sequence[Amount]]
"""(n_ctx, shares, experts on the GPUs) → the amounts of each GPU. shares None: as nobody said."""


@record()
class Start:
    """A model and a start, as far as the fitting knows them. layers: of the model. n_ctx: None where it is to
    be chosen, between ``least`` and ``most`` cells of each of ``streams``. free, kept: bytes of each GPU,
    and of these what is to stay free."""

    layers: int
    has_experts: bool
    free: tuple[int, ...]
    kept: tuple[int, ...]
    most: int
    least: int
    streams: int = 1
    n_ctx: int | None = None
    may_move: bool = True

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(free - kept for free, kept in zip(self.free, self.kept, strict=True))


@record()
class Fitted:
    """The choice. shares None: nothing but the context is changed. stopped: layers would have to be placed,
    and the user has placed them (``-ngl``, ``-ts``, ``-ot``)."""

    n_ctx: int
    shares: Shares | None = None
    stopped: bool = False


def moved(shares: Shares, layers: int) -> tuple[Moved, ...]:
    """Tensors that lie elsewhere, in the order of their layers. layers: of the model."""
    found: list[Moved] = []
    at = layers + 1 - sum(share.layers for share in shares)
    for share in shares:
        at += share.whole
        for layer in range(at, at + share.part):
            first = layer == at
            found.append(Moved(layer, share.rest if first else Rest.EXPERTS, share.to if first else None))
        at += share.part
    return tuple(found)


def fitted(start: Start, measure: Measure) -> Fitted:
    """The choice of ``--fit`` for one GPU or more."""
    most, least = start.most * start.streams, start.least * start.streams
    n_ctx = most if start.n_ctx is None else start.n_ctx
    full = measure(n_ctx, None, True)
    left = [free - amount.total for free, amount in zip(start.free, full, strict=True)]
    if all(one >= kept for one, kept in zip(left, start.kept, strict=True)):
        return Fitted(n_ctx)
    surplus = sum(left) - sum(start.kept)
    if surplus < 0 and start.n_ctx is None and most > least:
        n_ctx, whole = _cut(start, measure, full, most, least)
        if whole and len(start.free) == 1:
            return Fitted(n_ctx)
    if not start.may_move:
        return Fitted(n_ctx, stopped=True)
    return Fitted(n_ctx, _Dealer(start, n_ctx, measure).dealt())


def _cut(start: Start, measure: Measure, full: Sequence[Amount], most: int, least: int) -> tuple[int, bool]:
    """The context by the sum of what is free, and whether that makes all of it fit. Over several GPUs half a
    layer, of experts a sixth, is taken for lost on each, and one more."""
    devices = len(start.free)
    target = sum(start.targets)
    if devices > 1:
        layer = sum(amount.weights for amount in full) // (start.layers if start.layers else 1)
        target -= (devices + 1) * layer // (6 if start.has_experts else 2)
    used = sum(amount.total for amount in full)
    lowest = sum(amount.total for amount in measure(least, None, True))
    if not target > lowest or not used > lowest:
        return least, False
    cells = least + (most - least) * (target - lowest) // (used - lowest)
    return max(cells - cells % (PAD * start.streams), least), True


class _Dealer:
    """Steps 3 and 4: the layers of each GPU by false position, and parts of layers."""

    def __init__(self, start: Start, n_ctx: int, measure: Measure) -> None:
        self.start, self.n_ctx, self.measure = start, n_ctx, measure
        self.last = len(start.free) - 1
        self.shares: list[Share] = [Share()] * len(start.free)
        self.bytes: list[int] = []

    def _taken(self, shares: Sequence[Share]) -> list[int]:
        return [amount.total for amount in self.measure(self.n_ctx, tuple(shares), True)]

    def dealt(self) -> Shares:
        dense_fits = False
        if self.start.has_experts:
            without = self.measure(self.n_ctx, None, False)
            dense_fits = sum(self.start.targets) > sum(amount.total for amount in without)
        self.bytes = self._taken(self.shares)
        for gpu in range(self.last, -1, -1):
            self._fill_with_dense(gpu)
        if dense_fits:
            self._fill_with_experts()
        return tuple(self.shares)

    def _step(self, gpu: int, delta: int, high: int) -> int:
        """How many layers more to try: where the target would be met if all took as much."""
        room, rise = self.start.targets[gpu] - self.bytes[gpu], high - self.bytes[gpu]
        step = int(delta * room / rise) if rise > 0 else delta - 1
        # Integers as in C: towards zero, and a negative number is a very large one.
        if rise > 0:
            step = abs(delta * room) // rise * (1 if room >= 0 else -1)
        return min(max(step if step >= 0 else delta - 1, 1), delta - 1)

    def _fill_with_dense(self, gpu: int) -> None:
        experts, last = self.start.has_experts, gpu == self.last
        left = self.start.layers + 1 - sum(share.layers for share in self.shares[gpu + 1 :])
        if left <= 0:
            return
        part = (left - 1 if last else left) if experts else self.shares[gpu].part
        high = self._with({gpu: self.shares[gpu]._replace(layers=left, part=part)})
        high_bytes = self._taken(high)
        if high_bytes[gpu] <= self.start.targets[gpu]:
            self.shares, self.bytes = high, high_bytes
            return
        delta = left - self.shares[gpu].layers
        while delta > 1:
            step, own = self._step(gpu, delta, high_bytes[gpu]), self.shares[gpu]
            more = 0
            if experts:
                more = step - 1 if last and own.part == 0 else step
            test = self._with({gpu: own._replace(layers=own.layers + step, part=own.part + more)})
            test_bytes = self._taken(test)
            if test_bytes[gpu] <= self.start.targets[gpu]:
                self.shares, self.bytes = test, test_bytes
            else:
                high, high_bytes = test, test_bytes
            delta = high[gpu].layers - self.shares[gpu].layers

    def _with(self, changed: dict[int, Share]) -> list[Share]:
        return [changed.get(at, share) for at, share in enumerate(self.shares)]

    def _fill_with_experts(self) -> None:
        """From the first GPU on, layers get their experts, taken from the first that has some without."""
        dense = self.last + 1
        while dense > 0 and self.shares[dense - 1].layers > 0:
            dense -= 1
        gpu = 0
        while gpu <= dense <= self.last:
            dense = self._more_of_a_layer(gpu, self._convert(gpu, dense))
            gpu += 1

    def _convert(self, gpu: int, dense: int) -> int:
        high = list(self.shares)
        for other in range(dense, self.last + 1):
            moves = high[other].layers - (1 if other == self.last else 0)
            high[gpu] = high[gpu]._replace(layers=high[gpu].layers + moves)
            high[other] = high[other]._replace(layers=high[other].layers - moves, part=0)
        high_bytes = self._taken(high)
        if high_bytes[gpu] <= self.start.targets[gpu]:
            self.shares, self.bytes = high, high_bytes
            return self.last
        delta = high[gpu].whole - self.shares[gpu].whole
        while delta > 1:
            step = self._step(gpu, delta, high_bytes[gpu])
            test, first = self._converted(gpu, dense, step)
            test_bytes = self._taken(test)
            if test_bytes[gpu] <= self.start.targets[gpu]:
                self.shares, self.bytes, dense = test, test_bytes, first
            else:
                high, high_bytes = test, test_bytes
            delta = high[gpu].whole - self.shares[gpu].whole
        return dense

    def _converted(self, gpu: int, dense: int, count: int) -> tuple[list[Share], int]:
        test, done = list(self.shares), 0
        while dense <= self.last:
            moves = min(count - done, test[dense].part)
            own = test[dense]
            test[dense] = own._replace(layers=own.layers - moves, part=own.part - moves)
            test[gpu] = test[gpu]._replace(layers=test[gpu].layers + moves)
            done += moves
            if test[dense].part > 0:
                break
            dense += 1
        return test, dense

    def _more_of_a_layer(self, gpu: int, dense: int) -> int:
        """A part of one more layer, whose rest lies on the next GPU, or in host memory behind the last."""
        if dense > self.last or self.shares[dense].layers <= (0 if gpu < self.last else 1):
            return dense
        test, own = list(self.shares), self.shares[dense]
        test[dense] = own._replace(layers=own.layers - 1, part=own.part - 1)
        after = dense + 1 if test[dense].part == 0 else dense
        grown = test[gpu]._replace(
            layers=test[gpu].layers + 1, part=test[gpu].part + 1, to=gpu + 1 if gpu < self.last else None
        )
        if self._takes(gpu, test, grown._replace(rest=Rest.DOWN_GATE)):
            self._takes(gpu, test, grown._replace(rest=Rest.DOWN))
            return after
        return after if self._takes(gpu, test, grown._replace(rest=Rest.DOWN_GATE_UP)) else dense

    def _takes(self, gpu: int, test: list[Share], share: Share) -> bool:
        tried = [share if at == gpu else one for at, one in enumerate(test)]
        taken, targets = self._taken(tried), self.start.targets
        if taken[gpu] < targets[gpu] and (gpu == self.last or taken[gpu + 1] < targets[gpu + 1]):
            self.shares, self.bytes = tried, taken
            return True
        return False
