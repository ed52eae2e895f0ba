"""How an engine's flags are told, as data: each engine's are in its folder (``flags.py``).

In there: NAMES, flag → setting; SHORT, other spellings; KEPT, flags that change no memory; HOST_TIER.
"""

from __future__ import annotations

from kvplan.record import field_names, record
from kvplan.settings import NO_FLAG, Settings

_OTHERWISE = ("speculative_method", "kv_cache_memory")
"""Settings that have a flag of another name."""
COMMON = [name for name in field_names(Settings) if name not in (*NO_FLAG, *_OTHERWISE)]
PLAIN = ("dtype", "kv_cache_dtype", "quantization")


@record()
class HostTier:
    """The flag that gives an engine a cache tier in host memory: so many units of bytes for one GPU, or for
    a whole engine. needs: flags that go with it."""

    flag: str
    unit_bytes: int
    each_gpu: bool

    needs: tuple[tuple[str, object], ...] = ()

    def flags(self, amount: int, gpus: int, engines: int) -> tuple[tuple[tuple[str, object], ...], int]:
        """(flags that give the GPUs of a plan so many bytes at most, the bytes that they come to)."""
        ways = gpus if self.each_gpu else engines
        units = amount // ways // self.unit_bytes
        return ((*self.needs, (self.flag, units)) if units else ()), units * self.unit_bytes * ways


WITHOUT_FOLDER = {
    **{name: name for name in PLAIN},
    **{name: name for name in COMMON if name.endswith("_parallel_size")},
}
"""Flag → setting of an engine without a folder."""
