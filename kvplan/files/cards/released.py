"""A released set of cards: one file, signed, read as what a stranger sent.

The file's first line is JSON: ``{"format", "sha256", "signature"}``; the rest, of which ``sha256`` is the
digest, is gzip of JSON: ``{"format", "made", "kvplan", "cards": {slug: YAML}}``. ``signature`` is Ed25519
(RFC 8032) over `signed_bytes`. scripts/make_card_set.py writes it; docs/adr/0006-card-sets.md says why so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

from kvplan.errors import CannotRunHere, KvplanError
from kvplan.files.json_input import parse_json, read_limited
from kvplan.later import regex
from kvplan.record import record
from kvplan.units import MIB
from kvplan.version import __version__

FORMAT = "kvplan card set 1"
KEYS: Mapping[str, str] = {}
"""Public keys whose releases this version takes unasked: name → 64 hexadecimal digits. The first release that
is signed puts its key here."""
MOST_BYTES, MOST_UNPACKED, MOST_CARDS = 16 * MIB, 16 * MIB, 5000
_HEADER = 4096
_SLUG = regex(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_DATE = regex(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_HEX = regex(r"[0-9a-f]{64}", re.ASCII)


@record()
class CardSet:
    """made: the day; kvplan: the version whose cards it has; cards: slug → YAML; sha256: its digest."""

    made: str
    kvplan: str
    cards: Mapping[str, str]
    sha256: str


def signed_bytes(digest: str) -> bytes:
    """The bytes to sign: the format and the digest of the data."""
    return f"{FORMAT}\n{digest}\n".encode()


def read_set(data: bytes, *, name: str, key: bytes | None = None, sha256: str | None = None) -> CardSet:
    """The set in a file, once its digest is the one that was given, or signed by the key or a known one.

    Raises KvplanError: bad-card-set, unsigned, bad-signature; CannotRunHere(missing-extra).
    """
    line, _, packed = data[:_HEADER].partition(b"\n")
    if len(line) >= _HEADER:
        raise _bad(name, "its first line is no header")
    packed += data[_HEADER:]
    header = parse_json(line, name=name)
    digest = hashlib.sha256(packed).hexdigest()
    if header.get("format") != FORMAT:
        raise _bad(name, f"its format is not {FORMAT!r}")
    if header.get("sha256") != digest:
        raise _bad(name, "its data has another digest than its header says", "it was cut short or changed")
    _trust(name, header, digest, key, sha256)
    return _content(name, parse_json(_unpacked(name, packed), name=name), digest)


def _trust(
    name: str, header: Mapping[str, object], digest: str, key: bytes | None, sha256: str | None
) -> None:
    if sha256 is not None:
        if sha256.lower() != digest:
            raise KvplanError("bad-signature", f"{name} has the digest {digest}, not the one that was given")
        return
    known = [bytes.fromhex(text) for text in KEYS.values()] if key is None else [key]
    if not known:
        raise KvplanError(
            "unsigned",
            f"kvplan {__version__} knows no key of a release, so nobody vouches for {name}",
            help=("--key FILE: the public key of whoever made it", "--sha256 DIGEST: its published digest"),
        )
    try:
        signature = base64.b64decode(str(header.get("signature") or ""), validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if not any(_verifies(one, signature, signed_bytes(digest)) for one in known):
        which = "the key that was given" if key is not None else "a key that kvplan knows"
        raise KvplanError("bad-signature", f"{name} is not signed by {which}")


def _verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise CannotRunHere(
            "missing-extra",
            "a signature is verified by the package cryptography",
            help=("pip install 'kvplan[update]'", "--sha256 DIGEST: its published digest instead"),
        ) from None
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(path: Path) -> bytes:
    """The key in a file: 64 hexadecimal digits, or PEM. Raises KvplanError(bad-key)."""
    data = read_limited(path, _HEADER).strip()
    text = data.decode("ascii", "replace").lower()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    body = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    try:
        raw = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    # SubjectPublicKeyInfo of Ed25519 (RFC 8410): twelve bytes before the key's 32.
    if len(raw) != 44 or not raw.startswith(bytes.fromhex("302a300506032b6570032100")):
        raise KvplanError("bad-key", f"{path} is no Ed25519 public key", help="64 hexadecimal digits, or PEM")
    return raw[12:]


def _unpacked(name: str, packed: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        data = reader.decompress(packed, MOST_UNPACKED + 1)
    except zlib.error:
        raise _bad(name, "its data is no gzip") from None
    if len(data) > MOST_UNPACKED:
        raise _bad(name, f"it unpacks to more than {MOST_UNPACKED // MIB} MiB")
    if not reader.eof or reader.unused_data:
        raise _bad(name, "its data ends early, or goes on behind its end")
    return data


def _content(name: str, body: Mapping[str, object], digest: str) -> CardSet:
    made, version, cards = body.get("made"), body.get("kvplan"), body.get("cards")
    if body.get("format") != FORMAT or not isinstance(cards, dict):
        raise _bad(name, "it has no cards")
    if not isinstance(made, str) or not _DATE.fullmatch(made) or not _is_version(version):
        raise _bad(name, "it does not say when and of which kvplan it was made")
    if not 0 < len(cards) <= MOST_CARDS:
        raise _bad(name, f"it has {len(cards):,} cards, not 1 to {MOST_CARDS:,}")
    strange = next((slug for slug, text in cards.items() if not _is_card(slug, text)), None)
    if strange is not None:
        raise _bad(name, f"{strange[:60]!r} is no card's name, or has no text")
    return CardSet(made, str(version), cards, digest)


def _is_card(slug: str, text: object) -> bool:
    return bool(_SLUG.fullmatch(slug)) and isinstance(text, str)


def _is_version(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}", text, re.ASCII) is not None


def _bad(name: str, why: str, *helps: str) -> KvplanError:
    return KvplanError("bad-card-set", f"{name} is no set of cards: {why}", help=helps)
