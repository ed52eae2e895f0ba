"""Caches outside the GPU of a simulated engine: what is stored, loaded and evicted, and when."""

from kvplan.simulation.vllm.offload.settings import Offload, Tier

__all__ = ["Offload", "Tier"]
