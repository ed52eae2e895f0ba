"""Write a set of cards to release: every card of model_cards/, packed, with its digest and a signature.

    python -m scripts.make_card_set OUTPUT [--key PRIVATE.pem] [--date 2026-11-23]

PRIVATE.pem is an Ed25519 private key (``openssl genpkey -algorithm ed25519``), which lies with the release
workflow's secrets and nowhere else; without it the set has a digest only. The same cards give the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import gzip
import hashlib
import json
from pathlib import Path

from kvplan.files.cards.released import FORMAT, signed_bytes
from kvplan.version import __version__

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
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        signer = load_pem_private_key(key, None)
        if not isinstance(signer, Ed25519PrivateKey):
            raise SystemExit("the key is no Ed25519 private key")
        header["signature"] = base64.b64encode(signer.sign(signed_bytes(digest))).decode()
    return json.dumps(header).encode() + b"\n" + data


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    given = parser.parse_args()
    cards = {path.stem: path.read_text(encoding="utf-8") for path in sorted(CARDS.glob("*.yaml"))}
    data = packed(given.date, cards)
    given.output.write_bytes(card_set(data, None if given.key is None else given.key.read_bytes()))
    print(f"{given.output}: {len(cards)} cards, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
