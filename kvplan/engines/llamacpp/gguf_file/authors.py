"""Builds whose author chooses types besides llama.cpp's mixtures: ``UD-Q4_K_XL``, ``Q4_K_L``.

``Q4_K_L`` and its like (bartowski) are a mixture with token embedding and output in q8_0, as their model
pages say (``llama-quantize --token-embedding-type q8_0 --output-tensor-type q8_0``). Unsloth's ``UD-`` builds
choose a type for each tensor, model by model, by rules that are not public: their size is a share of
llama.cpp's mixture of the same name, between the least and the most of published files
(``data/dynamic_builds.tsv``, made by scripts/gguf_builds.py).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kvplan.engines.llamacpp.gguf_file.ggml_types import ALIASES, MIXTURES, known_mixture
from kvplan.errors import KvplanError
from kvplan.later import regex
from kvplan.record import record

TABLE = Path(__file__).parents[1] / "data" / "dynamic_builds.tsv"
WHOLE = 1000
_ENDS = {
    "q2_k_l": "q2_k", "q3_k_xl": "q3_k_l", "q4_k_l": "q4_k_m", "q5_k_l": "q5_k_m", "q6_k_l": "q6_k",
}  # fmt: skip
"""Builds with embedding and output in q8_0 → the mixture of all else."""
_DYNAMIC = regex(r"ud_.+|i?q\d_\w+_xl", re.ASCII)
_KIND = regex(r"(?:ud_)?(i?q\d|tq\d|mxfp4)", re.ASCII)


@record()
class Build:
    """A build by its name.

    mixture: llama.cpp's, of which the types are taken. ends: the type of token embedding and output, where
    the author sets it. least, likely, most: the file's size in thousandths of such a build's. files: how
    many published ones say so, 0 where the types are known.
    """

    name: str
    mixture: str
    ends: str = ""
    least: int = WHOLE
    likely: int = WHOLE
    most: int = WHOLE
    files: int = 0

    def between(self, amount: int) -> tuple[int, int]:
        """At least and at most, of bytes that are counted at the likely share."""
        return amount * self.least // self.likely, -(-amount * self.most // self.likely)

    @property
    def words(self) -> str:
        """Where the figure comes from."""
        if self.files:
            share = f"{self.least / 10:g} to {self.most / 10:g} % of {self.mixture}"
            return f"{self.name}: its author chooses each type; {share} in {self.files} published files"
        ends = f", embedding and output in {self.ends}" if self.ends else ""
        return f"a {self.mixture} build, each type as llama-quantize chooses it{ends}"


def named_build(word: str) -> Build:
    """The build that a word names, in any case: ``Q4_K_M``, ``UD-Q4_K_XL``, ``Q6_K_L``.

    Raises KvplanError(bad-setting): a mixture that is none; one of whose kind no published file is known.
    """
    name = word.lower().replace("-", "_")
    if name in _ENDS:
        return Build(name, _ENDS[name], "q8_0")
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
    return Build(name, mixture_like(plain), "", least, likely, most, files)


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
