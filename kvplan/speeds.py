"""The seam between planner and speed estimate: what one replica does under so many requests."""

from __future__ import annotations

from kvplan.errors import KvplanError
from kvplan.fitting.speed import speed_inputs
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.planning.ask import Speed, SpeedOf
from kvplan.planning.speed.build import speed_profile
from kvplan.planning.speed.estimate import Load, estimate
from kvplan.planning.speed.figures import Figure
from kvplan.planning.speed.profile import deployment_of
from kvplan.plans.law import Fell
from kvplan.plans.workload import Shape
from kvplan.settings import Settings


def speed_of(engine: str) -> SpeedOf:
    """Estimates under an engine; a model or GPU that cannot be estimated falls, with the reason."""

    def speed(model: Model, gpu: Gpu, settings: Settings, requests: int, shape: Shape) -> Speed | Fell:
        try:
            inventory, per_token, table = speed_inputs(model, settings.quantization)
            served = deployment_of(settings, engine)
            profile = speed_profile(model, gpu, inventory, per_token, served, table)
            load = Load(
                requests * settings.data_parallel_size,
                max(shape.input_tokens, 1),
                max(shape.output_tokens, 1),
            )
            found = estimate(profile, load)
        except KvplanError as error:
            return Fell("no-speed", error.message)
        return Speed(_three(found.ttft), _three(found.tpot), _three(found.tokens_per_second))

    return speed


def _three(figure: Figure) -> tuple[float, float, float]:
    return figure.low, figure.value, figure.high
