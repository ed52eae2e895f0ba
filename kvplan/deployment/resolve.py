"""From a question to a deployment: every setting resolved once, GPUs dealt to replicas, requests to pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.deployment.question import Question
from kvplan.engines import own_settings
from kvplan.engines.base import Choice
from kvplan.engines.shared_options import given_settings
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.later import later
from kvplan.model import Model
from kvplan.named import NamedTuple
from kvplan.record import record, replace
from kvplan.settings import Settings, gpus_per_replica, pools_per_replica
from kvplan.units import ceil_div

if TYPE_CHECKING:
    from kvplan.architectures.config import drafts
    from kvplan.engines import door_settings
else:
    drafts = later("kvplan.architectures.config", "drafts")
    door_settings = later("kvplan.engines", "door_settings")


class Chosen(NamedTuple):
    """A setting that nobody gave and that is not the engine's default either."""

    name: str
    value: object
    why: str


FOR_REQUESTS = "for the longest request"


@record()
class Deployment:
    """The servers to be started: equal replicas of one model on GPUs of one kind.

    settings: of one server, with the share of the load that its fullest pool gets in ``settings.requests``.
    """

    model: Model
    choice: Choice
    settings: Settings
    gpus: int
    """all GPUs"""
    replicas: int
    pools: int
    """pools with requests of their own, over all replicas"""
    requests: int
    """requests at once that were asked for, over all replicas"""
    idle_gpus: int = 0
    """GPUs that no replica uses"""
    chosen: tuple[Chosen, ...] = ()
    typed: tuple[str, ...] = ()
    """settings that were given; the others, but those chosen, are the defaults of the engine's release"""

    @property
    def gpus_per_replica(self) -> int:
        return gpus_per_replica(self.settings)

    @property
    def follows_requests(self) -> bool:
        """Whether the server is started for the longest request, as nobody gave a length."""
        return any(one.name == "max_model_len" for one in self.chosen)

    @property
    def chosen_length(self) -> int | None:
        """max_model_len where it was chosen for the requests and is not the model's own."""
        length = self.settings.max_model_len
        return length if self.follows_requests and length != self.model.max_model_len else None


def resolve(question: Question) -> Deployment:
    """The deployment that a question is about. Raises KvplanError(bad-setting) where the GPUs are too few."""
    model, choice = question.model, question.choice
    settings = own_settings(choice.engine, question.settings)
    if settings.speculative_method == "mtp" and not (model.draft_layers or model.provenance.whole):
        model = drafts.with_assumed_drafts(model)
    each = gpus_per_replica(settings)
    gpus = settings.gpus or each
    replicas = gpus // each
    if not replicas:
        raise too_few_gpus(each, gpus, settings)
    pools = replicas * pools_per_replica(settings)
    chosen: tuple[Chosen, ...] = ()
    length = None if question.written else _length(model, choice, settings, question.lengths)
    if length is not None:
        settings = replace(settings, max_model_len=length)
        chosen = (Chosen("max_model_len", length, FOR_REQUESTS),)
    requests = settings.requests
    settings = replace(settings, requests=ceil_div(requests, pools))
    if choice.door is not None or traits_of(choice.engine.name).spills:
        choice, settings = door_settings.through(model, choice, settings)
    # A program in front of the engine may leave GPUs out.
    idle = gpus - replicas * gpus_per_replica(settings)
    typed = (*_given(question.settings), *own_settings(choice.engine, question.settings).own)
    return Deployment(model, choice, settings, gpus, replicas, pools, requests, idle, chosen, typed)


def _given(settings: Settings) -> tuple[str, ...]:
    return tuple(name for name in given_settings(settings) if name not in ("gpus", "own", "spread", "starts"))


def _length(model: Model, choice: Choice, settings: Settings, others: tuple[int, ...]) -> int | None:
    """max_model_len for the longest of the requests; None where it was given, or does not follow from them:
    no length was asked for, the model takes none that long, or a server's context is made of all of them."""
    if settings.max_model_len is not None or not traits_of(choice.engine.name).starts_for_length:
        return None
    asked = [length for length in (settings.tokens, *others) if length]
    own = model.max_model_len
    taken = [length for length in asked if own is None or length <= own]
    return max(taken) if taken and settings.tokens else None


def too_few_gpus(needed: int, gpus: int, settings: Settings) -> KvplanError:
    """For parallel sizes that take more GPUs than were named."""
    named = "" if settings.gpu is None else f": --gpu {needed}x{settings.gpu.slug}"
    return KvplanError(
        "bad-setting",
        f"the parallel sizes take {needed} GPUs, and --gpu names {gpus}",
        help=f"leave --tp out, or name as many GPUs{named}",
    )
