"""An option whose name is nearly that of one stops the server's own parser, and kvplan."""

from __future__ import annotations

import pytest

from kvplan.api.launching import import_launches
from kvplan.errors import KvplanError

DROPPED = {
    "swap-space 3": "0.17", "max-seq-len-to-capture 3": "0.10", "enable-reasoning": "0.9",
    "guided-decoding-backend x": "0.10", "disable-frontend-multiprocessing": "0.18",
    "disable-log-requests": "0.16", "preemption-mode swap": "0.10", "scheduler-delay-factor 3": "0.10",
    "use-v2-block-manager": "0.9", "disable-mm-preprocessor-cache": "0.12", "device tpu": "0.9",
    "num-scheduler-steps 3": "0.9", "task generate": "0.12", "lora-extra-vocab-size 3": "0.11",
    "num-lookahead-slots 3": "0.11",
}  # fmt: skip
"""Option that changes no byte, or that is named → the last release with it."""
NAMED = ("device", "num-scheduler-steps", "lora-extra-vocab-size", "num-lookahead-slots")
UNKNOWN = "speculative-model num-speculative-tokens worker-use-ray".split()
"""Options of releases before those that kvplan knows."""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("vllm serve x/y --tensor-paralel-size 2", "--tensor-parallel-size"),
        ("vllm serve x/y --gpu-memory-utilisation=0.5", "--gpu-memory-utilization"),
        ("vllm serve x/y --kv-cache-type fp8", "--kv-cache-dtype"),
        ("python -m sglang.launch_server --model x/y --mem-fraction-statik 0.8", "--mem-fraction-static"),
        ("llama-server -m x.gguf -ngl 99 --ctx-sise 4096", "--ctx-size"),
    ],
)
def test_a_misspelled_option_is_an_error(words: str, meant: str) -> None:
    with pytest.raises(KvplanError) as caught:
        import_launches(words)
    assert caught.value.code == "unknown-flag"
    assert caught.value.help == (f"did you mean {meant}?",)


@pytest.mark.parametrize(("words", "last"), DROPPED.items())
def test_what_a_release_has_dropped_takes_the_last_one_with_it(words: str, last: str) -> None:
    (launch,) = import_launches(f"vllm serve x/y --{words}")
    assert launch.engine == f"vllm@{last}"
    assert launch.unread == ((f"--{words}",) if words.split()[0] in NAMED else ())
    assert f"{last} is the last release" in launch.notes[0]


def test_the_oldest_of_several_decides() -> None:
    (launch,) = import_launches("vllm serve x/y --disable-log-requests --swap-space 4 --use-v2-block-manager")
    assert launch.engine == "vllm@0.9"


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_option_that_no_known_release_has_is_named(name: str) -> None:
    (launch,) = import_launches(f"vllm serve x/y --{name} 3")
    assert (launch.engine, launch.unread) == ("vllm", (f"--{name} 3",))


@pytest.mark.parametrize(("tag", "engine"), [("v0.16.0", "vllm@0.16.0"), ("v0.10.2", "vllm@0.10.2")])
def test_a_release_that_has_it_is_kept(tag: str, engine: str) -> None:
    text = f"docker run vllm/vllm-openai:{tag} --model x/y --swap-space 16"
    (launch,) = import_launches(text)
    assert (launch.engine, launch.unread) == (engine, ())


@pytest.mark.parametrize("tag", ["v0.33.0", "latest", "v0.18.0"])
def test_a_release_that_has_it_no_more_does_not_start(tag: str) -> None:
    with pytest.raises(KvplanError, match=r"has no option --swap-space: it went with 0\.18") as caught:
        import_launches(f"docker run vllm/vllm-openai:{tag} --model x/y --swap-space 16")
    assert caught.value.help == ("leave out --swap-space", "-e vllm@0.17, where the server is older")


def test_a_switch_that_took_a_word() -> None:
    (launch,) = import_launches("vllm serve x/y --enable-chunked-prefill False --dtype half")
    assert (launch.model, launch.serve) == ("x/y", {"enable_chunked_prefill": False, "dtype": "half"})
    (launch,) = import_launches("vllm serve --enable-chunked-prefill x/y")
    assert (launch.model, launch.serve) == ("x/y", {})
