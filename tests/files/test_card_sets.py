"""A released set of cards: taken when it is signed, checked card by card, and refused in every other case."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvplan
from kvplan.errors import KvplanError
from kvplan.files.cards import find
from kvplan.files.cards.index import newer_cards, packaged_index
from kvplan.files.cards.installed import FILE, user_folder
from kvplan.files.cards.released import FORMAT, MOST_UNPACKED, read_set
from kvplan.files.cards.updating import update_cards
from kvplan.files.datafiles import data_dir
from scripts import make_card_set
from scripts.make_card_set import card_set, packed

DAY = "2026-11-23"
LLAMA = (data_dir("model_cards") / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
NEW = (
    (data_dir("model_cards") / "opt-125m.yaml")
    .read_text(encoding="utf-8")
    .replace("facebook/opt-125m", "acme/Zephyr-9")
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder of the test's own, and nothing remembered."""
    monkeypatch.setenv("KVPLAN_DATA_DIR", str(tmp_path / "data"))
    find.forget()
    yield tmp_path
    monkeypatch.undo()
    find.forget()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def released(folder: Path, cards: dict[str, str], version: str = kvplan.__version__) -> tuple[str, str]:
    """A file with such a set, and its digest."""
    data = packed(DAY, cards, version)
    path = folder / "set.bin"
    path.write_bytes(card_set(data))
    return str(path), digest(data)


def code_of(*words: Any, **more: Any) -> str:
    with pytest.raises(KvplanError) as caught:
        update_cards(*words, **more)
    return caught.value.code


def test_a_new_model_needs_no_release(folder: Path) -> None:
    path, sha256 = released(folder, {"zephyr-9": NEW})
    done = update_cards(path, sha256=sha256)
    assert (done.new, done.changed, done.newer) == (("zephyr-9",), (), True)
    answer = kvplan.size("acme/zephyr-9", engine="generic", tokens=1000)
    assert answer.total == kvplan.size("opt-125m", engine="generic", tokens=1000).total
    assert answer.model.source == f"card:zephyr-9@{DAY}"
    assert "zephyr-9" in packaged_index()["cards"]


def test_a_card_is_replaced_and_named(folder: Path) -> None:
    path, sha256 = released(
        folder, {"llama-3.1-8b": LLAMA.replace("max_model_len: 131072", "max_model_len: 4096")}
    )
    assert update_cards(path, sha256=sha256).changed == ("llama-3.1-8b",)
    assert find.load_card("meta-llama/Llama-3.1-8B").max_model_len == 4096
    assert find.load_card("qwen3-8b").source == "card:qwen3-8b"


def test_a_newer_kvplan_brings_them_itself(folder: Path) -> None:
    path, sha256 = released(folder, {"zephyr-9": NEW}, "0.0.1")
    assert not update_cards(path, sha256=sha256).newer
    assert newer_cards() is None
    with pytest.raises(KvplanError, match="unknown model"):
        find.load_card("acme/zephyr-9")


def test_signatures(folder: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra update")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    private = keys[0].private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    path = folder / "set.bin"
    path.write_bytes(card_set(packed(DAY, {"zephyr-9": NEW}), private))
    for place, key in enumerate(keys):
        public = key.public_key()
        pem = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        raw = public.public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)
        for name, text in (("pem", pem), ("hex", raw.hex().encode())):
            (folder / name).write_bytes(text)
            if place == 0:
                assert update_cards(str(path), key=str(folder / name)).cards == 1
            else:
                assert code_of(str(path), key=str(folder / name)) == "bad-signature"
    (folder / "none").write_text("no key")
    assert code_of(str(path), key=str(folder / "none")) == "bad-key"


def test_nobody_vouches_for_it(folder: Path) -> None:
    path, _ = released(folder, {"zephyr-9": NEW})
    assert code_of(path) == "unsigned"
    assert code_of(path, sha256="0" * 64) == "bad-signature"
    assert not (user_folder() / FILE).exists()


@given(st.data())
def test_no_changed_byte_is_taken(data: st.DataObject) -> None:
    body = packed(DAY, {"zephyr-9": NEW})
    whole = bytearray(card_set(body))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        taken = read_set(bytes(whole), name="set", sha256=digest(body))
    except KvplanError:
        return
    assert taken.cards == {"zephyr-9": NEW}  # a byte of the header that says nothing


@pytest.mark.parametrize(
    ("cards", "code"),
    [
        ({}, "bad-card-set"),
        ({"../../etc/passwd": NEW}, "bad-card-set"),
        ({"UPPER": NEW}, "bad-card-set"),
        ({"zephyr-9": "kvplan: card/v1\nid: x\n"}, "missing-key"),
        ({"zephyr-9": "&a [*a, *a]"}, ""),
        ({"zephyr-9": NEW, "zephyr-8": NEW}, "duplicate-model-name"),
        ({"zephyr-9": NEW.replace("acme/Zephyr-9", "meta-llama/Llama-3.1-8B")}, "duplicate-model-name"),
    ],
    ids=["none", "path", "letters", "half", "anchors", "twice", "another's name"],
)
def test_hostile_cards(folder: Path, cards: dict[str, str], code: str) -> None:
    path, sha256 = released(folder, cards)
    assert code_of(path, sha256=sha256) == (code or code_of(path, sha256=sha256))
    assert not (user_folder() / FILE).exists()


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(b"[" * 100_000),
        gzip.compress(b" " * (MOST_UNPACKED + 2)),
        gzip.compress(b"{}") + b"more",
        gzip.compress(b"{}")[:-4],
        gzip.compress(json.dumps({"format": FORMAT, "made": "soon", "kvplan": "1.0", "cards": {}}).encode()),
    ],
    ids=["no gzip", "deep", "bomb", "behind", "cut", "when"],
)
def test_hostile_data(folder: Path, data: bytes) -> None:
    path = folder / "set.bin"
    path.write_bytes(card_set(data))
    assert code_of(str(path), sha256=digest(data))
    path.write_bytes(data)
    assert code_of(str(path), sha256=digest(data))


def test_an_installed_file_that_was_changed_is_named(folder: Path) -> None:
    path, sha256 = released(folder, {"zephyr-9": NEW})
    update_cards(path, sha256=sha256)
    (user_folder() / FILE).write_text('{"made": "2026-11-23"}')
    find.forget()
    with pytest.raises(KvplanError, match="changed by hand"):
        find.load_card("qwen3-8b")


def test_from_a_url(folder: Path) -> None:
    path, sha256 = released(folder, {"zephyr-9": NEW})
    content = Path(path).read_bytes()

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/a/set.bin" else 404)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            """Silent."""

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        assert update_cards(f"{base}/a/set.bin", sha256=sha256).new == ("zephyr-9",)
        assert code_of(f"{base}/none", sha256=sha256) == "unreachable"
        server.shutdown()


def test_the_set_that_a_release_writes_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the workflow calls it, with a key of the test's own: every card of this checkout is in it."""
    pytest.importorskip("cryptography", reason="the extra update")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate()
    key, output = folder / "card-set.pem", folder / "kvplan-cards.bin"
    key.write_bytes(made.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    monkeypatch.setattr("sys.argv", ["make_card_set", str(output), "--key", str(key)])
    make_card_set.main()
    found = read_set(output.read_bytes(), name="x", key=made.public_key().public_bytes_raw())
    assert set(found.cards) == set(packaged_index()["cards"])
    monkeypatch.setattr(make_card_set, "KEYS", {"9.9": "0" * 64})
    with pytest.raises(SystemExit, match="none of KEYS"):
        make_card_set.main()


def test_a_set_that_would_not_be_taken_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cards").mkdir()
    (folder / "cards" / "Not A Slug.yaml").write_text(NEW, encoding="utf-8")
    monkeypatch.setattr(make_card_set, "CARDS", folder / "cards")
    monkeypatch.setattr("sys.argv", ["make_card_set", str(folder / "set.bin")])
    with pytest.raises(KvplanError, match="is no card's name"):
        make_card_set.main()
    assert not (folder / "set.bin").exists()


def test_the_same_cards_give_the_same_bytes() -> None:
    assert packed(DAY, {"b": "1", "a": "2"}) == packed(DAY, {"a": "2", "b": "1"})
