from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.datafiles import data_dir
from kvplan.files.gpus import find as gpus
from kvplan.files.gpus.find import load_gpu, parse_gpu_count
from kvplan.files.gpus.listed import find_slugs, key_of, list_gpus, list_keys, list_slugs, squeezed
from kvplan.gpu import Gpu, under_wsl
from kvplan.units import GIB
from tests.laws.sampling import for_each


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("h100", "h100-sxm-80gb"),
        ("H100", "h100-sxm-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("a100", "a100-sxm-80gb"),
        ("a100-80gb", "a100-sxm-80gb"),
        ("a100-40gb", "a100-sxm-40gb"),
        ("h200", "h200-sxm-141gb"),
        ("b200", "b200-sxm-180gb"),
        ("l40s", "l40s-48gb"),
        ("l40", "l40-48gb"),
        ("l4", "l4-24gb"),
        ("rtx-5090", "rtx-5090-32gb"),
        ("5090", "rtx-5090-32gb"),
        ("RTX 3090", "rtx-3090-24gb"),
        ("rtx_3090", "rtx-3090-24gb"),
        ("mi300x", "mi300x-192gb"),
        ("mi300", "mi300x-192gb"),
        ("gb10", "gb10-128gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090-24gb"),
        ("nvidia h200", "h200-sxm-141gb"),
        ("Tesla T4", "t4-16gb"),
        ("  h100 ", "h100-sxm-80gb"),
        ("h100-sxm", "h100-sxm-80gb"),
        ("h100-1g.10gb", "h100-sxm-80gb-mig-1g.10gb"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-sxm-141gb-mig-1g.18gb"),
        ("h200-sxm-141gb-mig-7", "h200-sxm-141gb-mig-7g.141gb"),
        ("5070ti", "rtx-5070-ti-16gb"),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16gb"),
        ("4060ti-8gb", "rtx-4060-ti-8gb"),
        ("3060", "rtx-3060-12gb"),
        ("3060-8gb", "rtx-3060-8gb"),
        ("rtx3060-12gb", "rtx-3060-12gb"),
        ("geforce rtx 4070tisuper", "rtx-4070-ti-super-16gb"),
        ("RTX 5090 Laptop", "rtx-5090-laptop-24gb"),
        ("4090-48gb", "rtx-4090-48gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-24gb"),
        ("9070 XT", "rx-9070-xt-16gb"),
        ("R9700", "radeon-ai-pro-r9700-32gb"),
        ("m4-max", "m4-max-128gb"),
        ("Apple M4 Max", "m4-max-128gb"),
        ("M4 Max 64GB", "m4-max-64gb"),
        ("m1-8gb", "m1-8gb"),
        ("a2000 12gb", "rtx-a2000-12gb"),
        ("h20-3e", "h20-141gb"),
    ],
)
def test_lookup(query: str, slug: str) -> None:
    assert load_gpu(query).slug == slug


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(KvplanError) as caught:
        load_gpu("hh100")
    assert (caught.value.code, caught.value.exit_code) == ("unknown-gpu", 2)
    assert caught.value.help[0] == "did you mean h100?"
    assert load_gpu("h100").slug, "what help suggests works"


@pytest.mark.parametrize("query", ["xyzzy", "", "   "])
def test_an_unknown_gpu_with_nothing_near_names_the_list(query: str) -> None:
    with pytest.raises(KvplanError) as caught:
        load_gpu(query)
    assert f"`kvplan list gpus` lists all {len(list_slugs())}: h100" in caught.value.help[0]
    assert all(len(line) <= 80 for line in caught.value.format().splitlines())


def test_an_ambiguous_prefix_lists_the_candidates() -> None:
    with pytest.raises(KvplanError) as caught:
        load_gpu("h2")
    assert caught.value.code == "ambiguous-gpu"
    assert list(caught.value.detail) == ["h20-141gb", "h20-96gb", "h200-nvl-141gb", "h200-sxm-141gb"]
    with pytest.raises(KvplanError) as caught:
        load_gpu("h100-sxm-80gb-mig-1g")
    assert list(caught.value.detail) == ["h100-sxm-80gb-mig-1g.10gb", "h100-sxm-80gb-mig-1g.20gb"]
    with pytest.raises(KvplanError) as caught:
        load_gpu("nvidia")
    assert caught.value.detail[-1].startswith("and ")


@for_each("key", list_keys())
def test_every_key_of_the_index_finds_its_gpu(key: str) -> None:
    assert key_of(key) == key
    assert len({load_gpu(slug).name for slug in find_slugs(key)}) == 1


@pytest.mark.parametrize("query", ["4060ti", "RTX 5060 Ti", "NVIDIA GeForce RTX 4060 Ti", "rtx a2000"])
def test_a_card_with_several_memories_lists_them(query: str) -> None:
    """Unless one of them is its family's default: ``rtx-3060`` is the one of 12 GB."""
    with pytest.raises(KvplanError) as caught:
        load_gpu(query)
    assert caught.value.code == "ambiguous-gpu"
    assert len(caught.value.detail) == 2
    assert [load_gpu(slug).slug for slug in caught.value.detail] == list(caught.value.detail)


def test_what_is_left_out_of_a_name_leaves_one_meaning() -> None:
    """No two keys of different GPUs are alike without their hyphens and their maker."""
    meant: dict[str, tuple[str, ...]] = {}
    for key in list_keys():
        slugs = tuple(find_slugs(key))
        assert meant.setdefault(squeezed(key), slugs) == slugs, key


@given(st.sampled_from(list_keys()), st.sampled_from(["", " ", "-", "_", "  "]), st.booleans())
def test_a_name_is_found_however_it_is_written(key: str, between: str, upper: bool) -> None:
    text = key.replace("-", between)
    text = text.upper() if upper else text
    assert find_slugs(text) == find_slugs(key)
    assert parse_gpu_count(text) == (text.strip(), 1)
    assert gpus.gpu_of_size(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h100", ("h100", 1)),
        ("h100x8", ("h100", 8)),
        ("h100 x 8", ("h100", 8)),
        ("h100×8", ("h100", 8)),
        ("h100*8", ("h100", 8)),
        ("H100X8", ("H100", 8)),
        ("8xh100", ("h100", 8)),
        ("8 x h100", ("h100", 8)),
        ("mi300x", ("mi300x", 1)),
        ("mi300xx8", ("mi300x", 8)),
        ("8xmi300x", ("mi300x", 8)),
        ("rtx5090", ("rtx5090", 1)),
        ("rtx509", ("rtx509", 1)),
        ("rtx5090x2", ("rtx5090", 2)),
        ("5090x8", ("5090", 8)),
        ("8x5090", ("5090", 8)),
        ("2xNVIDIA H100 80GB HBM3", ("NVIDIA H100 80GB HBM3", 2)),
        ("nothing", ("nothing", 1)),
        ("4090", ("4090", 1)),
        ("4090x2", ("4090", 2)),
        ("2 x 4090", ("4090", 2)),
        ("80GiB x 2", ("80GiB", 2)),
        ("2x80GiB", ("80GiB", 2)),
        ("RTX 3060", ("RTX 3060", 1)),
        ("rtx3060", ("rtx3060", 1)),
        ("rx7800", ("rx7800", 1)),
        ("3060x2", ("3060", 2)),
        ("2x4060ti-16gb", ("4060ti-16gb", 2)),
        ("rtx 4060 ti 16gb x2", ("rtx 4060 ti 16gb", 2)),
        ("2x7900xtx", ("7900xtx", 2)),
        ("7900xtxx2", ("7900xtx", 2)),
    ],
)
def test_counts(text: str, expected: tuple[str, int]) -> None:
    assert parse_gpu_count(text) == expected


@given(st.sampled_from(list_keys()), st.integers(2, 64))
def test_the_x_of_a_name_is_no_count(key: str, digits: int) -> None:
    """However a name that begins like a known one goes on, the part before its x is not taken for a GPU."""
    for place in (index for index, letter in enumerate(key) if letter == "x" and index):
        head = key[:place]
        name, count = parse_gpu_count(f"{key[: place + 1]}{digits}")
        assert (name, count) == (f"{key[: place + 1]}{digits}", 1) or key_of(name) in list_keys(), head


@example("4090", 3)
@example("5090", 5)
@given(st.sampled_from(list_keys()), st.integers(1, 64))
def test_every_name_with_a_count_before_it_is_read_back(key: str, count: int) -> None:
    """``3x4090`` is no 4,090 times what begins with 3."""
    assert parse_gpu_count(f"{count}x{key}") == (key, count)


@given(st.sampled_from(list_keys()))
def test_a_name_is_never_a_size(key: str) -> None:
    assert gpus.gpu_of_size(key) is None


@given(
    st.sampled_from(["T4", "L4", "A10", "A16", "A40", "L40", "L40S", "A2"]),
    st.sampled_from([1, 2, 4, 8, 12, 16, 24, 48]),
    st.sampled_from("QC"),
    st.sampled_from(["", "GRID ", "nvidia-"]),
)
def test_a_vgpu_profile_is_no_size_and_no_other_card(board: str, size: int, series: str, head: str) -> None:
    """It is its board's class with the profile's frame buffer; one larger than the board does not exist."""
    name = f"{head}{board}-{size}{series}"
    assert gpus.gpu_of_size(name) is None
    sold = int(load_gpu(board).memory_marketing.split()[0])
    if size > sold:
        with pytest.raises(KvplanError) as caught:
            load_gpu(name)
        assert caught.value.code == "unknown-gpu"
        return
    found = load_gpu(name)
    assert (found.is_vgpu, found.memory_nvml_bytes, found.memory_total_bytes) == (True, size * GIB, None)
    assert found.compute_capability == load_gpu(board).compute_capability
    assert load_gpu(found.slug) == found


@pytest.mark.parametrize(("name", "slug"), [
    ("9060 XT 16GB", "rx-9060-xt-16gb"), ("9060XT 16g", "rx-9060-xt-16gb"),
    ("RTX 6000 Pro", "rtx-pro-6000-blackwell-96gb"), ("RTX PRO 6000 Server", "rtx-pro-6000-blackwell-96gb"),
    ("RTX 8000", "quadro-rtx-8000-48gb"), ("RTX 4090 mobile", "rtx-4090-laptop-16gb"),
    ("Jetson Thor", "jetson-agx-thor-128gb"), ("AGX Orin", "jetson-agx-orin-64gb"),
    ("MacBook Pro M4 Max 128GB", "m4-max-128gb"), ("Mac Studio M3 Ultra 256GB", "m3-ultra-256gb"),
    ("Mac mini M4 16GB", "m4-16gb"), ("MacBook Pro M4 Max", "m4-max-128gb"),
    ("m4-pro-48", "m4-pro-48gb"), ("4060ti-16", "rtx-4060-ti-16gb"), ("m4-max 64", "m4-max-64gb"),
    ("RTX 3060 12", "rtx-3060-12gb"), ("A100 40", "a100-sxm-40gb"),
])  # fmt: skip
def test_names_with_words_left_out_or_moved(name: str, slug: str) -> None:
    assert load_gpu(name).slug == slug
    assert gpus.parse_gpu_count(f"2x {name}") == (name, 2)


@pytest.mark.parametrize("name", ["m4-max-640gb", "m4-max 640", "M2 Pro 64GB", "m3-ultra-4gb"])
def test_no_mac_has_a_memory_that_none_is_sold_with(name: str) -> None:
    with pytest.raises(KvplanError, match=r"is sold with 8 to \d+ GB, not with \d+"):
        load_gpu(name)


@pytest.mark.parametrize(("name", "slug", "size"), [
    ("2080 Ti 22GB", "rtx-2080-ti-22gb", 22), ("RTX 4080 32GB", "rtx-4080-32gb", 32),
    ("3080-20g", "rtx-3080-20gb", 20), ("RTX 3070 16 GB", "rtx-3070-16gb", 16),
])  # fmt: skip
def test_a_modified_card_is_its_class_with_another_memory(name: str, slug: str, size: int) -> None:
    found = load_gpu(name)
    assert (found.slug, found.memory_total_bytes, found.memory_nvml_bytes) == (slug, None, size * GIB)
    assert found.note is not None
    assert "modified" in found.note
    assert load_gpu(slug) == found


CARDS = [gpu for gpu in list_gpus() if gpu.vendor == "nvidia"]


@for_each("card", CARDS, ids=lambda gpu: gpu.slug)
def test_a_card_under_wsl_has_all_that_nvidia_smi_shows(card: Gpu) -> None:
    plain = card.mig_parent is None and card.memory_nvml_bytes is not None
    for query in (f"{card.slug}-wsl", f"{card.slug} WSL2", f"{card.slug}@wsl"):
        if not plain:
            with pytest.raises(KvplanError):
                load_gpu(query)
            continue
        found = load_gpu(query)
        assert found.slug == f"{card.slug}-wsl"
        assert found.memory_total_bytes == found.memory_nvml_bytes == card.memory_nvml_bytes
        assert load_gpu(found.slug) == found
        assert under_wsl(found) is found
        assert gpus.parse_gpu_count(f"2x{found.slug}") == (found.slug, 2)


@pytest.mark.parametrize(
    "name", ["MX450", "RTX 3090 6GB", "RTX 4090 999GB", "7900 XTX 48GB", "Strix Halo 96GB", "4100D"]
)
def test_what_is_no_known_card_stays_unknown(name: str) -> None:
    """A name is no count of what its first letter begins, nor another card with less or absurd memory."""
    assert gpus.parse_gpu_count(name) == (name, 1)
    with pytest.raises(KvplanError) as caught:
        load_gpu(name)
    assert caught.value.code == "unknown-gpu"


@pytest.mark.parametrize("text", ["80", "24", "99", "16.5"])
def test_a_bare_number_is_a_name_and_a_size_has_a_unit(text: str) -> None:
    assert gpus.gpu_of_size(text) is None
    with pytest.raises(KvplanError) as caught:
        load_gpu(text)
    assert caught.value.code == "unknown-gpu"
    assert f"{text}GiB" in caught.value.help[1]
    assert gpus.gpu_of_size(f"{text}GiB") is not None, "what help suggests works"


@pytest.mark.parametrize("text", ["h100x0", "0xh100", "h100x999999999"])
def test_bad_counts(text: str) -> None:
    with pytest.raises(KvplanError) as caught:
        parse_gpu_count(text)
    assert caught.value.code == "bad-gpu-count"


@given(st.sampled_from(list_slugs()), st.integers(1, gpus.MAX_GPUS))
def test_slugs_with_a_count_are_read_back(slug: str, count: int) -> None:
    assert parse_gpu_count(slug) == (slug, 1)
    assert parse_gpu_count(f"{slug}x{count}") == (slug, count)
    assert parse_gpu_count(f"{count}x{slug}") == (slug, count)


@given(st.text(max_size=30))
def test_any_text_is_a_gpu_or_a_kvplan_error(text: str) -> None:
    with contextlib.suppress(KvplanError):
        assert load_gpu(parse_gpu_count(text)[0]).slug in list_slugs()


def test_a_missing_data_folder_is_said() -> None:
    assert data_dir("gpu_specs").is_dir()
    with pytest.raises(CannotRunHere) as caught:
        data_dir("no_such_folder")
    assert caught.value.exit_code == 3


def test_a_name_is_not_the_beginning_of_a_longer_number() -> None:
    """An L2 is no L20, a B10 no B100."""
    for name in ("l2", "B10", "t40"):
        with pytest.raises(KvplanError, match=r"unknown GPU|could be any"):
            load_gpu(name)


def test_a_machine_s_name_says_its_gpu() -> None:
    for name, slug in (("g5.xlarge", "a10g-24gb"), ("a3-highgpu-8g", "h100-sxm-80gb")):
        with pytest.raises(KvplanError) as caught:
            load_gpu(name)
        assert f"--gpu {slug}" in " ".join(caught.value.help)
