"""Which release a build is like, by the source lines that its log prints."""

from __future__ import annotations

import pytest

from kvplan.comparison.recognise import choose
from kvplan.engines.vllm.words.printed import _releases, _table, nearest_release
from tests.comparison.logs import observed

LINE = "INFO 05-05 12:00:00 [{place}] {text}\n"
WORKER, UTILS = ("gpu_worker.py", "Available KV cache memory:"), ("kv_cache_utils.py", "KV cache size:")


@pytest.mark.parametrize("release", _releases())
def test_every_release_is_its_own_nearest(release: str) -> None:
    """All its lines tell a release; patches that moved none of them are told as the first of them."""
    own = {place: lines[release] for place, lines in _table().items() if release in lines}
    found = nearest_release(own)
    assert found is not None
    assert found[1]
    assert all(_table()[place].get(found[0]) == line for place, line in own.items())


def test_places_that_are_nobodys() -> None:
    assert nearest_release({}) is None
    assert nearest_release({("gpu_worker.py", "nothing that is logged"): 3}) is None
    assert nearest_release({WORKER: 2, UTILS: 3}) is None


def _log(version: str | None, worker: int, utils: int, folder: str = "") -> str:
    config = f"Initializing a V1 LLM engine (v{version}) with config: model='x', dtype=torch.bfloat16"
    return "".join(
        LINE.format(place=place, text=text)
        for place, text in (
            *([("core", config)] if version is not None else []),
            (f"{folder}gpu_worker.py:{worker}", "Available KV cache memory: 10.00 GiB"),
            (f"{folder}kv_cache_utils.py:{utils}", "GPU KV cache size: 1,000 tokens"),
        )
    )


@pytest.mark.parametrize(
    ("version", "worker", "utils", "rules", "memory"),
    [
        ("0.1.dev1+gabc", 508, 2146, "0.24", "0.24.0"),
        ("0.19.2rc1.dev134+gabc", 440, 1337, "0.19", "0.20.0"),  # the cache of one, the memory of the next
        (None, 440, 1711, "0.20", "0.20.0"),
        ("0.23.1rc1.dev7+gabc", 2, 3, "0.24", "0.24"),  # no line is known: on the way to the next
    ],
)
@pytest.mark.parametrize("folder", ["", "v1/worker/"])
def test_development_builds(
    version: str | None, worker: int, utils: int, rules: str, memory: str, folder: str
) -> None:
    choice, sure, said = choose(observed(_log(version, worker, utils, folder)), None)
    assert (choice.version, choice.asked) == (rules, memory)
    assert sure is False
    assert "those rules were applied" in said[0]


def test_a_release_is_what_it_says() -> None:
    """Lines of another release change nothing where a release is printed."""
    choice, sure, _ = choose(observed(_log("0.30.0", 508, 2146)), None)
    assert (choice.version, sure) == ("0.30", True)
