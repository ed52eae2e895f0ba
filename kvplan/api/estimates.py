"""Times of an engine under a load, for who plans and who checks."""

from __future__ import annotations

from kvplan.engines.budget.law import Rejection
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.files.speed import speed_inputs
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.ask import Running, Speed, SpeedOf
from kvplan.planning.speed import speed_profile
from kvplan.planning.speed.estimate import Load, estimate
from kvplan.planning.speed.figures import Figure
from kvplan.planning.speed.profile import deployment_of
from kvplan.settings import Settings

_SWITCHES = ("enable_dp_attention", "enable_attention_dp")
_GROUPS = "attn_dp_size"


def speed_of(engine: str, release: tuple[int, ...] = ()) -> SpeedOf | None:
    """Estimates under an engine's release; what cannot be estimated is rejected, with the reason. None of an
    engine whose times under a load are not estimated."""
    if not traits_of(engine).timed:
        return None

    def speed(model: Model, gpu: Gpu, settings: Settings, running: Running) -> Speed | Rejection:
        shape, node = running.shape, running.node_bytes_per_second
        own = settings.own
        if any(own.get(name) for name in _SWITCHES) or own.get(_GROUPS, 1) != 1:
            return Rejection("no-speed", "data-parallel attention inside tensor parallelism is not estimated")
        try:
            inventory, per_token, table = speed_inputs(model, settings.quantization)
            served = deployment_of(settings, engine, release, network=node)
            profile = speed_profile(model, gpu, inventory, per_token, served, table)
            load = Load(
                running.requests * settings.data_parallel_size,
                max(shape.input_tokens, 1),
                max(shape.output_tokens, 1),
                running.cached,
            )
            found = estimate(profile, load)
        except KvplanError as error:
            return Rejection("no-speed", error.message)
        return Speed(_three(found.ttft), _three(found.tpot), _three(found.tokens_per_second))

    return speed


def _three(figure: Figure) -> tuple[float, float, float]:
    return figure.low, figure.value, figure.high
