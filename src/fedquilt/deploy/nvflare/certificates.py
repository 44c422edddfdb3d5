"""Authority: the study's own certificate authority, and the keys and certificates it vouches for.

The certificates have the form of FLARE's own provisioning, which its server and clients expect.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import Certificate, load_pem_x509_certificate
from nvflare.lighter.utils import (
    Identity,
    generate_cert,
    generate_keys,
    load_private_key,
    serialize_pri_key,
    sign_content,
)

from fedquilt.core.errors import UserError

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 360
# Certificates are valid from a day before they were made: a clock may be slow.
SLOW_CLOCK = timedelta(days=1)
MAX_NAME = 64  # characters of a common name in a certificate


@dataclass(frozen=True)
class Subject:
    """Whom a certificate is for."""

    name: str  # a site's name, the server's host, or the coordinator's login
    organisation: str
    role: str | None = None  # FLARE's role of a coordinator
    host: str | None = None  # of a server

    @property
    def common_name(self) -> str:
        return self.name[:MAX_NAME]


@dataclass(frozen=True)
class Authority:
    """A folder with the authority's private key and its certificate."""

    folder: Path

    @property
    def key_file(self) -> Path:
        return self.folder / "authority.key"

    @property
    def certificate_file(self) -> Path:
        return self.folder / "rootCA.pem"

    @classmethod
    def create(cls, folder: Path, study: str) -> Authority:
        """Make a new authority for a study in a new folder that only its owner can read."""
        authority = cls(folder)
        folder.mkdir(mode=0o700, parents=True)
        key = new_key(authority.key_file)
        made = generate_cert(
            subject=Identity(study),
            issuer=Identity(study),
            signing_pri_key=key,
            subject_pub_key=key.public_key(),
            ca=True,
            not_valid_before=datetime.now(UTC) - SLOW_CLOCK,
            not_valid_after=datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS),
        )
        authority.certificate_file.write_bytes(made.public_bytes(Encoding.PEM))
        return authority

    def issue(
        self, subject: Subject, public_key: Any, *, days: float = CERTIFICATE_DAYS
    ) -> Certificate:
        """Return a certificate for a public key; ``days`` may be negative in tests."""
        root = read_certificate(self.certificate_file)
        end = datetime.now(UTC) + timedelta(days=days)
        return generate_cert(
            subject=Identity(subject.common_name, subject.organisation, subject.role),
            issuer=Identity(common_name(root)),
            signing_pri_key=self._key(),
            subject_pub_key=public_key,
            server_default_host=subject.host,
            not_valid_before=min(datetime.now(UTC), end) - SLOW_CLOCK,
            not_valid_after=min(end, root.not_valid_after_utc),
        )

    def sign(self, content: str) -> str:
        return str(sign_content(content, self._key()))

    def _key(self) -> Any:
        try:
            return load_private_key(self.key_file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.folder} is not the folder of a study's authority ({error}); `fedquilt "
                "deploy provision` makes it beside the kits"
            ) from error


def new_key(path: Path) -> Any:
    """Make a private key and write it to a file that only its owner can read."""
    key, _ = generate_keys()
    write_private(path, serialize_pri_key(key))
    return key


def write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def read_certificate(path: Path) -> Certificate:
    return load_pem_x509_certificate(path.read_bytes())


def common_name(certificate: Certificate) -> str:
    from cryptography.x509.oid import NameOID

    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def public_bytes(key: Any) -> bytes:
    """Return a public key in a form that can be compared."""
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def fingerprint(public_key: Any) -> str:
    """Return a hash of a public key that two people can compare on the telephone."""
    digest = hashlib.sha256(public_bytes(public_key)).hexdigest()[:40]
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def canonical_json(content: Any) -> str:
    """Return the text that is signed for some JSON content."""
    return json.dumps(content, sort_keys=True)
