"""The tensors of a layout on a torch device: ``with allocate(layout, "cuda:0") as cache: …``."""

from __future__ import annotations

import contextlib
from types import TracebackType

from kvplan.engines.tensors import Layout, View
from kvplan.proof.tensor import Tensor


class Cache:
    """Raw allocations and the byte views on them. Everything is released on exit, also after an error."""

    def __init__(self, layout: Layout, device: str) -> None:
        self.layout, self.device = layout, device
        self.raw: list[Tensor] = []
        self._rooms: dict[str, Tensor] = {}

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def bytes(self) -> int:
        """Bytes of all tensors as torch counts them (untyped storage)."""
        return sum(int(tensor.untyped_storage().nbytes()) for tensor in self.raw)

    def differences(self) -> tuple[str, ...]:
        """Differences of the tensors from the layout: shape, dtype or bytes, views that end beyond."""
        import torch

        found = []
        for allocation, tensor in zip(self.layout.allocations, self.raw, strict=True):
            size = int(tensor.untyped_storage().nbytes())
            packed = not hasattr(torch, allocation.dtype)
            dtype = str(tensor.dtype).removeprefix("torch.")
            if size != allocation.bytes:
                found.append(f"{allocation.name}: {size:,} bytes, not {allocation.bytes:,}")
            elif tuple(tensor.shape) != allocation.shape and not packed:
                found.append(f"{allocation.name}: shape {tuple(tensor.shape)}, not {allocation.shape}")
            elif dtype != allocation.dtype and not packed:
                found.append(f"{allocation.name}: {dtype}, not {allocation.dtype}")
        for view in self.layout.views:
            end = self.layout.allocations[view.allocation].bytes
            if view.end > end:
                found.append(f"{view.name} ends at byte {view.end:,} of {end:,}")
        return tuple(found)

    def bytes_of(self, view: View) -> Tensor:
        """A uint8 tensor [blocks, heads, states, content] on the view's allocation."""
        import torch

        flat = self.raw[view.allocation].reshape(-1).view(torch.uint8)
        return flat.as_strided(view.shape, view.strides, view.offset)

    def words(self, allocation: int, width: int) -> Tensor:
        """An allocation as flat integers of ``width`` bytes; what is left of a word is left out."""
        import torch

        flat = self.raw[allocation].reshape(-1).view(torch.uint8)
        dtype = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[width]
        return flat[: flat.numel() // width * width].view(dtype)

    def room(self, name: str, size: int) -> Tensor:
        """``size`` bytes beside the cache, kept from one call to the next: fresh memory costs more to get
        than to fill. What the room of this name held is lost."""
        import torch

        if name not in self._rooms or self._rooms[name].numel() < size:
            self._rooms.pop(name, None)
            self._rooms[name] = torch.empty(size, dtype=torch.uint8, device=self.device)
        return self._rooms[name][:size]

    def release(self) -> None:
        """Give all memory back (and empty torch's cache on a GPU). Never raises: after a fault of the device
        every call fails, and the first error is the one that counts."""
        self.raw.clear()
        self._rooms.clear()
        if self.device.startswith("cuda"):
            import torch

            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()


def allocate(layout: Layout, device: str) -> Cache:
    """Allocate every tensor as the engine does: its shape, its dtype, zeroed where the engine zeroes.

    Raises what torch raises (torch.OutOfMemoryError), after releasing what was there.
    """
    import torch

    cache = Cache(layout, device)
    try:
        for allocation in layout.allocations:
            dtype = getattr(torch, allocation.dtype, None)
            if dtype is None:  # a packed block type
                cache.raw.append(torch.zeros(allocation.bytes, dtype=torch.uint8, device=device))
            else:
                cache.raw.append(torch.zeros(allocation.shape, dtype=dtype, device=device))
    except BaseException:
        cache.release()
        raise
    return cache
