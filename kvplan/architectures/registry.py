"""The parts of a lineage: layers, tensors, vision encoder, encoder, prediction layers, media."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

from kvplan.architectures.blocks.frame import Frame
from kvplan.architectures.blocks.parts import Tensors
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.config.view import ConfigView
from kvplan.model import EncoderInput, Layer
from kvplan.record import Json, record
from kvplan.weights.inventory import Block, Placed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvplan.architectures.media.rule import Rule as MediaRule
    from kvplan.architectures.prediction import Prediction

LayersRule = Callable[[ConfigView], list[Layer]]
"""A config's layers, and what each keeps."""


@record()
class Decoder:
    """A text decoder: what stands around the layers, and the tensors of each layer in order."""

    frame: Frame
    layers: tuple[Tensors, ...]


DecoderRule = Callable[[ConfigView], Decoder]
TowerRule = Callable[[Json, ConfigView], list[Placed]]
"""Lists a wrapper's tensors outside its text decoder, by the wrapper's raw config and the text part's view.
"""
Whole = tuple[Sequence[Placed], tuple[Block, ...]]
WholeRule = Callable[[ConfigView], Whole]
"""A model that is no decoder with things around it (an encoder and a decoder)."""


class BlockRow(Protocol):
    """A description that answers both: what each layer keeps, and (called) which tensors it has."""

    @property
    def layers(self) -> LayersRule: ...

    def __call__(self, view: ConfigView, /) -> Decoder: ...


@record()
class EncoderRule:
    """The input of a type's encoder. ``length``: the config key that fixes the encoder's positions."""

    input: EncoderInput
    length: str | None = None


@record()
class Lineage:
    """Everything that kvplan knows of one model type; None where it has no such part, or nobody knows."""

    reads: CustomType | None = None
    """key names and class defaults of a type that transformers does not know"""
    layers: LayersRule | None = None
    """what each layer keeps"""
    tensors: DecoderRule | None = None
    """a decoder's, or ``whole`` for an encoder and a decoder"""
    whole: WholeRule | None = None
    tower: TowerRule | None = None
    """what a wrapper has beside its text part"""
    encoder: EncoderRule | None = None
    """what is attended to besides"""
    prediction: Prediction | None = None
    """layers of a speculative method"""
    media: MediaRule | None = None
    """how images and audio become tokens"""
    no_cache: str = ""
    """why there is none"""


class Known(TypedDict, total=False):
    """The fields of `Lineage`, as `lineage` takes them."""

    reads: CustomType
    layers: LayersRule
    tensors: DecoderRule
    whole: WholeRule
    tower: TowerRule
    encoder: EncoderRule
    prediction: Prediction
    media: MediaRule
    no_cache: str


LINEAGES: dict[str, Lineage] = {}
"""Model type → what is known of it, of the files of ``lineages/`` that were imported."""


def lineage(*model_types: str, like: str = "", block: BlockRow | None = None, **known: Unpack[Known]) -> None:
    """Say what these model types (transformers' words) have: the fields of ``Lineage``.

    block: layers and tensors from one description (``blocks.plain``); ``layers=`` beside it replaces its own.
    like: a type that these are built like, class defaults and all, where transformers does not know them.
    Raises ValueError for a type of which something was said before.
    """
    if block is not None:
        described: Known = {"layers": block.layers, "tensors": block}
        known = {**described, **known}
    if like:
        known["reads"] = CustomType(f"built like {like}", like=like, inherits=True)
    for model_type in model_types:
        if model_type in LINEAGES:
            raise ValueError(f"two lineages for {model_type}")
        LINEAGES[model_type] = Lineage(**known)
