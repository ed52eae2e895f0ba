"""What a user may type for a model, and what is said when it leads nowhere."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.files.cards import find as cards
from kvplan.files.sources import open_model, read_directory

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "hidden_size": 512,
    "max_position_embeddings": 4096,
}
FP8_CACHE = {"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}}


def put(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def refusal(name: str | Path) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        open_model(str(name))
    assert caught.value.exit_code == 2
    return caught.value


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_file_and_its_directory(tmp_path: Path) -> None:
    file = put(tmp_path / "org__name" / "config.json", LLAMA)
    for name in (file, file.parent):
        model = open_model(str(name))
        assert (model.id, model.source, model.num_layers) == ("org/name", str(file), 4)
    assert read_directory(file.parent).id == "org/name"
    other = put(tmp_path / "my-model.json", LLAMA)
    assert open_model(str(other)).id == "my-model"


def test_a_snapshot_of_the_hub_cache_has_its_id(tmp_path: Path) -> None:
    file = put(tmp_path / "models--org--name" / "snapshots" / "abc" / "config.json", LLAMA)
    assert open_model(str(file.parent)).id == "org/name"


def test_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "models" / "config.json", LLAMA)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert open_model("~/models").num_layers == 4


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, json.dumps(LLAMA).encode())
    model = open_model("-")
    assert (model.id, model.source, model.num_layers) == ("stdin", "-", 4)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 10, b" " * (17 << 20)])
def test_broken_standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    give_stdin(monkeypatch, data)
    assert "<stdin>" in refusal("-").message


def test_the_quantisation_file_beside_a_config(tmp_path: Path) -> None:
    file = put(tmp_path / "config.json", LLAMA)
    assert open_model(str(tmp_path)).kv_cache_scheme is None
    beside = put(tmp_path / "hf_quant_config.json", FP8_CACHE)
    assert open_model(str(tmp_path)).kv_cache_scheme is not None
    put(beside, "{broken")
    error = refusal(file)
    assert error.code == "bad-json"
    assert str(beside) in error.message


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "has a config.json"),
        (("params.json",), "native format"),
        (("adapter_config.json",), "adapter"),
        (("m-00002-of-00002.gguf", "m-00001-of-00002.gguf"), "m-00001-of-00002.gguf"),
        (("card.yaml",), "card.yaml"),
    ],
)
def test_a_directory_without_a_config(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    for name in names:
        put(tmp_path / name, "{}")
    error = refusal(tmp_path)
    assert error.code == "no-such-file"
    assert "has no config.json" in error.message
    assert words in " ".join(error.help)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("params.json", {"dim": 4096, "n_layers": 32, "head_dim": 128}, "native format"),
        ("model.safetensors.index.json", {"metadata": {}, "weight_map": {}}, "index"),
        ("hf_quant_config.json", FP8_CACHE, "hf_quant_config.json"),
    ],
)
def test_other_json_files_of_a_model(tmp_path: Path, name: str, content: Any, words: str) -> None:
    error = refusal(put(tmp_path / name, content))
    assert error.code == "not-a-config"
    assert words in error.message


@pytest.mark.parametrize(
    "name", ["none.json", "./none", "none.yaml", "none.gguf", "/no/such/place", "~/none"]
)
def test_a_path_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "none" in refusal(name).format() or "/no/such/place" in refusal(name).message


def test_weights_are_not_a_config(tmp_path: Path) -> None:
    error = refusal(put(tmp_path / "model.safetensors", ""))
    assert (error.code, "weights" in error.message) == ("not-a-config", True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.json", "pipe.gguf", "config.json"):
        os.mkfifo(tmp_path / name)
        assert refusal(tmp_path / name).code == "not-a-file"
    assert refusal(tmp_path).code == "not-a-file", "config.json in the directory is a pipe"
    assert refusal("/dev/zero").code == "not-a-file"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_a_circle_of_links(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("config.json")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name in (tmp_path, tmp_path / "config.json", tmp_path / "a"):
        assert refusal(name).code in ("unreadable-file", "no-such-file")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything"
)
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = put(tmp_path / "config.json", LLAMA)
    file.chmod(0)
    assert refusal(file).code == "unreadable-file"
    tmp_path.chmod(0)
    assert refusal(file).code == "unreadable-file"
    tmp_path.chmod(0o700)


def test_a_permission_error_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(self: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", deny)
    error = refusal(tmp_path / "config.json")
    assert error.code == "unreadable-file"
    assert "Permission denied" in error.message


def test_an_id_without_a_card_points_to_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal("some-org/some-model-of-nobody")
    assert error.code == "unknown-model"
    assert any("hf:some-org/some-model-of-nobody" in line for line in error.help)
    assert not any("hf:org/name" in line for line in error.help)
    assert not any("hf:nothing-like-it" in line for line in refusal("nothing-like-it").help)


def test_an_address_of_the_hub_is_translated() -> None:
    error = refusal("https://huggingface.co/org/name/tree/main")
    assert error.help == ("write hf:org/name",)


@pytest.mark.parametrize("name", ["", "  ", "x" * 5000, "a\0b", "\ud800", "../" * 2000])
def test_odd_names(name: str) -> None:
    assert refusal(name).code in ("unknown-model", "no-such-file", "unreadable-file")


def test_a_revision_is_for_the_hub(tmp_path: Path) -> None:
    put(tmp_path / "config.json", LLAMA)
    with pytest.raises(KvplanError) as caught:
        open_model(str(tmp_path), revision="main")
    assert caught.value.code == "bad-setting"


def test_a_folder_that_is_called_like_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_model(str(put(tmp_path / "elsewhere" / "config.json", LLAMA)))
    monkeypatch.setattr(cards, "load_card", lambda name: model)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-card").mkdir()
    assert open_model("a-card") is model
    with pytest.raises(KvplanError, match=r"has no config\.json"):
        open_model("./a-card")
    put(tmp_path / "a-card" / "config.json", {**LLAMA, "num_hidden_layers": 5})
    assert open_model("a-card").num_layers == 5
