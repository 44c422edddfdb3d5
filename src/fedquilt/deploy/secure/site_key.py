"""A site's long-lived key: it signs the keys of every sum, so that the server cannot swap them.

The site makes it; the public half is in the study, so in its hash, before any kit is made.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedquilt.core.errors import UserError
from fedquilt.deploy.secure.terms import key_bytes, key_text
from fedquilt.deploy.study import NAME, Study

SUFFIX = ".sums.key"


def make_key(site: str, out: Path) -> tuple[Path, str]:
    """Make a key; return its file and the line for the study.

    Raise UserError if the site has one there already: a study may hold its public half.
    """
    if not NAME.fullmatch(site):
        raise UserError(
            f"a site named {site!r}: give its name as in the study file, small letters, digits "
            "and hyphens"
        )
    path = out / f"{site}{SUFFIX}"
    if path.exists():
        raise UserError(
            f"{path} already exists, and a study may know its public half: {public_text(path)}. "
            "Use that, or give another --out for a new key"
        )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Ed25519PrivateKey.generate()
    text = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return path, public_text(path)


def public_text(path: Path) -> str:
    return key_text(_read(path).public_key().public_bytes_raw())


def open_key(path: str | None, study: Study, site: str) -> Ed25519PrivateKey:
    """Return the site's key; raise UserError unless it is the one that the study knows."""
    if path is None:
        raise UserError(
            f"{study.name} sums securely: give site.toml a sums_key, the file that `fedquilt site "
            f"key {site}` made"
        )
    key = _read(Path(path))
    found, agreed = key_text(key.public_key().public_bytes_raw()), study.site(site).key
    if found != agreed:
        raise UserError(
            f"{path} is the key {found}, and the study knows {site} by {agreed}; give the key that "
            "the study was agreed with"
        )
    return key


def signers(study: Study) -> dict[str, Ed25519PublicKey]:
    """Return every site's public key."""
    return {
        site.name: Ed25519PublicKey.from_public_bytes(key_bytes(str(site.key), site.name))
        for site in study.sites
    }


def key_fingerprint(text: str) -> str:
    """Return a hash of a public key that two people can compare on the telephone."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:40]
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def _read(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("it is a key of another kind")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} is not a key for secure sums ({error}); `fedquilt site key NAME` makes one"
        ) from error
    return key
