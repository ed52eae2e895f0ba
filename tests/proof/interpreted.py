"""vLLM's own Triton kernels over a small pool in host memory, under Triton's interpreter: JSON on stdout.

A process of its own (test_engine_kernels): the interpreter must be chosen before anything imports Triton, and
vLLM, installed for the CPU, must take it for a GPU's. float16: the interpreter's products of bfloat16 and its
casts to fp8 are not those of a GPU.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def prepare() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.backends

    triton.backends.backends["cpu"] = SimpleNamespace(
        driver=SimpleNamespace(is_active=lambda: False), compiler=None
    )
    import torch

    torch.set_num_threads(1)
    torch.cuda.get_device_capability = lambda *_: (9, 0)


def put(module: ModuleType, name: str, what: Any) -> None:
    setattr(module, name, what)


def spoil(how: str) -> None:
    """One fault of what kvplan gives to the kernels, or of what they do."""
    from kvplan.proof.validate import engine_kernels

    if how == "pages":  # keys and values exchanged
        pages = engine_kernels.pages

        def exchanged(cache: Any, place: Any) -> Any:
            view, part = place
            other = next((one for one in view.components if one.name != part.name), part)
            return pages(cache, (view, other))

        put(engine_kernels, "pages", exchanged)
    if how == "table":  # a request's last block is taken for the one before it
        table_of = engine_kernels.table_of

        def shifted(probe: Any, request: Any) -> Any:
            table = table_of(probe, request)
            table[:, -1] = table[:, -2]
            return table

        put(engine_kernels, "table_of", shifted)
    if how == "stray":  # a write beyond the request's slots
        write = engine_kernels._stored

        def stored(probe: Any, place: Any) -> Any:
            probe.cache.raw[-1].reshape(-1)[-1] = 1
            return write(probe, place)

        put(engine_kernels, "_stored", stored)


def main(words: list[str]) -> None:
    prepare()
    from kvplan.proof.validate import attention
    from kvplan.proof.validate.engine_kernels import attend_with_engine
    from tests.proof.test_attention import answers, layout_of_kind

    attention.MOST_QUERIES = 2
    how, engine, *kinds = words
    spoil(how)
    for kind in kinds:
        for one in answers(layout_of_kind(kind, engine, "float16", tokens=130), attend_with_engine):
            print(json.dumps(one.model_dump() | {"ok": one.ok}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
