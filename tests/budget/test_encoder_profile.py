"""The profile run of an encoder: what it adds to the budget, and the options that change it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import kvplan
from kvplan.engines.vllm.classes import class_of, names
from kvplan.engines.vllm.encoder_profile.dummy_items import Asked, Item, squarest
from kvplan.engines.vllm.encoder_profile.largest_items import RULES, largest_items_of, rule_of
from kvplan.engines.vllm.encoder_profile.multimodal import encoder_run
from kvplan.engines.vllm.encoder_profile.patch_bytes import Widths, patch_bytes, towers
from kvplan.errors import KvplanError
from kvplan.files.gpus.find import load_gpu
from kvplan.own_options import OwnOptions
from kvplan.results import Budget, BudgetLine, SizeResult
from kvplan.settings import Serving
from kvplan.units import GIB
from tests.laws.sampling import for_each

_PROFILED = sorted(name for name in names() if class_of(name).largest_item)

LINE = "encoder profile run"
QWEN = "Qwen2_5_VLForConditionalGeneration"


def qwen25(**vision: Any) -> dict[str, Any]:
    """The config of Qwen2.5-VL-3B, as far as anything reads it."""
    return {
        "architectures": [QWEN],
        "model_type": "qwen2_5_vl",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 128000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "in_chans": 3,
            "out_hidden_size": 2048,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            **vision,
        },
    }


def budget(model: Any, engine: str = "vllm@0.19", gpu: str = "h200", **settings: Any) -> Budget:
    found = kvplan.size(model, gpu=gpu, engine=engine, **settings)
    assert isinstance(found, SizeResult)
    assert found.budget is not None, found.warnings
    return found.budget


def line(found: Budget, name: str = LINE) -> BudgetLine | None:
    return next((one for one in found.lines if one.name == name), None)


def added(found: Budget) -> int:
    one = line(found)
    return 0 if one is None else one.bytes


@pytest.mark.parametrize(("limits", "printed"), [({}, 5.26), ({"video": 0}, 25.05)])
def test_the_printed_start_up(limits: dict[str, int], printed: float) -> None:
    """Qwen2.5-VL-3B on an A100 of 40 GB, vLLM 0.11: 5.26 GiB of cache, 25.05 with video off."""
    given = {"limit_mm_per_prompt": limits} if limits else {}
    pool = budget(qwen25(), "vllm@0.11.2", "a100-sxm-40gb", **given).kv_pool_bytes
    assert abs(pool - printed * GIB) < 0.3 * GIB


def test_less_is_served_more_is_left() -> None:
    """All that is served ⊇ images alone ⊇ text alone; a start that does not look has what text alone has."""
    pools = [
        budget(qwen25(), **options).kv_pool_bytes
        for options in (
            {},
            {"limit_mm_per_prompt": {"video": 0}},
            {"limit_mm_per_prompt": '{"video": 0, "image": {"count": 1}}'},
            {"skip_mm_profiling": True},
            {"language_model_only": True},
        )
    ]
    assert pools[0] < pools[1] <= pools[2] < pools[3] < pools[4]
    assert budget(qwen25(), limit_mm_per_prompt="image=0,video=0").kv_pool_bytes == pools[4]


@pytest.mark.parametrize("release", ["0.11", "0.13", "0.16", "0.24", "0.33"])
@pytest.mark.parametrize("card", ["qwen2-vl-2b", "qwen3-vl-8b", "gemma-3-4b", "llama-4-scout", "glm-4.5v"])
def test_fewer_pixels_never_cost(card: str, release: str) -> None:
    """Of any model in any release, text alone leaves at least what images leave, and smaller ones no less."""
    options: dict[str, Any] = {"gpu": "4xh200", "tensor_parallel_size": 4}
    engine = f"vllm@{release}"
    whole = budget(card, engine, **options).kv_pool_bytes
    small = budget(card, engine, mm_processor_kwargs={"max_pixels": 262_144}, **options).kv_pool_bytes
    text = budget(card, engine, language_model_only=True, **options).kv_pool_bytes
    assert whole <= small <= text


@for_each("name", _PROFILED)
@for_each("release", [(0, 9), (0, 11), (0, 12), (0, 16), (0, 22), (0, 33)])
def test_every_rule_gives_every_kind(name: str, release: tuple[int, ...]) -> None:
    """Whatever a config says or leaves out: whole items of at least one token and one patch."""
    hostile: list[Any] = [{}, {"patch_size": 0}, {"patch_size": "x", "image_size": -1}, {"image_size": 10**6}]
    for vision in hostile:
        config = {"vision_config": vision, "mm_tokens_per_image": None}
        asked = Asked(config, vision, rule_of(config), release, 4096, 2048, {"max_pixels": 0}, None, True)
        items = largest_items_of(name, asked)
        assert set() < set(items) <= set(class_of(name).modalities)
        assert all(item.tokens >= 1 and item.patches >= 1 for item in items.values())


def test_the_largest_rectangle() -> None:
    assert squarest(16_384) == 16_384
    assert squarest(1) == 1
    for units in range(2, 2_000):
        assert 0 < units - squarest(units) < 8 or squarest(units) == units


@for_each("name", sorted(towers()))
def test_a_tower_grows_with_its_widths_and_shrinks_with_ranks(name: str) -> None:
    base = Widths(1280, 5120, 4096, 1176)
    for release in ((0, 11), (0, 33)):
        peak, kept = patch_bytes(name, base, 1, release)
        assert peak >= kept > 0
        for wider in (base._replace(hidden=2560), base._replace(mlp=20_480), base._replace(out=8_192)):
            assert patch_bytes(name, wider, 1, release)[0] >= peak
        if not name.startswith("Ovis"):  # whose vocabulary of images is most of it
            assert patch_bytes(name, Widths(2560, 20_480, 8_192, 1176), 1, release)[0] > peak * 3 // 2
        for tp in (2, 4, 8):
            assert (
                patch_bytes(name, base, tp, release)[0] <= peak + 64
            )  # scripts/trace_activations.py: row_of
    assert name in _PROFILED


def test_a_whole_encoder_on_every_gpu() -> None:
    """12 heads do not divide over 8: `data` keeps the encoder whole, its weights too."""
    found = kvplan.size("glm-4.5v", tokens=1000, engine="vllm@0.33", tensor_parallel_size=8)
    assert isinstance(found, SizeResult)
    assert found.refusal is not None
    assert any("--mm-encoder-tp-mode data" in way for way in found.refusal.help)
    weights = []
    for mode in ("weights", "data"):
        one = line(
            budget("glm-4.5v", "vllm@0.33", "4xh200", tensor_parallel_size=4, mm_encoder_tp_mode=mode),
            "weights",
        )
        assert one is not None
        weights.append(one.bytes)
    assert weights[0] < weights[1]
    assert budget("glm-4.5v", "vllm@0.33", "8xh200", tensor_parallel_size=8, mm_encoder_tp_mode="data")


def test_text_alone_loads_no_encoder_since_it_has_placeholders() -> None:
    bytes_of = {
        (release, only): one.bytes
        for release in ("0.14", "0.19")
        for only in (False, True)
        if (one := line(budget(qwen25(), f"vllm@{release}", language_model_only=only), "weights"))
    }
    assert bytes_of["0.14", True] == bytes_of["0.14", False] == bytes_of["0.19", False]
    assert bytes_of["0.19", True] < bytes_of["0.19", False]


def test_an_encoder_without_a_rule_is_said_once() -> None:
    config = qwen25() | {"architectures": ["LlavaOnevision2ForConditionalGeneration"]}
    found = kvplan.size(config, gpu="h200", engine="vllm@0.33", weights="10GiB")
    assert isinstance(found, SizeResult)
    assert found.budget is not None
    said = [warning for warning in found.warnings if "the encoder of" in warning]
    assert len(said) == 1
    assert "--language-model-only" in said[0]
    one = line(found.budget)
    assert one is not None
    assert one.bytes == one.low_bytes == 0 < one.high_bytes
    assert line(budget(config, "vllm@0.33", weights="10GiB", language_model_only=True)) is None


def test_a_tiled_processor_is_profiled_with_one_square() -> None:
    """lfm2_vl.py, get_image_size_with_most_features: 512 x 512 pixels, 32 of them in a batch of 8,192."""
    found = line(budget("lfm2.5-vl-1.6b", engine="vllm@0.33", gpu="h100"))
    assert found is None or "not known" not in found.source
    asked = Asked(
        config={"max_image_tokens": 256, "downsample_factor": 2},
        vision={},
        rule=rule_of({}),
        release=(0, 33),
        length=8192,
        longest=8192,
        processor={},
        frames=None,
        has_image=True,
    )
    assert RULES["lfm2"](asked)["image"] == Item(256, 1024)
    assert RULES["lfm2"](asked._replace(processor={"max_image_tokens": 64, "downsample_factor": 4}))[
        "image"
    ] == Item(64, 1024)


def test_a_text_model_has_no_such_line() -> None:
    assert line(budget("qwen3-8b", "vllm@0.33")) is None


@pytest.mark.parametrize(
    "given", ["{", "[1]", "image", "image=x", "image=1,,", 3, {1: 2}, "1" * 5000, '{"a": NaN}']
)
def test_bad_limits_are_refused(given: Any) -> None:
    with pytest.raises(KvplanError) as caught:
        kvplan.size("qwen2-vl-2b", gpu="h200", settings={"limit_mm_per_prompt": given})
    assert caught.value.code == "bad-setting"


@pytest.mark.parametrize("limits", ['{"image": -1}', '{"image": {"count": "x"}}', '{"video": null}', "{}"])
def test_odd_limits_count_as_none(limits: str) -> None:
    """What vLLM itself would refuse changes nothing here."""
    assert added(budget("qwen2-vl-2b", limit_mm_per_prompt=limits)) == added(budget("qwen2-vl-2b"))


def test_a_map_is_one_text_with_its_keys_in_order() -> None:
    from kvplan.engines import OWN_OPTIONS

    parse = OWN_OPTIONS["limit_mm_per_prompt"].parse
    same = {parse(one) for one in ('{"video": 0, "image": 2}', {"image": 2, "video": 0}, "image=2,video=0")}
    assert same == {json.dumps({"image": 2, "video": 0})}


@pytest.mark.vllm
def test_a_tower_that_is_run_again_says_the_same() -> None:
    """vLLM's own classes, at widths that the file was not written from: within 5 % of what its rows say."""
    pytest.importorskip("vllm")
    words = (sys.executable, "-c", _AGAIN)
    found = json.loads(
        subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()[-1]
    )
    for name, (hidden, mlp, out, pixels, peak) in found.items():
        said, _ = patch_bytes(name, Widths(hidden, mlp, out, pixels), 1, (0, 32))
        assert abs(said - peak) < peak // 20, name


_AGAIN = """
import json
import subprocess
import sys
from scripts.tracing.stage import set_stage
live = set_stage()
from scripts.trace_activations import slopes
from scripts.tracing.towers import TOWERS, Widths
at = Widths(16, 64, 4096, 2048)
asked = [tower for tower in TOWERS if tower.classes[0].startswith(("Qwen3VL", "Mistral3", "Gemma3For"))]
print(json.dumps({t.classes[0]: [1024, 4096, 2048, 0, slopes(live, t, at)[0]] for t in asked}))
"""


def test_raw_patches_are_projected_without_a_tower() -> None:
    """Gemma-4-12B: inputs of 48 × 48 pixels and outputs of one video; no warning, and little beside text."""
    result = kvplan.size("google/gemma-4-12B-it", engine="vllm@0.24", gpu="h100", max_num_batched_tokens=4096)
    assert result.budget is not None
    (line,) = (line for line in result.budget.lines if line.name == "encoder profile run")
    assert line.bytes == 2240 * 2 * (6912 + 3840)
    assert not any("is not known" in text for text in result.warnings)


_ODD: tuple[Any, ...] = (
    *(0, 1, 3, 14, 336, 10**6, 10**12, -1, None, "x", 2.5, True, float("nan"), float("inf")),
    *([], {}, [[1, 2]], [[336, 672], "a", None, [1]]),
)
_KEYS = """image_size patch_size hidden_size intermediate_size embed_dim mlp_ratio d_model num_mel_bins
    spatial_merge_size temporal_patch_size max_image_tokens downsample_ratio tokens_per_second
    pixel_shuffle_ratio query_num num_crops max_slice_num scale_factor stack_factor force_image_size
    max_dynamic_patch image_grid_pinpoints max_source_positions mm_tokens_per_image""".split()


@for_each("name", _PROFILED)
def test_whatever_a_config_says_the_run_is_whole(name: str) -> None:
    """Odd values in any key that a rule reads, in any part of the config: numbers in order, or not known."""
    drawn, plain = Random(name), kvplan.load_model("qwen3-8b")
    for _ in range(40):
        part = {key: drawn.choice(_ODD) for key in drawn.sample(_KEYS, drawn.randint(0, 9))}
        config: dict[str, Any] = {key: drawn.choice(_ODD) for key in drawn.sample(_KEYS, drawn.randint(0, 6))}
        config |= {"vision_config": part, "audio_config": part, "thinker_config": {"vision_config": part}}
        kwargs = drawn.choice(('{"max_pixels": 1}', '{"size": {"longest_edge": 0}}', '{"num_crops": 0}'))
        asked = Serving(
            own=OwnOptions.of({"mm_processor_kwargs": kwargs}), tensor_parallel_size=drawn.choice((1, 2, 8))
        )
        run = encoder_run(
            replace(plain, architecture=name, config=config),
            asked,
            drawn.choice(("0.9.0", "0.11.2", "0.33.0")),
            seqs=drawn.choice((1, 256)),
            tokens=drawn.choice((16, 8192)),
            length=drawn.choice((1, 4096, 10**6)),
            element=2,
        )
        assert run is not None
        assert run.kept_bytes >= 0
        assert not run.known or 0 < run.least_bytes <= run.peak_bytes <= run.most_bytes


@pytest.mark.parametrize(
    ("release", "gpu", "masked"),
    [("0.11", "l40s", False), ("0.11", "b200", True), ("0.11", "rtx-pro-6000", True), ("0.12", "l40s", True),
     ("0.28", "l40s", True), ("0.29", "l40s", False), ("0.33", "b200", False)],
)  # fmt: skip
@pytest.mark.parametrize("tokens", [2048, 8192])
def test_a_pixtral_tower_has_a_mask_of_all_patches(release: str, gpu: str, masked: bool, tokens: int) -> None:
    """One number for each pair of patches; copied where a row is no multiple of 8: one image has 12,100."""
    model = kvplan.load_model("ministral-3-8b-instruct-2512")
    settings = replace(Serving(), gpu=load_gpu(gpu))
    asked: dict[str, Any] = {"seqs": 16, "tokens": tokens, "length": 8192, "element": 2}
    run, plain = (encoder_run(model, settings, version, **asked) for version in (release, "0.29"))
    assert run is not None
    assert plain is not None
    images = 1 if tokens == 2048 else 2
    patches = images * 12_100
    mask = patches * patches * 2 * (2 if images == 1 else 1) if masked else 0
    assert abs(run.peak_bytes - mask - plain.peak_bytes) < plain.peak_bytes // 2
    assert run.least_bytes >= (patches * patches * 2 if masked else 0)


def test_a_published_start_with_two_masked_images() -> None:
    """Ministral 3 8B in FP8 on an L40S, vLLM 0.21, eager: 27.91 GiB printed (29.4 without the mask)."""
    found = budget(
        "ministral-3-8b-instruct-2512", "vllm@0.21", "l40s", gpu_memory_utilization="0.9", max_model_len=8192,
        max_num_seqs=256, max_num_batched_tokens=8192, enforce_eager=True,
    )  # fmt: skip
    assert found.kv_pool_low_bytes <= 27.91 * GIB <= found.kv_pool_high_bytes
    assert abs(found.kv_pool_bytes / GIB - 27.91) < 0.02 * 27.91
