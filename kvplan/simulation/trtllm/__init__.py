"""TensorRT-LLM's scheduler in virtual time, as its source says (1.2): read, not asked."""

from kvplan.simulation.trtllm.settings import TrtllmEngine

__all__ = ["TrtllmEngine"]
