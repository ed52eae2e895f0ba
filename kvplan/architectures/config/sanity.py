"""What no model can be, and what a config leaves to a class: said before anything is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.architectures.config.plain import HEADS, KV_HEADS, LAYERS
from kvplan.architectures.config.text_part import TextPart
from kvplan.architectures.lineages import lineage_of
from kvplan.errors import KvplanError
from kvplan.model import Layer

_DEFAULT, _OWN_HEADS = "(default of ", "every head has its own"


def check_sizes(part: TextPart, layers: Sequence[Layer]) -> None:
    """Raises KvplanError(bad-config) for a model without layers or vocabulary, and for query heads that
    are no multiple of the KV heads they share: no class builds these."""
    view = part.view
    if not layers:
        _, origin = view.find(*LAYERS)
        raise KvplanError("bad-config", f"{origin} is 0", help="a model has at least one layer")
    vocab, origin = view.find("vocab_size", "padded_vocab_size")
    if vocab == 0 and not isinstance(vocab, bool):
        raise KvplanError("bad-config", f"{origin} is 0", help="a model has at least one token")
    heads, heads_key = view.find(*HEADS)
    shared, shared_key = view.find(*KV_HEADS)
    if type(heads) is not int or type(shared) is not int or heads < 1 or shared < 1:
        return
    read = {value for layer in layers for one in layer.parts if (value := getattr(one, "num_kv_heads", None))}
    if shared in read and heads % shared:
        ways = [str(number) for number in range(1, min(heads, 1 << 16) + 1) if heads % number == 0]
        raise KvplanError(
            "bad-config",
            f"{heads_key} {heads} is no multiple of {shared_key} {shared}: query heads cannot share them",
            help=f"KV heads that {heads} query heads can share: {', '.join(ways[-8:])}",
        )


def assumed(part: TextPart, count: int, keys: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Not read in the file: the number of layers, and every size of a type with code of its own, which
    nobody holds beside the file. count: layers; keys: where each parameter came from, by family."""
    found: list[str] = []
    value, origin = part.view.find(*LAYERS)
    if _DEFAULT in origin and value == count:
        found.append(_words(origin, value))
    if lineage_of(part.model_type).reads is not None:
        for family in keys.values():
            for name, origin in family.items():
                if _OWN_HEADS in origin:
                    found.append(
                        f"{part.model_type}: the config states no KV heads; {_OWN_HEADS} was assumed"
                    )
                elif _DEFAULT in origin:
                    found.append(_words(origin, name))
    return tuple(dict.fromkeys(found))


def _words(origin: str, value: object) -> str:
    key, _, owner = origin.partition(f" {_DEFAULT}")
    return f"the config does not state {key}: {value}, the default of {owner.rstrip(')')}, was taken"
