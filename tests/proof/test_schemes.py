"""Every KV format, stored and read back: as ggml's own quantiser does it, and by laws that hold for all."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.dtypes import FLOAT32, KV_DTYPES
from kvplan.proof.numerics import numbers, schemes
from kvplan.proof.numerics.schemes import scheme_of

torch = pytest.importorskip("torch")
FORMATS = sorted(KV_DTYPES)
BITS = {name: form.key.bits for name, form in KV_DTYPES.items()}


def drawn(*size: int, seed: int = 3) -> Any:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def error(found: Any, right: Any) -> float:
    return float(((found - right).square().sum() / right.square().sum()).sqrt())


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_has_the_shape_of_what_was_stored(name: str) -> None:
    scheme = scheme_of(KV_DTYPES[name])
    for width in (64, 80, 128, 192):
        for stored in (scheme.key, scheme.value, scheme.latent, scheme.rope):
            for calibrated in (False, True):
                found = stored(drawn(2, 200, width), calibrated)
                assert found.shape == (2, 200, width)
                assert found.isfinite().all()


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_stored_is_nothing_read(name: str) -> None:
    scheme = scheme_of(KV_DTYPES[name])
    empty = torch.zeros(1, 256, 128)
    for stored in (scheme.key, scheme.value, scheme.latent, scheme.rope):
        assert not stored(empty, False).any()


@pytest.mark.parametrize("name", FORMATS)
def test_the_error_is_that_of_so_many_bits(name: str) -> None:
    """No format is better than the best levels for its bits could be (Max 1960), none far worse than two
    bits fewer would be."""
    best = {8: 0.001, 5: 0.0499, 4: 0.0974, 3: 0.1856, 2: 0.3427}
    scheme, bits = scheme_of(KV_DTYPES[name]), BITS[name]
    off = error(scheme.key(drawn(4, 512, 128), True), drawn(4, 512, 128))
    if bits >= 16:
        assert off < 0.003
    else:
        assert off > best[bits] * (0.75 if bits < 8 else 1)
        assert off < {8: 0.06, 5: 0.06, 4: 0.13, 3: 0.22, 2: 0.45}[bits]


@pytest.mark.parametrize("name", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_ggml_reads_the_same(name: str) -> None:
    """The gguf package's numpy port of ggml's reference quantiser, bit by bit."""
    quants = pytest.importorskip("gguf.quants")
    from gguf import GGMLQuantizationType

    rows = drawn(64, 256) * 3
    rows[0] = 0
    rows[1, 5] = 1000
    packed = quants.quantize(rows.numpy(), GGMLQuantizationType[name.upper()])
    right = torch.from_numpy(quants.dequantize(packed, GGMLQuantizationType[name.upper()]))
    assert torch.equal(scheme_of(KV_DTYPES[name]).latent(rows, False), right)


def test_ggml_turns_heads_before_it_stores_them() -> None:
    """One large channel costs a turned head little; a head of 80 is not turned."""
    for width, turned in ((128, True), (80, False)):
        keys = drawn(1, 64, width)
        keys[..., 7] *= 50
        scheme = scheme_of(KV_DTYPES["q4_0"])
        others = [place for place in range(width) if place != 7]
        off = error(scheme.key(keys, False)[..., others], keys[..., others])
        plain = error(scheme.latent(keys, False)[..., others], keys[..., others])
        assert (off != plain) is turned


def test_e2m1_rounds_to_the_nearest_and_halves_to_the_even() -> None:
    given = [0, 0.25, 0.26, 0.74, 0.75, 1.25, 1.26, 1.75, 2.5, 2.6, 3.5, 5.0, 5.1, 100, -0.75, -5]
    right = [0, 0, 0.5, 0.5, 1, 1, 1.5, 2, 2, 3, 4, 4, 6, 6, -1, -4]
    assert numbers.e2m1(torch.tensor(given)).tolist() == right


def test_fp8_takes_its_largest_number_for_what_is_larger() -> None:
    assert numbers.rounded_to(torch.tensor([1e6, -1e6, 17.0]), "float8_e4m3fn").tolist() == [448, -448, 16]


def test_the_levels_are_those_of_max() -> None:
    """J. Max, Quantizing for minimum distortion (1960), table I: 4 and 8 levels of N(0, 1)."""
    assert numbers.lloyd_max(1, 2).tolist() == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=2e-3)
    assert numbers.lloyd_max(1, 3).tolist()[4:] == pytest.approx([0.2451, 0.7560, 1.344, 2.152], abs=2e-3)


def test_a_hadamard_transform_is_its_own_inverse_and_keeps_lengths() -> None:
    for width in (64, 96, 80, 128, 7):
        values = drawn(3, 5, width)
        turned = numbers.hadamard(values)
        assert torch.allclose(numbers.hadamard(turned), values, atol=1e-5)
        assert torch.allclose(turned.norm(dim=-1), values.norm(dim=-1), rtol=1e-5)


def test_kivi_keeps_the_newest_tokens() -> None:
    scheme = scheme_of(KV_DTYPES["kivi2_g32"])
    keys = drawn(2, 300, 64)
    right = keys.half().float()
    assert torch.equal(scheme.key(keys, False)[:, -128:], right[:, -128:])
    assert torch.equal(scheme.value(keys, False)[:, -128:], right[:, -128:])
    assert not torch.equal(scheme.key(keys, False)[:, :32], right[:, :32])
    short = keys[:, :100]
    assert torch.equal(scheme.key(short, False), short.half().float())


def test_a_scale_of_the_tensor_is_one_unless_it_was_calibrated() -> None:
    """Numbers below e4m3's smallest are lost without a scale."""
    small = drawn(1, 64, 64) * 1e-4
    for name in ("fp8_e4m3", "nvfp4"):
        stored = scheme_of(KV_DTYPES[name]).key
        assert error(stored(small, False), small) > 0.9
        assert error(stored(small, True), small) < 0.15


def test_every_format_has_one_scheme() -> None:
    assert set(schemes._SCHEMES) == set(KV_DTYPES)
    assert {name for name in KV_DTYPES if scheme_of(KV_DTYPES[name]).scales} == {
        "fp8_e4m3", "fp8_e5m2", "nvfp4", "nvfp4_ds_mla",
    }  # fmt: skip
    assert FLOAT32.bytes == 4
