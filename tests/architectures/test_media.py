"""Tokens of images, video and audio: recorded counts, how they join the request, and refusals.

The counts were taken from transformers 5.23's processors (test_media_processors.py asks them again).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.api import load_model
from kvplan.architectures.lineages import lineages
from kvplan.architectures.media.asked import Media
from kvplan.architectures.media.counting import COUNTS
from kvplan.architectures.media.request import media_tokens
from kvplan.errors import KvplanError

RECORDED = (
    ("qwen2.5-vl-7b", {"images": 1, "image_size": (1280, 720)}, 1196),
    ("qwen2.5-vl-7b", {"images": 2, "image_size": (4000, 3000)}, 2 * 15301),
    ("qwen2.5-vl-7b", {"video_frames": 31, "image_size": (640, 480)}, 16 * 391),
    ("qwen3-vl-2b", {"images": 1, "image_size": (1280, 720)}, 880),
    ("qwen3-vl-2b", {"images": 1, "image_size": (100, 100)}, 64),
    ("qwen3.5-27b", {"images": 1, "image_size": (1920, 1080)}, 2040),
    ("glm-4.5v", {"images": 1, "image_size": (1280, 720)}, 1196),
    ("gemma-3-12b", {"images": 5}, 5 * 256),
    ("gemma-4-26b-a4b", {"images": 1, "image_size": (1280, 720)}, 264),
    ("pixtral-12b", {"images": 1, "image_size": (1280, 720)}, 2340),
    ("mistral-small-3.2-24b", {"images": 1, "image_size": (1280, 720)}, 1222),
    ("llama-4-scout", {"images": 1, "image_size": (1280, 720)}, 1887),
)


def tokens_of(model: str, media: dict[str, Any]) -> int:
    return media_tokens(load_model(model), Media(**media)).total


@pytest.mark.parametrize(("model", "media", "tokens"), RECORDED)
def test_recorded(model: str, media: dict[str, Any], tokens: int) -> None:
    assert tokens_of(model, media) == tokens


def test_the_request_is_text_and_media() -> None:
    text = kvplan.size("qwen2.5-vl-7b", tokens=2048 + 3 * 1196)
    both = kvplan.size("qwen2.5-vl-7b", tokens="2k", images=3, image_size="1280x720")
    assert both.request.tokens == text.request.tokens == 5636
    assert both.per_gpu == text.per_gpu
    assert (both.settings["image_tokens"], both.settings["text_tokens"]) == (3588, 2048)
    assert "image_tokens" not in text.settings


def test_without_tokens_the_request_is_as_long_as_ever() -> None:
    assert kvplan.size("gemma-3-12b", images=4).request.tokens == kvplan.size("gemma-3-12b").request.tokens
    with pytest.raises(KvplanError, match="at most"):
        kvplan.size("gemma-3-12b", images=4000)


def test_cross_attention_reads_them() -> None:
    heard = kvplan.size("whisper-tiny", audio_seconds=12)
    assert (heard.request.encoder_tokens, heard.settings["audio_seconds"]) == (1500, 12.0)
    with pytest.raises(KvplanError, match="30 s"):
        kvplan.size("whisper-tiny", audio_seconds=31)
    seen = kvplan.size("llama-3.2-90b-vision", engine="transformers", tokens=100, images=2)
    assert seen.request.encoder_tokens == 2 * 4 * (40 * 40 + 1)
    assert seen.request.tokens == 100


def test_audio() -> None:
    model = load_model({**_text("voxtral"), "audio_config": {}})
    assert media_tokens(model, Media(audio_seconds=Fraction(31))).total == 750
    model = load_model({**_text("qwen2_audio"), "audio_config": {}})
    assert media_tokens(model, Media(audio_seconds=Fraction(30))).total == 750


def _text(kind: str) -> dict[str, Any]:
    llama = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
    }
    return {"model_type": kind, "text_config": llama}


@pytest.mark.parametrize(
    ("model", "media", "words"),
    [
        ("llama-3.1-8b", {"images": 1}, "it takes text only"),
        ("kimi-k2.5", {"images": 1, "image_size": (10, 10)}, "its rule is not known"),
        ("gemma-3-12b", {"audio_seconds": 3}, "how it counts audio"),
        ("llava-1.5-7b", {"images": 1}, "its card has no config"),
        ("qwen2.5-vl-7b", {"images": 1}, "by the size of an image"),
        ("qwen2.5-vl-7b", {"images": 1, "image_size": (4000, 10)}, "too stretched"),
    ],
)
def test_refused(model: str, media: dict[str, Any], words: str) -> None:
    with pytest.raises(KvplanError, match=words):
        tokens_of(model, media)


def test_bad_words() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"image_size": "12"},
        {"image_size": "0x5"},
        {"audio_seconds": "x"},
        {"images": -1},
    )
    for options in wrong:
        with pytest.raises(KvplanError):
            kvplan.size("qwen2.5-vl-7b", **{"images": 1, **options})


def test_every_rule_names_a_function_and_a_source() -> None:
    for kind, rule in ((name, known.media) for name, known in lineages().items() if known.media):
        named = [name for name in (rule.image, rule.video, rule.audio) if name]
        assert named, kind
        assert set(named) <= set(COUNTS), kind
        assert rule.source, kind


@given(
    st.integers(30, 3000),
    st.integers(30, 3000),
    st.sampled_from(["qwen2.5-vl-7b", "qwen3-vl-2b", "pixtral-12b"]),
)
def test_limits_hold(width: int, height: int, model: str) -> None:
    """No image takes more than the limits leave, nor none at all, and two take twice as much."""
    one = tokens_of(model, {"images": 1, "image_size": (width, height)})
    most = {"qwen2.5-vl-7b": 12_845_056 // 28**2, "qwen3-vl-2b": 16_777_216 // 32**2, "pixtral-12b": 64 * 65}
    assert 0 < one <= most[model]
    assert tokens_of(model, {"images": 2, "image_size": (width, height)}) == 2 * one
