"""SGLang's scheduler in virtual time (sgl-project/sglang 0.5.23), as `kvplan.simulate` has vLLM's."""

from kvplan.simulate.sglang.settings import SglangEngine

__all__ = ["SglangEngine"]
