"""The dummy sounds of classes that hear: whisper.py, qwen2_audio.py, voxtral.py, ultravox.py …

vllm-project/vllm vllm/model_executor/models/, 0.32 and 0.33. A patch is a position of the encoder: two
columns of a spectrogram of 100 a second, 1,500 in half a minute.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplan.engines.vllm.encoder_profile.dummy_items import Asked, Item, whole
from kvplan.units import ceil_div

HALF_MINUTE = 1500


def _heard(tokens: int, positions: int) -> Item:
    return Item(tokens, positions, tower="audio")


def _whisper(asked: Asked) -> dict[str, Item]:
    positions = whole(asked.config.get("max_source_positions"), HALF_MINUTE)
    return {"audio": _heard(positions, positions)}


def _qwen2_audio(asked: Asked) -> dict[str, Item]:
    """Half a minute: (3,000 − 1) ÷ 2 + 1 columns, and once more (_get_feat_extract_output_lengths)."""
    return {"audio": _heard(750, HALF_MINUTE)}


def _qwen3_asr(asked: Asked) -> dict[str, Item]:
    """Half a minute in windows of a second: 13 tokens each."""
    return {"audio": _heard(390, HALF_MINUTE)}


def _voxtral(asked: Asked) -> dict[str, Item]:
    """As long as the sequence: 375 tokens, four positions each, for every half minute that is started."""
    return {"audio": _heard(asked.length, ceil_div(asked.length, 375) * HALF_MINUTE)}


def _ultravox(asked: Asked) -> dict[str, Item]:
    """_MAX_ENCODER_BATCH_SIZE half minutes, stack_factor positions to a token."""
    stacked = whole(asked.config.get("stack_factor"), 8)
    return {"audio": _heard(16 * ceil_div(HALF_MINUTE, stacked), 16 * HALF_MINUTE)}


def _granite(asked: Asked) -> dict[str, Item]:
    """8,000,000 samples (get_max_audio_len): 50,001 columns of a spectrogram, two to a position; three
    tokens for each window of fifteen (granite_speech.py)."""
    return {"audio": _heard(3 * ceil_div(25_000, 15), 25_000)}


AUDIO: dict[str, Callable[[Asked], dict[str, Item]]] = {
    "whisper": _whisper,
    "qwen2_audio": _qwen2_audio,
    "qwen3_asr": _qwen3_asr,
    "voxtral": _voxtral,
    "ultravox": _ultravox,
    "granite_speech": _granite,
}
