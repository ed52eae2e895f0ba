"""Builds whose author chooses types besides llama.cpp's mixtures: ``UD-Q4_K_XL``, ``Q4_K_L``.

``Q4_K_L`` (bartowski) is a mixture with token embedding and output in q8_0. Unsloth's ``UD-`` builds choose
a type for each tensor by rules that are not public: their size is a share of llama.cpp's mixture, between
the least and the most of published files (``data/dynamic_builds.tsv``, by scripts/gguf_builds.py). Its
plain ones are llama-quantize's, but for those whose recipes follow from the bytes of published files.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kvplan.engines.llamacpp.gguf_file.ggml_types import ALIASES, MIXTURES, known_mixture
from kvplan.engines.llamacpp.gguf_file.quantise import Told
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.model import Model
from kvplan.record import record, replace

TABLE = Path(__file__).parents[1] / "data" / "dynamic_builds.tsv"
WHOLE = 1000
_ENDS = {
    "q2_k_l": "q2_k", "q3_k_xl": "q3_k_l", "q4_k_l": "q4_k_m", "q5_k_l": "q5_k_m", "q6_k_l": "q6_k",
}  # fmt: skip
"""Builds with embedding and output in q8_0 → the mixture of all else."""
_ENDS_TYPE = "q8_0"
_UNSLOTH = "unsloth"
_UP = {"q2_k": "q3_k", "q3_k": "q4_k", "q4_k": "q5_k", "q5_k": "q6_k", "q6_k": "q8_0", "q8_0": "q8_0"}
"""A type → the next one; of q4_k, q5_k and q6_k files are known."""
_DYNAMIC = regex(r"ud_.+|i?q\d_\w+_xl", re.ASCII)
_KIND = regex(r"(?:ud_)?(i?q\d|tq\d|mxfp4)", re.ASCII)


@record()
class Build:
    """A build by its name.

    mixture: llama.cpp's, of which the types are taken. told: those that the author sets. least, likely, most:
    the file's size in thousandths of such a build's. files: how many published ones say so, 0 where the types
    are known. author: whose recipe it is.
    """

    name: str
    mixture: str
    told: Told = ()
    least: int = WHOLE
    likely: int = WHOLE
    most: int = WHOLE
    files: int = 0
    author: str = ""

    def between(self, amount: int) -> tuple[int, int]:
        """At least and at most, of bytes that are counted at the likely share."""
        return amount * self.least // self.likely, -(-amount * self.most // self.likely)

    @property
    def words(self) -> str:
        """Where the figure comes from."""
        if self.files:
            share = f"{self.least / 10:g} to {self.most / 10:g} % of {self.mixture}"
            return f"{self.name}: its author chooses each type; {share} in {self.files} published files"
        told = f", embedding and output in {_ENDS_TYPE}" if self.told else ""
        if self.author:
            told = f" but for those that {self.author} sets, as its published sizes tell"
        return f"a {self.mixture} build, each type as llama-quantize chooses it{told}"


def named_build(word: str) -> Build:
    """The build that a word names, in any case: ``Q4_K_M``, ``UD-Q4_K_XL``, ``Q6_K_L``.

    Raises KvplanError(bad-setting): a mixture that is none; one of whose kind no published file is known.
    """
    name = word.lower().replace("-", "_")
    if name in _ENDS:
        return Build(name, _ENDS[name], (("token_embd.weight", _ENDS_TYPE), ("output.weight", _ENDS_TYPE)))
    if not _DYNAMIC.fullmatch(name):
        mixture = known_mixture(word)
        return Build(mixture, mixture)
    plain = name if name.startswith("ud_") else f"ud_{name}"
    found = _bands().get(plain) or _bands().get(kind_of(plain))
    if found is None:
        raise KvplanError(
            "bad-setting",
            f"{word} is no mixture of llama.cpp: its author chooses a type for each tensor, model by model",
            help=(
                "give the .gguf file: its header lists every tensor",
                "--weights 15GiB: its size",
            ),
        )
    least, likely, most, files = found
    return Build(name, mixture_like(plain), (), least, likely, most, files)


def build_of(model: Model, word: str) -> Build:
    """The build of a model that a word names, as who publishes the model's files makes it."""
    build = named_build(word)
    up = _UP.get(MIXTURES[build.mixture])
    if build.told or build.files or up is None or not model.id.lower().startswith(f"{_UNSLOTH}/"):
        return build
    told = _unsloth(model, MIXTURES[build.mixture], up)
    return replace(build, told=told, author=_UNSLOTH) if told else build


def _unsloth(model: Model, usual: str, up: str) -> Told:
    """The types that unsloth's plain builds have besides the mixture's.

    Gemma 4: a tied embedding in the mixture's own type, that of every layer in the next one, the projections
    around it in float32. Qwen3.5: ssm_out, alpha and beta in the next type; Qwen3.6 and 3.8: alpha
    and beta in float32."""
    if model.model_type.startswith("gemma4"):
        own = (("token_embd.weight", usual), ("per_layer_token_embd.weight", up))
        return (*own, (".inp_gate.weight", "f32"), (".proj.weight", "f32"))
    if model.model_type == "qwen3_5_text":
        small = up if "qwen3.5" in model.id.lower() else "f32"
        return ((".ssm_out.weight", up), (".ssm_alpha.weight", small), (".ssm_beta.weight", small))
    return ()


def mixture_like(build: str) -> str:
    """llama.cpp's mixture with which an author's build is compared.

    >>> [mixture_like(build) for build in ("ud_q4_k_xl", "ud_iq2_xxs", "ud_q8_k_xl", "ud_q6_k_l")]
    ['q4_k_m', 'iq2_xxs', 'q8_0', 'q6_k']
    """
    name = build.removeprefix("ud_")
    while name and name not in MIXTURES and name not in ALIASES:
        name = name.rpartition("_")[0]
    return ALIASES.get(name, name) if name else "q8_0" if "q8" in build else "iq1_s"


def kind_of(build: str) -> str:
    """The kind of builds that share a band: the type that most tensors have.

    >>> [kind_of(build) for build in ("ud_q4_k_xl", "ud_iq2_xxs", "ud_mxfp4_moe")]
    ['q4', 'iq2', 'mxfp4']
    """
    found = _KIND.match(build)
    return found[1] if found else build


@cache
def _bands() -> dict[str, tuple[int, int, int, int]]:
    _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    found = {}
    for line in lines:
        name, least, likely, most, files = line.split("\t")
        found[name] = (int(least), int(likely), int(most), int(files))
    return found
