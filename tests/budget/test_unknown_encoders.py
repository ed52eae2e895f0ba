"""Of every class that has an encoder the budget says what its profile run takes, or that it does not know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import kvplan
from kvplan.engines.supported import classes
from kvplan.engines.vllm.classes import class_of, names
from kvplan.engines.vllm.encoder_profile.estimate import EncoderRun, unknown_most
from kvplan.engines.vllm.encoder_profile.multimodal import encoder_run, has_encoder
from kvplan.engines.vllm.encoder_profile.patch_bytes import traced
from kvplan.engines.vllm.start.architectures import PREFIX_WRAPPERS
from kvplan.errors import KvplanError
from kvplan.files.cards.find import list_cards, load_card
from kvplan.model import Model
from kvplan.own_options import OwnOptions
from kvplan.results import SizeResult
from kvplan.settings import Serving
from kvplan.units import GIB
from tests.laws.sampling import for_each, some

LINE = "encoder profile run"


def _asked(model: Model, **more: Any) -> SizeResult:
    return kvplan.size(model, engine="vllm@0.33", gpu="h200", weights=8 * GIB, max_model_len=4096, **more)


@cache
def _with_encoder() -> tuple[str, ...]:
    return tuple(card.slug for card in list_cards() if has_encoder(load_card(card.slug)))


@pytest.mark.laws
@for_each("slug", some(_with_encoder(), 4, by=len))
def test_every_card_with_an_encoder_has_its_line_or_the_warning(slug: str) -> None:
    try:
        result = _asked(load_card(slug))
    except KvplanError as error:
        pytest.skip(f"{error.code}: {error.message}")
    if result.budget is None:
        assert result.refusal is not None or result.warnings
        return
    line = {line.name: line for line in result.budget.lines}[LINE]
    said = [warning for warning in result.warnings if "encoder" in warning and "is not known" in warning]
    if said:
        assert line.low_bytes == 0
        assert line.high_bytes >= 5 * GIB
        assert "--language-model-only" in said[0]
        width = result.budget.kv_pool_high_bytes - result.budget.kv_pool_low_bytes
        assert width >= line.high_bytes
    else:
        assert line.bytes or "item" in line.source


@for_each("name", sorted(classes("vllm", "encodes")))
def test_a_class_is_wide_though_the_config_at_hand_is_the_language_model_s_alone(name: str) -> None:
    """A checkpoint's text config says nothing of the encoder that its class builds."""
    plain = load_card("qwen3-8b")
    result = _asked(replace(plain, architecture=name))
    if result.budget is None:
        assert result.refusal is not None
        return
    row = class_of(name)
    own = row.encoder.widths or row.encoder.published_widths or row.audio.config_part == "encoder_config"
    if not own:  # the tower is not the class's, whatever the config says
        assert any("encoder" in warning and "is not known" in warning for warning in result.warnings)
    alone = _asked(replace(plain, architecture=name), language_model_only=True)
    assert not any("encoder" in warning for warning in alone.warnings)
    assert alone.budget is not None
    assert LINE not in {line.name for line in alone.budget.lines}


@pytest.mark.parametrize("length", [2048, 8192, 32_768, 131_072, 1_048_576])
@pytest.mark.parametrize("tokens", [512, 2048, 8192, 32_768])
def test_the_bound_of_an_unknown_encoder_holds_for_each_that_is_known(tokens: int, length: int) -> None:
    """In 0.33: as if the class had no rule."""
    for slug in _with_encoder():
        model = load_card(slug)
        run = encoder_run(model, Serving(), "0.33", seqs=256, tokens=tokens, length=length, element=2)
        if run is not None and run.known:
            assert run.peak_bytes <= unknown_most("", tokens=tokens, length=length), slug


_MOLMO2 = {
    "text_config": {},
    "vit_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16},
}
_OVIS = {"vit_config": {**_MOLMO2["vit_config"], "patch_size": 16, "hidden_stride": 2}}


@pytest.mark.parametrize("length", [4096, 36_864, 131_072])
@pytest.mark.parametrize(
    ("name", "config"),
    [("Molmo2ForConditionalGeneration", _MOLMO2), ("Ovis2_5", _OVIS)],
    ids=["molmo2", "ovis"],
)
def test_the_bound_holds_for_the_largest_that_have_no_card(
    name: str, config: dict[str, Any], length: int
) -> None:
    run = _run(name, config, length)
    assert run.known
    assert 0 < run.peak_bytes <= unknown_most("", tokens=8192, length=length)


def _run(name: str, config: dict[str, Any], length: int, tokens: int = 8192, **more: Any) -> EncoderRun:
    plain = load_card("qwen3-8b")
    model = replace(plain, architecture=name, config={**(plain.config or {}), **config})
    found = encoder_run(model, Serving(**more), "0.33", seqs=256, tokens=tokens, length=length, element=2)
    assert found is not None
    return found


def test_an_unknown_encoder_of_images_alone_does_not_grow_with_the_sequence() -> None:
    short, long = (unknown_most("NVLM_D", tokens=8192, length=length) for length in (8192, 1 << 20))
    assert short == long == 8 * GIB
    assert unknown_most("CohereAsrForConditionalGeneration", tokens=8192, length=1 << 17) == 96 * GIB


def test_gemma_3n_runs_all_images_at_once() -> None:
    """768 × 768 pixels through MobileNetV5: 188,817,408 bytes an image, 32 of 256 tokens in 8,192."""
    model = load_card("gemma-3n-e4b")
    run = encoder_run(model, Serving(), "0.33", seqs=256, tokens=8192, length=32_768, element=2)
    assert run is not None
    assert run.source == "32 image items of 256 tokens"
    assert run.peak_bytes == run.least_bytes == 32 * 188_817_408
    assert run.most_bytes == run.peak_bytes * 5 // 4


@pytest.mark.parametrize("name", ["granite-speech-3.3-2b", "granite-speech-3.3-8b"])
def test_granite_speech_hears_500_seconds_at_once(name: str) -> None:
    """25,000 positions of a conformer 1,024 wide, whatever the sequence holds; one sound in a prompt. Least
    of it: a block's attention of 8 heads over 200 positions, in float32 and with its mask."""
    model, runs = load_card(name), set()
    for length in (4096, 32_768):
        for count in (1, 8):
            limit = OwnOptions.of({"limit_mm_per_prompt": f'{{"audio": {count}}}'})
            asked = Serving(own=limit)
            run = encoder_run(model, asked, "0.33", seqs=1, tokens=2048, length=length, element=2)
            assert run is not None
            assert run.known
            runs.add(run)
    (run,) = runs
    assert run.source == "1 audio item of 5,001 tokens"
    assert 25_000 * 8 * 200 * 8 < run.peak_bytes < 1 * GIB
    assert run.kept_bytes >= 25_000 * 160 * 2 + 5000 * model.hidden_size * 2


_EVA = {"hidden_size": 1792, "intermediate_size": 15360, "num_heads": 16, "image_size": 1120}


def test_glm_4v_has_images_of_one_size() -> None:
    """80 × 80 patches, one image to a prompt: beside what goes in, the MLP's width before and after GELU."""
    run = _run("GLM4VForCausalLM", {"vision_config": {**_EVA, "patch_size": 14}}, 8192)
    assert run.source == "5 image items of 1,602 tokens"
    assert run.peak_bytes >= 5 * 6400 * 2 * (2 * 15_360 + 2 * 1792)


def test_phi_4_vision_runs_as_many_images_as_a_batch_holds() -> None:
    config = {"vision_config": {"model_type": "siglip2_vision_model"}, "max_num_patches": 3600}
    run = _run("Phi4ForCausalLMV", config, 16_384)
    assert run.source == "2 image items of 3,600 tokens"
    assert run.peak_bytes >= 2 * 3600 * 2 * (2 * 4304 + 2 * 1152)


def test_molmo2_keeps_what_each_layer_gives() -> None:
    """384 frames of 83 tokens at its own length: 25 layers' outputs of 279,936 patches."""
    run = _run("Molmo2ForConditionalGeneration", _MOLMO2, 36_864)
    assert run.source == "1 video item of 31,872 tokens"
    assert run.peak_bytes >= 384 * 729 * 25 * 1152 * 2
    image = OwnOptions.of({"limit_mm_per_prompt": '{"video": 0}'})
    assert _run("Molmo2ForConditionalGeneration", _MOLMO2, 36_864, own=image).source == (
        "5 image items of 1,400 tokens"
    )


def test_ovis_has_its_vocabulary_of_images_in_float32() -> None:
    """A token of four patches: 65,532 logits, their probabilities in float32 and again in bfloat16."""
    run = _run("Ovis2_5", _OVIS, 8192)
    assert run.source == "2 video items of 3,138 tokens"  # as many as of an image
    assert 0.9 < run.peak_bytes / (2 * 3136 * 65_532 * (2 + 4 + 2)) < 1.1


def test_minicpm_o_and_v_4_6() -> None:
    vision = {"vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14}}
    assert _run("MiniCPMO", vision, 8192).source == "8 video items of 1,024 tokens"
    small = {"vision_config": {"hidden_size": 768, "intermediate_size": 3072, "patch_size": 14}}
    run = _run("MiniCPMV4_6ForConditionalGeneration", small, 131_072)
    assert run.source == "1 video item of 10,368 tokens"  # 16 × (9 × 64 + 72)


def test_a_model_of_text_alone_has_neither() -> None:
    result = _asked(load_card("qwen3-8b"))
    assert result.budget is not None
    assert LINE not in {line.name for line in result.budget.lines}
    assert not any("encoder" in warning for warning in result.warnings)


def test_a_limit_of_images_leaves_audio_in() -> None:
    plain = load_card("qwen3-8b")
    config = {**(plain.config or {}), "audio_config": {}}
    heard = replace(plain, architecture="Qwen2AudioForConditionalGeneration", config=config)
    assert any(
        "is not known" in warning
        for warning in _asked(heard, limit_mm_per_prompt='{"image": 0, "video": 0}').warnings
    )
    silent = _asked(heard, limit_mm_per_prompt='{"image": 0, "video": 0, "audio": 0}')
    assert not any("is not known" in warning for warning in silent.warnings)


def test_what_has_a_rule_and_a_trace_is_listed_as_a_class_with_an_encoder() -> None:
    renamed = {"MiMoV2ForCausalLM"}  # MiMoV2OmniForCausalLM once its config has an encoder
    listed = set(classes("vllm", "encodes")) | {"PixtralForConditionalGeneration"} | renamed
    assert {name for name in names() if class_of(name).largest_item and traced(name)} <= listed


def test_minimax_m3_profiles_the_longest_video_that_a_sequence_holds() -> None:
    """_MAX_FRAMES_PER_VIDEO: 500 frames, about 192,000 tokens; one image has 24 × 24."""
    card = load_card("minimax-m3-nvfp4")
    tower = {"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 16, "patch_size": 14}
    model = replace(card, config={**(card.config or {}), "vision_config": tower})
    sources = {
        length: {line.name: line.source for line in result.budget.lines}[LINE]
        for length in (4096, 400_000)
        if (result := _m3(model, length)).budget is not None
    }
    assert sources == {4096: "4 video items of 3,840 tokens", 400_000: "1 video item of 192,000 tokens"}


def _m3(model: Model, length: int) -> SizeResult:
    return kvplan.size(model, engine="vllm@0.33", gpu="b200", tp=8, weights=8 * GIB, max_model_len=length)


@pytest.mark.laws
@pytest.mark.parametrize("slug", some(_with_encoder(), 6, by=len))
def test_what_is_turned_off_is_left_for_the_cache(slug: str) -> None:
    """Of every card: text alone leaves at least as much as what is not profiled, where the same kernel
    attends; that as much as all that is served; a limit of 0 for every kind is text alone; a smaller image
    never costs. Of warm starts: text alone, token ids go into what is compiled, whose benchmarks may take
    more."""
    model = load_card(slug)

    def pool(**more: Any) -> tuple[int, int]:
        found = _asked(model, compile_cache="warm", **more)
        assert found.budget is not None
        return found.budget.kv_pool_low_bytes, found.budget.kv_pool_bytes

    try:
        served = _asked(model)
    except KvplanError as error:
        pytest.skip(f"{error.code}: {error.message}")
    if served.budget is None:  # and the answer says why
        assert served.refusal is not None or any("no pool" in text for text in served.warnings)
        return
    row = class_of(model.architecture)
    kinds = row.modalities if row.largest_item else ("image", "video", "audio")
    every, text = pool(), pool(language_model_only=True)
    unseen = pool(skip_mm_profiling=True)
    off = pool(limit_mm_per_prompt=dict.fromkeys(kinds, 0))
    assert every <= unseen
    assert every[0] <= unseen[0]
    assert every[1] <= unseen[1]
    kernel = _asked(model, language_model_only=True).settings["attention_backend"]
    if kernel == served.settings["attention_backend"]:
        assert unseen[0] <= text[0]
        assert unseen[1] <= text[1]
        assert off[0] >= unseen[0]
    else:  # images see each other no more: another kernel, with sums of its own in the graphs
        assert model.facts.get("top_model_type") in PREFIX_WRAPPERS
    one = pool(limit_mm_per_prompt=dict.fromkeys(kinds, 1))
    assert every[1] <= one[1]
    if "image" in kinds:
        alone = {kind: int(kind == "image") for kind in kinds}
        images: dict[str, Any] = {"limit_mm_per_prompt": alone, "max_num_seqs": 1}
        small = pool(mm_processor_kwargs={"max_pixels": 1 << 16, "max_image_tokens": 64}, **images)
        assert pool(**images)[1] <= small[1]  # one image: of smaller ones more fit in a batch


def test_an_image_at_a_time_takes_one_image_s_peak() -> None:
    """DeepSeek-OCR: eleven images of 693 tokens fit in 8,192; SAM and CLIP see one of them at once."""
    model = replace(load_card("qwen3-8b"), architecture="DeepseekOCRForCausalLM")
    runs = {}
    for count in (1, 11, 64):
        limit = OwnOptions.of({"limit_mm_per_prompt": f'{{"image": {count}}}'})
        asked = Serving(own=limit)
        run = encoder_run(model, asked, "0.33", seqs=1, tokens=8192, length=8192, element=2)
        assert run is not None
        runs[count] = run
    assert runs[64].source == "11 image items of 693 tokens"
    assert runs[1].peak_bytes == 162_123_801
    assert runs[11].peak_bytes - runs[1].peak_bytes == 10 * 17_895_952
    assert runs[64].peak_bytes == runs[11].peak_bytes
    assert all(run.least_bytes <= run.peak_bytes < run.most_bytes for run in runs.values())


def test_molmo_keeps_every_layer_of_each_crop() -> None:
    """A column of twelve crops and the whole image; outputs of 23 layers, 1,024 wide, of 577 positions."""
    run = _run("MolmoForCausalLM", {}, 4096)
    assert run.source == "6 image items of 1,344 tokens"
    assert 6 * 13 * 577 * 23 * 1024 * 2 < run.peak_bytes < unknown_most("", tokens=8192, length=4096)


def test_deepseek_vl2_takes_the_tiling_of_most_tokens() -> None:
    """Nine tiles in a column and the whole image, 28 × 28 patches each; an MLP of 4,304 before and after
    GELU. The config's own resolutions count."""
    run = _run("DeepseekVLV2ForCausalLM", {}, 4096)
    assert run.source == "3 image items of 2,101 tokens"
    assert 3 * 10 * 784 * 2 * 2 * 4304 < run.peak_bytes < 3 * 10 * 784 * 2 * 4 * 4304
    few = _run("DeepseekVLV2ForCausalLM", {"candidate_resolutions": [[384, 768], [768, 384]]}, 4096)
    assert few.source == "12 image items of 631 tokens"


_KEYE = {"vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14}}


@pytest.mark.parametrize(
    ("name", "limits", "source"),
    [
        ("KeyeForConditionalGeneration", None, "6 video items of 1,225 tokens"),
        ("KeyeForConditionalGeneration", '{"image": 0, "video": 1}', "1 video item of 19,600 tokens"),
        ("KeyeVL1_5ForConditionalGeneration", None, "6 video items of 1,225 tokens"),
        ("KeyeVL1_5ForConditionalGeneration", '{"image": 2, "video": 1}', "1 video item of 29,400 tokens"),
        ("KeyeVL1_5ForConditionalGeneration", '{"video": 0}', "6 image items of 1,225 tokens"),
    ],
)
def test_keye_has_frames_where_images_leave_room(name: str, limits: str | None, source: str) -> None:
    """As many frames as all images of a prompt leave of 32,768: of 999 images none, and then one."""
    options = OwnOptions.of({"limit_mm_per_prompt": limits} if limits else {})
    run = _run(name, _KEYE, 32_768, own=options)
    assert run.source == source
    assert run.peak_bytes


def test_ovis2_has_probabilities_over_its_visual_vocabulary() -> None:
    """Nine tiles and the whole; before, behind and beside softmax 65,531 wide, for each of 256 tokens of a
    tile."""
    run = _card("ovis2-8b")
    assert run.source == "3 image items of 2,571 tokens"
    assert 30 * 256 * 65_531 * 2 * 3 < run.peak_bytes < unknown_most("", tokens=8192, length=8192)


def test_aria_asks_each_image_256_questions() -> None:
    """980 × 980 pixels; the attention of the projector, 256 queries on 4,900 patches, is written out."""
    run = _card("aria")
    assert run.source == "32 image items of 256 tokens"
    assert 32 * 4900 * 16 * 256 * 2 * 2 < run.peak_bytes < unknown_most("", tokens=8192, length=8192)


def _card(slug: str, **more: Any) -> EncoderRun:
    run = encoder_run(load_card(slug), Serving(**more), "0.33", seqs=256, tokens=8192, length=8192, element=2)
    assert run is not None
    assert run.known
    return run


@pytest.mark.parametrize("name", ["Moondream3ForCausalLM", "HfMoondream"])
def test_moondream_looks_at_one_image_after_another(name: str) -> None:
    """One crop and the whole in the tower, 730 embeddings of each image beside it; one to a prompt."""
    run = _run(name, {}, 4096)
    assert run.source == "11 image items of 730 tokens"
    assert run.peak_bytes == 38_611_960 + 10 * 4_704_704
    few = encoder_run(
        replace(load_card("qwen3-8b"), architecture=name),
        Serving(),
        "0.33",
        seqs=2,
        tokens=8192,
        length=4096,
        element=2,
    )
    assert few is not None
    assert few.source == "2 image items of 730 tokens"


def test_deepseek_ocr_2_runs_an_image_at_a_time() -> None:
    """Whichever the length, the peak of one, and what nine in 8,192 tokens keep: crops and 833 embeddings."""
    runs = {_run("DeepseekOCR2ForCausalLM", {}, length) for length in (4096, 32_768)}
    (run,) = runs
    assert run.source == "9 image items of 833 tokens"
    assert run.peak_bytes == 276_103_193 + 8 * (4 * 3 * 768 * 768 + 833 * 1280) * 2 + 8 * 16
    assert run.most_bytes == run.peak_bytes + 4 * 12 * 2304 * 2304 * 2


def test_phi_4_hears_one_sound_after_another() -> None:
    """Where no image is served: 1,504 columns of 80 and 188 embeddings of each sound beside one in its
    convolutions, 1,024 channels of 752 × 40."""
    run = _card("phi-4-multimodal", own=OwnOptions.of({"limit_mm_per_prompt": '{"image": 0}'}))
    assert run.source == "43 audio items of 188 tokens"
    assert 1024 * 752 * 40 * 2 < run.peak_bytes - 42 * (1504 * 80 + 188 * 3072) * 2 < 1024 * 752 * 40 * 2 * 3
    assert _card("phi-4-multimodal").source.endswith("image item of 10,065 tokens")
