"""A planner's question: for which load, on which GPUs, within which limits, and by which objective."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from kvplan.engines.base import Choice
from kvplan.engines.budget.law import Capacity, CapacityModels, Rejection
from kvplan.engines.budget.sharing import Sharing
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.planning.quality import Quality
from kvplan.plans.fleet import Offer
from kvplan.plans.plan import QUALITIES
from kvplan.plans.serve import host_tiers
from kvplan.plans.workload import Shape
from kvplan.record import record, replace
from kvplan.settings import Settings
from kvplan.units import ceil_div

FEWEST, COST, REQUESTS, CONTEXT = "fewest-gpus", "cost", "requests", "context"
OBJECTIVES = (FEWEST, COST, REQUESTS, CONTEXT)
SEQS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TENSOR_WAYS = (1, 2, 4, 8, 16)
PIPELINE_WAYS = (1, 2, 4, 8)
DEALT_WAYS = tuple(range(1, 9))
"""Of engines that deal whole layers over any number of GPUs, and divide none."""
DATA_WAYS = (2, 4, 8, 16)
NODE = 8
"""GPUs that share the fast interconnect where neither fleet nor GPU file says."""
MOST_GPUS = 1024


@record()
class Speed:
    """Each (low, likely, high)."""

    ttft: tuple[float, float, float]
    """seconds"""
    tpot: tuple[float, float, float]
    """seconds"""
    tokens_per_second: tuple[float, float, float]
    """of one replica"""


class Running(NamedTuple):
    """The load of one pool: requests of a shape, of whose prompts ``cached`` tokens are held already.
    node_bytes_per_second: between nodes, one GPU's share; None = not known."""

    requests: int
    shape: Shape
    cached: int = 0
    node_bytes_per_second: int | None = None


def running(sequences: int, shape: Shape, prefix: int, block: int, *, node: int | None = None) -> Running:
    """So many sequences of a shape, of whose prompts the whole blocks of a shared prefix are held already."""
    cached = min(prefix // block * block, shape.input_tokens - 1) if block else 0
    return Running(sequences, shape, max(cached, 0), node)


@record()
class Demand:
    """So many requests of one shape at once, over the whole plan."""

    requests: int
    shape: Shape

    _JSON = ("requests", "tokens")

    @property
    def tokens(self) -> int:
        return self.shape.tokens


SpeedOf = Callable[[Model, Gpu, Settings, Running], Speed | Rejection]
"""The speed of an engine under so much; TTFT and TPOT never fall as requests rise."""


@record()
class Variant:
    """The model in one weight format. label: ``bfloat16``, ``fp8``. experts: routed ones of a layer, or 0.
    build: the setting ``quantization``, where the engine makes the format of the same model."""

    model: Model
    label: str
    quality: Quality
    experts: int = 0
    build: str | None = None


@record()
class Ask:
    """One question.

    tp, pp, dp, dcp, adp (attention groups): sizes tried, None = the usual ones.
    """

    variants: tuple[Variant, ...]
    """the weight formats that exist, the user's own first"""
    choice: Choice
    offers: tuple[Offer, ...]
    shapes: tuple[Shape, ...]
    """the mix of requests"""
    lengths: tuple[int, ...]
    """max_model_len tried, each at least the longest request"""
    laws: CapacityModels
    requests: int = 1
    """at once, over the whole plan"""
    rate: Fraction | None = None
    """requests a second that arrive: no more tokens are made than they ask for"""
    paced: bool = False
    """so many are at once as the estimated times keep under way at that rate, not ``requests``"""
    goodput: Fraction | None = None
    """share of the requests that keep the workload's times in a simulation; None: the estimate decides"""
    base: Settings = Settings()
    """settings given by the user; the search overrides what it varies"""
    seqs: tuple[int, ...] = SEQS
    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    dp: tuple[int, ...] | None = None
    dcp: tuple[int, ...] | None = None
    adp: tuple[int, ...] | None = None
    expert_parallel: bool | None = None
    kv_dtypes: tuple[str, ...] | None = None
    """words tried, None = those that the quality policy takes"""
    quality: str = "safe"
    objective: str = FEWEST
    max_gpus: int | None = None
    """over the whole plan"""
    safe: bool = False
    """the pool's low figure must do"""
    headroom: Fraction = Fraction(0)
    """share of the pool that stays free"""
    tpot: Fraction | None = None
    """tpot, ttft: seconds at most, by the likely estimate"""
    ttft: Fraction | None = None
    speed: SpeedOf | None = None
    prefix: int = 0
    """tokens that all prompts begin with"""
    samples: int = 1
    """sequences of one prompt, all of a request"""
    host_memory: int = 0
    """bytes of a cache tier in host memory, over all GPUs of the plan"""
    also: tuple[Demand, ...] = ()
    """what must be held by itself as well, in the same pools"""
    kept: int = 0
    """bytes of each pool that stay free for prompts kept for reuse"""
    max_cost: Fraction | None = None
    """what all GPUs may cost in an hour"""

    def __post_init__(self) -> None:
        self._check_words()
        self._check_lengths()
        self._check_load()
        self._check_aims()

    def _check_words(self) -> None:
        for name, value, words in (
            ("quality", self.quality, QUALITIES),
            ("objective", self.objective, OBJECTIVES),
        ):
            if value not in words:
                raise KvplanError("bad-setting", f"{name} is {value!r}", help=f"one of {', '.join(words)}")

    def _check_lengths(self) -> None:
        if not self.variants or not self.offers or not self.shapes:
            raise KvplanError("bad-usage", "nothing to plan: a model, a GPU and a request are needed")
        longest = self.longest
        if not self.lengths or min(self.lengths) < longest:
            raise KvplanError(
                "bad-setting",
                f"max_model_len {min(self.lengths, default=0):,} is shorter than the longest request"
                f" ({longest:,} tokens)",
                help=f"--max-model-len {longest}",
            )

    def _check_load(self) -> None:
        for requests in (self.requests, *(demand.requests for demand in self.also)):
            if requests < 1 or requests > 10**9:
                raise KvplanError("bad-setting", f"requests is {requests:,}", help="1 or more")
        if self.paced and self.rate is None:
            raise KvplanError("bad-usage", "only a rate says how many requests are under way")
        if self.samples < 1 or self.prefix < 0:
            raise KvplanError("bad-setting", "samples are 1 or more, a shared prefix 0 tokens or more")
        if self.host_memory and self.choice.engine.name not in host_tiers():
            raise KvplanError(
                "no-host-tier",
                f"no flag of {self.choice.engine.name} for a tier in host memory is known",
                help="--engine " + " or ".join(host_tiers()),
            )

    def _check_aims(self) -> None:
        if not 0 <= self.headroom < 1:
            raise KvplanError("bad-setting", f"headroom is {float(self.headroom):g}", help="0 … below 1")
        if self.timed and self.speed is None:
            raise KvplanError(
                "no-speed", f"times of {self.choice.engine.name} under a load are not estimated",
                help=("leave the targets and the rate out", "-e vllm"),
            )  # fmt: skip
        if self.objective in (REQUESTS, CONTEXT) and any(self.limit(offer) is None for offer in self.offers):
            raise KvplanError(
                "bad-usage",
                f"the objective {self.objective} needs to know how many GPUs there are",
                help=("--max-gpus 8", "--gpu 8xh100", "a fleet file that says how many are available"),
            )

    @property
    def engine(self) -> str:
        """``vllm@0.32``, as a plan has it."""
        return f"{self.choice.engine.name}@{self.choice.asked or self.choice.version}"

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(shape.tokens for shape in (*self.shapes, *(demand.shape for demand in self.also)))

    @property
    def mean(self) -> Shape:
        """One request of the mix on average, tokens rounded up."""
        total = sum(shape.weight for shape in self.shapes)
        prompt = -(-sum(shape.input_tokens * shape.weight for shape in self.shapes) // total)
        answer = -(-sum(shape.output_tokens * shape.weight for shape in self.shapes) // total)
        return Shape(prompt, answer)

    @property
    def shares(self) -> bool:
        """Whether requests have something in common that an engine might hold once."""
        return self.prefix > 0 or self.samples > 1

    @property
    def timed(self) -> bool:
        """Whether times or a rate say how many requests may run on one engine."""
        return self.tpot is not None or self.ttft is not None or self.paced

    @property
    def end(self) -> int:
        """Of an estimate's (low, likely, high) the one that must do: the likely one, but where requests come
        at a rate and the safe figures count, the slow one."""
        return 2 if self.paced and self.safe else 1

    def plain(self, room: Capacity) -> bool:
        """Whether the requests are of one shape, share nothing in that room, and may take all of it."""
        return len(self.shapes) == 1 and not self.headroom and not self.kept and self.sharing(room).apart

    def free(self, room: Capacity) -> Fraction:
        """The share of that room that requests may take."""
        if self.kept > room.pool_bytes:
            return Fraction(0)
        return 1 - self.headroom - (Fraction(self.kept, room.pool_bytes) if self.kept else 0)

    def alone(self, demand: Demand) -> Ask:
        """The ask with that demand in the place of the load."""
        return replace(self, shapes=(demand.shape,), requests=demand.requests, prefix=0, samples=1, also=())

    def sequences(self, requests: int, pools: int) -> int:
        """Requests that one of ``pools`` pools runs at once, with all their samples, or those required in
        addition."""
        return max(requests * self.samples, *(ceil_div(one.requests, pools) for one in self.also), 0)

    def scaled(self, up: int, down: int) -> Ask:
        """The ask with all requests longer or shorter."""

        def scale(shape: Shape) -> Shape:
            return Shape(
                max(1, shape.input_tokens * up // down), shape.output_tokens * up // down, shape.weight
            )

        shapes = tuple(map(scale, self.shapes))
        also = tuple(replace(one, shape=scale(one.shape)) for one in self.also)
        beyond = traits_of(self.choice.engine.name).beyond_prompt
        every = (*shapes, *(one.shape for one in also))
        longest = max(max(shape.tokens, shape.input_tokens + beyond) for shape in every)
        return replace(self, shapes=shapes, also=also, lengths=(longest,))

    def sharing(self, room: Capacity) -> Sharing:
        """The prompts of which the room holds one copy."""
        longest = max(shape.input_tokens for shape in self.shapes)
        return Sharing(room.block, min(self.prefix, longest), self.samples, room.dropped)

    def running(self, offer: Offer, requests: int, block: int) -> Running:
        """So many requests of the mean shape on one pool of the offer; block: of its room."""
        return running(
            requests * self.samples, self.mean, self.prefix, block, node=offer.node_bytes_per_second
        )

    def limit(self, offer: Offer) -> int | None:
        """GPUs of an offer that the plan may take."""
        known = [count for count in (self.max_gpus, offer.available) if count is not None]
        if self.max_cost is not None and offer.price_per_gpu_hour:
            known.append(int(self.max_cost / offer.price_per_gpu_hour))
        return min(known) if known else None


def node_of(offer: Offer) -> int:
    """GPUs of one node."""
    return offer.gpus_per_node or offer.gpu.gpus_per_node or NODE
