"""SGLang's scheduler in virtual time (sgl-project/sglang 0.5.23)."""

from kvplan.simulation.sglang.settings import SglangEngine

__all__ = ["SglangEngine"]
