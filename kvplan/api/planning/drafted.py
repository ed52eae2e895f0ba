"""The speed estimate of steps that verify drafted tokens, for the search before a simulation."""

from __future__ import annotations

from kvplan.acceptance import acceptance_of
from kvplan.engines.base import Choice, parse_version
from kvplan.engines.budget.law import Rejection
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.ask import Running, Speed, SpeedOf
from kvplan.planning.speed import deployment_of, speed_profile, step_seconds
from kvplan.planning.speed.profile import SpeedProfile
from kvplan.record import replace
from kvplan.settings import Settings
from kvplan.simulation.drafting import draft_time
from kvplan.simulation.time.draft_clock import DraftedClock


def with_drafts(speed: SpeedOf, choice: Choice, said: str) -> SpeedOf:
    """The estimate where each step drafts: the step of ``speed``, longer by what verifying and drafting add
    to one without prompts, over the tokens that it makes of a request.

    TPOT' = (TPOT + drafted step − plain step) / acceptance length. said: in the words of `kvplan.acceptance`.
    """
    clocks: dict[SpeedProfile, DraftedClock] = {}

    def drafted(model: Model, gpu: Gpu, settings: Settings, running: Running) -> Speed | Rejection:
        found = speed(model, gpu, settings, running)
        if isinstance(found, Rejection):
            return found
        tokens, shape = settings.num_speculative_tokens, running.shape
        inputs = speed_inputs(model, settings.quantization)
        asked = replace(settings, gpu=gpu)
        profile = speed_profile(
            model, gpu, inputs[0], inputs[1],
            deployment_of(asked, choice.engine.name, parse_version(choice.version)), inputs[2],
        )  # fmt: skip
        if profile not in clocks:
            try:
                clocks[profile] = DraftedClock(profile, draft_time(model, asked, profile, inputs, tokens))
            except KvplanError as error:
                return Rejection("no-speed", error.message)
        mean = shape.input_tokens + shape.output_tokens // 2
        plain = step_seconds(profile, running.requests, ((mean, 1.0),))
        more = clocks[profile].answers(running.requests, mean) - plain
        return _each(found, more, acceptance_of(said, tokens).length, running, settings.data_parallel_size)

    return drafted


def _each(found: Speed, more: float, length: float, running: Running, ranks: int) -> Speed:
    """The estimate with steps ``more`` seconds longer that make ``length`` tokens of a request."""
    likely, rate = found.tpot[1], found.tokens_per_second[1]
    tpot = (likely + more) / length
    answer = max(1, running.shape.output_tokens)
    tokens = running.requests * ranks * answer
    made = tokens / (tokens / rate + (answer - 1) * (tpot - likely))
    low, _, high = (one * tpot / likely for one in found.tpot)
    slow, _, fast = (one * made / rate for one in found.tokens_per_second)
    return Speed(found.ttft, (low, tpot, high), (slow, made, fast))
