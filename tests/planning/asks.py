"""Small asks for tests: any model, engine and GPUs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from kvplan.api import load_model
from kvplan.api.planning import variants_of
from kvplan.engines.budget import choose
from kvplan.engines.budget.law import compiled_laws
from kvplan.gpu import Gpu
from kvplan.planning.ask import Ask
from kvplan.planning.asked_law import AskedCapacityModels
from kvplan.plans.fleet import Offer
from kvplan.plans.workload import Shape
from kvplan.settings import Settings
from kvplan.units import GIB

CAPABILITIES = ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


def a_gpu(memory_gib: int, capability: tuple[int, int] = (9, 0), *, slug: str = "", node: int = 8) -> Gpu:
    """A GPU that is in no file."""
    name = slug or f"test-{memory_gib}g-{capability[0]}{capability[1]}"
    return Gpu(
        slug=name,
        name=name,
        vendor="nvidia",
        arch="test",
        memory_marketing=f"{memory_gib} GB",
        memory_total_bytes=memory_gib * GIB,
        memory_nvml_bytes=None,
        bandwidth_bytes_per_second=10**12,
        compute_capability=capability,
        gpus_per_node=node,
    )


def an_ask(
    model: str, *gpus: Gpu | Offer, engine: str = "vllm", tokens: int = 4096, base: Settings | None = None,
    compiled: bool = True, **changes: Any,
) -> Ask:  # fmt: skip
    """An ask with one shape of request unless ``shapes`` says otherwise."""
    choice, settings = choose(engine), base or Settings()
    shapes = changes.pop("shapes", (Shape(tokens - tokens // 8, tokens // 8),))
    lengths = changes.pop("lengths", (max(shape.tokens for shape in shapes),))
    laws = compiled_laws(choice, settings) if compiled else None
    offers = tuple(gpu if isinstance(gpu, Offer) else Offer(gpu) for gpu in gpus)
    return Ask(
        variants=changes.pop("variants", None) or variants_of(load_model(model), settings),
        choice=choice,
        offers=offers,
        shapes=shapes,
        lengths=lengths,
        laws=laws or AskedCapacityModels(),
        base=settings,
        **changes,
    )


def priced(gpu: Gpu, cents: int | None, available: int | None = None) -> Offer:
    price = None if cents is None else Fraction(cents, 100)
    return Offer(gpu, price_per_gpu_hour=price, available=available)


@st.composite
def catalogues(draw: st.DrawFn, *, most: int = 5) -> list[Offer]:
    """GPUs of any size, some of them priced or counted, some offered in two places."""
    gpus = draw(
        st.lists(
            st.builds(
                a_gpu,
                st.integers(4, 200),
                st.sampled_from(CAPABILITIES),
                node=st.sampled_from((1, 2, 8)),
            ),
            min_size=1,
            max_size=most,
        )
    )
    prices, counts = st.one_of(st.none(), st.integers(1, 900)), st.one_of(st.none(), st.integers(0, 9))
    return [
        replace(priced(gpu, draw(prices), draw(counts)), where=draw(st.sampled_from(("", "", "east"))))
        for gpu in gpus
    ]


def a_shape() -> st.SearchStrategy[Shape]:
    return st.builds(Shape, st.integers(1, 3000), st.integers(0, 900), st.integers(1, 5))


__all__ = ["CAPABILITIES", "a_gpu", "a_shape", "an_ask", "catalogues", "priced"]
