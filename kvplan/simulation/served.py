"""A deployment as it is simulated: the likely and the safe pool, and three speeds.

Pool and settings are the answer of the same question that ``kvplan size`` asks, so that one deployment has
one count of blocks; one of them is vLLM's null block and not used.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.acceptance import WAYS, Acceptance, acceptance_of
from kvplan.engines.base import Choice, parse_version
from kvplan.engines.budget import answered
from kvplan.engines.folders import having, part_of, title_of
from kvplan.engines.scheduling import CapacityFirst, Scheduling
from kvplan.engines.traits import traits_of
from kvplan.errors import EXIT_NO, KvplanError, RefusedError
from kvplan.files.speed import speed_inputs
from kvplan.model import Model
from kvplan.planning.speed import deployment_of, speed_profile
from kvplan.planning.speed.estimate import spread
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.record import record, replace
from kvplan.results import SizeResult
from kvplan.settings import Settings, gpus_per_replica, pools_per_replica
from kvplan.simulation.drafting import draft_time
from kvplan.simulation.fleet.disaggregated import AskedSplit, Split, split_of
from kvplan.simulation.fleet.ranks import Ranks
from kvplan.simulation.offload_tiers import AskedOffload, offload_of
from kvplan.simulation.schedulers import Facts, engine_of, known_releases
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.draft_clock import DraftedClock, DraftTime
from kvplan.simulation.time.speed_clock import SpeedClock
from kvplan.simulation.time.timeline import AnyEngine
from kvplan.simulation.vllm.releases import Rules
from kvplan.units import SECOND

LIKELY, SAFE = "likely", "safe"
FAST, SLOW = "fast", "slow"
ESTIMATE = "kvplan's speed estimate"


@record(eq=False)
class Speeds:
    """A step time and the ends of its interval. source: where it comes from; frontends: what the server adds
    to each request before its first token, in ns. The estimate's interval is one of whole times to first
    token, so that part has it too."""

    clocks: tuple[tuple[str, Clock], ...]
    source: str
    frontends: tuple[tuple[str, int], ...] = ()

    def clock(self, name: str) -> Clock:
        return dict(self.clocks).get(name, self.clocks[0][1])

    def frontend(self, name: str) -> int:
        return dict(self.frontends).get(name, 0)


@record(eq=False)
class Served:
    """engines: of each pool (`LIKELY`, `SAFE`) what the simulated scheduler is set to; pools: schedulers of
    one replica (data-parallel ranks have one each); gpus: of one replica; notes: what was assumed; offload:
    tiers as they were asked for; split: of replicas that prefill and that decode; ranks: of a replica with
    several schedulers whose server deals requests to them (None: a router deals to each)."""

    model: Model
    choice: Choice
    settings: Settings
    result: SizeResult
    engines: tuple[tuple[str, AnyEngine], ...]
    speeds: Speeds
    pools: int = 1
    gpus: int = 1
    notes: tuple[str, ...] = ()
    offload: AskedOffload | None = None
    split: Split | None = None
    ranks: Ranks | None = None

    def engine(self, pool: str) -> AnyEngine:
        return dict(self.engines).get(pool, self.engines[0][1])

    @property
    def cases(self) -> tuple[tuple[str, str], ...]:
        """(pool, speed) of every run that an interval is made of; the likely one first."""
        pools = [name for name, _ in self.engines]
        speeds = [name for name, _ in self.speeds.clocks]
        every = [(pool, speed) for pool in pools for speed in speeds]
        return tuple(sorted(every, key=lambda case: case != (LIKELY, LIKELY)))


def serve(
    model: Model, choice: Choice, settings: Settings, *, speeds: Speeds | None = None,
    pool: str | None = None, gpus: int | None = None, pools: int | None = None,
    offload: AskedOffload | None = None, split: AskedSplit | None = None, acceptance: str | None = None,
) -> Served:  # fmt: skip
    """The deployment to simulate. speeds: a step time of the user's own; pool: only the likely or only the
    safe one; offload: tiers outside the GPU; split: replicas that prefill and replicas that decode;
    acceptance: how many drafted tokens are right (`kvplan.acceptance`).

    Raises KvplanError: no-acceptance, bad-acceptance, not-simulated, no-pool, and what sizes and speeds
    raise.
    """
    name = choice.engine.name
    part, title = part_of(name, "scheduling"), title_of(name)
    if part is None:
        known = ", ".join(having("scheduling"))
        raise RefusedError(
            "not-simulated",
            f"the scheduler of {title} is not known here, step by step",
            help=(
                f"--engine {known}: the same model, GPU and trace under it",
                "--hit-rates 10k --evict lru,radix: what prefix caches have of the trace, untimed",
            ),
        )
    asked = replace(settings, tokens=None, requests=1)
    notes: list[str] = []
    result = _sized(model, replace(choice, pool=LIKELY), asked, required=True)
    assert result is not None
    facts: Facts = part.scheduling(model, asked, choice.version)
    accepted = accepted_of(facts, acceptance, notes)
    unasked = traits_of(name).scheduler_unasked
    if unasked is not None:
        notes.append(f"warning[scheduler-unasked]: experimental: {title}'s scheduler is {unasked}")
    release = release_of(facts.release, known_releases(facts), title, notes)
    if speeds is None:
        speeds = speeds_of(model, choice, asked, facts)
    results = _results(model, choice, asked, result, pool, notes)
    engines = [(which, engine_of(facts, one, release, accepted)) for which, one in results.items()]
    if offload is not None:
        said: list[str] = []
        clock = speeds.clock(LIKELY)
        engines = [
            (
                which,
                one.with_offload(offload_of(offload, results[which], settings, clock, one.block, said)),
            )
            for which, one in engines
        ]
        notes += dict.fromkeys(said)
    notes += [f"warning: {choice.warning}"] if choice.warning else []
    parted = None if split is None else split_of(split, result, settings, notes)
    count = pools_per_replica(settings) if pools is None else pools
    ranks = _ranks_of(facts, count, parted, notes)
    return Served(
        model, choice, settings, result, tuple(engines), speeds, count,
        gpus_per_replica(settings) if gpus is None else gpus, tuple(notes), offload, parted, ranks,
    )  # fmt: skip


def _ranks_of(facts: Facts, count: int, split: Split | None, notes: list[str]) -> Ranks | None:
    """How a server of several schedulers deals requests to them and steps; None where it has one, or is not
    known."""
    said = None if isinstance(facts, CapacityFirst) else facts.ranks
    if said is None or count == 1:
        return None
    steps = ["they step together, experts evenly loaded"] if said.lockstep else []
    deals = f"the server deals requests to them {said.dealt}"
    if split is not None:
        deals = "requests are dealt over those of all replicas alike"
    notes.append(f"{count} data-parallel ranks: {'; '.join([*steps, deals])}")
    return Ranks(count, said.lockstep, said.dealt)


def accepted_of(facts: Facts, said: str | None, notes: list[str]) -> Acceptance | None:
    """How many of its drafted tokens are right; None where it drafts none."""
    drafts = facts.drafts if isinstance(facts, Scheduling) else None
    if drafts is None:
        if said is not None:
            raise KvplanError(
                "bad-usage", f"an acceptance of {said} is of drafted tokens, and none are drafted",
                help="--speculative mtp:1, or leave out --acceptance",
            )  # fmt: skip
        return None
    if said is None:
        raise RefusedError(
            "no-acceptance", f"how many drafted tokens are right is not known ({drafts.tokens} a step)",
            help=(*WAYS, "leave out --speculative: a step makes one token of a request"),
        )  # fmt: skip
    found = acceptance_of(said, drafts.tokens)
    notes.append(
        f"{drafts.tokens} drafted for a request a step, {found.length:.2f} tokens made of it in the mean"
        f" (acceptance {said})"
    )
    if drafts.drops and Rules.of(facts.release).lookahead:
        notes.append(
            "a prefix hit gives up its last block, as under vLLM 0.32; with the hashes of"
            f" {facts.release} it mostly keeps it"
        )
    return found


def _results(
    model: Model, choice: Choice, asked: Settings, likely: SizeResult, pool: str | None, notes: list[str]
) -> dict[str, SizeResult]:
    """The answer of each pool that is simulated; the likely one where no other is known."""
    results = {} if pool == SAFE else {LIKELY: likely}
    if pool != LIKELY and likely.budget is not None:
        safe = _sized(model, replace(choice, pool=SAFE), asked, required=pool == SAFE)
        if safe is not None:
            results[SAFE] = safe
        else:
            notes.append("with the safe pool it would not start: only the likely one is simulated")
    return results or {LIKELY: likely}


def _sized(model: Model, choice: Choice, settings: Settings, *, required: bool) -> SizeResult | None:
    """The answer with a pool. Raises KvplanError(no-pool) where one is required and there is none."""
    result = answered(model, choice, settings)
    if result.refusal is None and result.pool is not None and result.pool.num_blocks > 1:
        return result
    if not required:
        return None
    if result.refusal is not None:
        raise KvplanError(
            "no-pool", f"{title_of(choice.engine.name)} would not start: {result.refusal.message}",
            help=result.refusal.help, exit_code=EXIT_NO,
        )  # fmt: skip
    raise KvplanError(
        "no-pool", "how large the pool is is not known", detail=result.warnings,
        help="name a GPU (--gpu h100), or --kv-cache-memory 40GiB",
    )  # fmt: skip


def release_of(version: str, known: tuple[str, ...], title: str, notes: list[str]) -> str:
    """The release whose scheduler is simulated: a newer one than is known is taken for the newest, with a
    note; an older one is refused when the run is checked."""
    newest = known[-1]
    parts = len(parse_version(newest))
    if parse_version(version)[:parts] > parse_version(newest):
        notes.append(f"the scheduler is that of {title} {newest}: of {version} it was not asked")
        return newest
    return version


def speeds_of(model: Model, choice: Choice, settings: Settings, facts: Facts) -> Speeds:
    """Step times by kvplan's own roofline. Raises KvplanError where the model or GPU cannot be estimated."""
    if settings.gpu is None:
        raise KvplanError(
            "no-step-time", "how long a step takes is not known without a GPU",
            help=("--gpu h100", "--step-time 6ms+25us*tokens+25ns*context"),
        )  # fmt: skip
    inventory, per_token, table = speed_inputs(model, settings.quantization)
    sized = replace(settings, max_num_batched_tokens=facts.step_tokens)
    profile = speed_profile(
        model, settings.gpu, inventory, per_token,
        deployment_of(sized, choice.engine.name, parse_version(choice.version)), table,
    )  # fmt: skip
    if not isinstance(facts, Scheduling) or facts.drafts is None:
        return likely_fast_slow(profile)
    inputs = inventory, per_token, table
    return likely_fast_slow(profile, draft_time(model, settings, profile, inputs, facts.drafts.tokens))


def likely_fast_slow(profile: SpeedProfile, draft: DraftTime | None = None) -> Speeds:
    """A profile's step times and the ends of their interval. draft: of steps that verify drafted tokens."""
    decode, prompt = spread(profile, "decode"), spread(profile, "prefill")
    shares = {LIKELY: (1.0, 1.0), FAST: (decode.low, prompt.low), SLOW: (decode.high, prompt.high)}
    speeds = scaled(profile, shares, ESTIMATE)
    if draft is None:
        return speeds
    clocks = tuple((name, DraftedClock(profile, draft, *both)) for name, both in shares.items())
    return replace(speeds, clocks=clocks)


def scaled(profile: SpeedProfile, shares: Mapping[str, tuple[float, float]], source: str) -> Speeds:
    """A profile's step times. shares: by name what steps of answers alone, and what steps with prompts and
    the server's own time before them, are multiplied with."""
    own = profile.frontend_seconds * SECOND
    return Speeds(
        tuple((name, SpeedClock(profile, *both)) for name, both in shares.items()),
        source,
        tuple((name, round(own * prompt)) for name, (_, prompt) in shares.items()),
    )
