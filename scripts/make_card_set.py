"""Write a set of cards to release: every card of model_cards/, packed, with its digest and a signature.

    python -m scripts.make_card_set OUTPUT [--key PRIVATE.pem] [--date 2026-11-23]

PRIVATE.pem is an Ed25519 private key (``openssl genpkey -algorithm ed25519``), which lies with the release
workflow's secrets and nowhere else; without it the set has a digest only. The same cards give the same bytes.
Nothing is written that `kvplan cards update` would not take.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import gzip
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.files.cards.released import FORMAT, KEYS, CardSet, read_set, signed_bytes
from kvplan.version import __version__

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CARDS = Path(__file__).resolve().parents[1] / "model_cards"


def packed(made: str, cards: dict[str, str], version: str = __version__) -> bytes:
    """The data of a set, without its header."""
    body = {"format": FORMAT, "made": made, "kvplan": version, "cards": cards}
    return gzip.compress(json.dumps(body, ensure_ascii=False, sort_keys=True).encode(), 9, mtime=0)


def card_set(data: bytes, key: bytes | None = None) -> bytes:
    """The whole file. key: an Ed25519 private key as PEM."""
    digest = hashlib.sha256(data).hexdigest()
    header = {"format": FORMAT, "sha256": digest}
    if key is not None:
        header["signature"] = base64.b64encode(_signer(key).sign(signed_bytes(digest))).decode()
    return json.dumps(header).encode() + b"\n" + data


def _signer(key: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    signer = load_pem_private_key(key, None)
    if not isinstance(signer, Ed25519PrivateKey):
        raise SystemExit("the key is no Ed25519 private key")
    return signer


def check(whole: bytes, key: bytes | None = None) -> CardSet:
    """The set as `kvplan cards update` takes it. Raises KvplanError where it would refuse it, and SystemExit
    where the released kvplan has other keys than this one."""
    if key is None:
        return read_set(whole, name="the set", sha256=hashlib.sha256(whole.partition(b"\n")[2]).hexdigest())
    public = _signer(key).public_key().public_bytes_raw()
    if KEYS and public.hex() not in KEYS.values():
        raise SystemExit("the key is none of KEYS in kvplan/files/cards/released.py (SECURITY.md)")
    return read_set(whole, name="the set", key=public)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    given = parser.parse_args()
    cards = {path.stem: path.read_text(encoding="utf-8") for path in sorted(CARDS.glob("*.yaml"))}
    data = packed(given.date, cards)
    key = None if given.key is None else given.key.read_bytes()
    whole = card_set(data, key)
    check(whole, key)
    given.output.write_bytes(whole)
    print(f"{given.output}: {len(cards)} cards, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
