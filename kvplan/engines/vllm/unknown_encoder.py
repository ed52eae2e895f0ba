"""What the profile run of an encoder takes at most whose rule is not known.

vllm-project/vllm vllm/multimodal/encoder_budget.py, 0.33: items of one modality are run, as many as
max_num_batched_tokens holds, one at least; a video or a sound may be as long as the sequence
(``get_num_frames_with_most_features``), an image is not. Bytes of a token are those of the encoders that are
known, rounded up; tests/budget/test_unknown_encoders.py holds the bound against each of them.
"""

from __future__ import annotations

from pathlib import Path

from kvplan.units import GIB, MIB

_LEAST = 5 * GIB
_OF_A_BATCH = MIB
"""Of a token of the batch: Step-3.7's crops take 1.07 MB, Gemma 3n's images 0.75."""
_OF_A_LENGTH = 768 * 1024
"""Of a token of the sequence: Molmo2's frames take 0.71 MB, Ovis2.5's 0.53, all other videos up to 0.31."""
FILE = Path(__file__).parent / "data" / "images_alone.tsv"
IMAGES_ALONE = frozenset(FILE.read_text(encoding="utf-8").split()[1:])
"""Classes without a rule that take no video and no sound (``get_supported_mm_limits``, 0.32);
data/images_alone.tsv."""


def unknown_most(name: str, *, tokens: int, length: int) -> int:
    """The most bytes in bfloat16. tokens, length: max_num_batched_tokens and max_model_len."""
    most = max(_LEAST, tokens * _OF_A_BATCH)
    return most if name in IMAGES_ALONE else max(most, length * _OF_A_LENGTH)
