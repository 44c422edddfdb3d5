"""The seal of a kit: its files' hashes, signed by the study's authority, checked at every start."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import Certificate, load_pem_x509_certificate
from nvflare.lighter.utils import (
    load_private_key,
    load_private_key_file,
    sign_content,
    verify_cert,
    verify_content,
)

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit


def seal(kit: Kit, authority: Path) -> None:
    """Sign the hashes of the kit's files with the authority's private key."""
    state = json.loads((authority / "cert.json").read_text())
    content = _content(kit)
    key = load_private_key(state["root_pri_key"])
    write_json(kit.seal, {"files": json.loads(content), "signature": sign_content(content, key)})


def check_seal(kit: Kit) -> None:
    """Raise UserError unless the kit is complete, unaltered, of one authority and not expired."""
    try:
        root, own = _certificate(kit.authority), _certificate(kit.certificate)
        key = load_private_key_file(str(kit.key))
        sealed = json.loads(kit.seal.read_text(encoding="utf-8"))
        signature, content = sealed["signature"], json.dumps(sealed["files"], sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the kit {kit.folder} is not complete ({error}); ask the coordinator for a new one"
        ) from error
    try:
        verify_cert(own, root.public_key())
    except Exception as error:
        raise UserError(
            f"the kit {kit.folder} was tampered with: its authority did not sign its certificate"
        ) from error
    _check_time(kit, root, own)
    if _public(key.public_key()) != _public(own.public_key()):
        raise UserError(f"the kit {kit.folder} was tampered with: key and certificate differ")
    try:
        verify_content(content, signature, root.public_key())
    except InvalidSignature as error:
        raise UserError(
            f"the kit {kit.folder} was tampered with: its authority did not sign its seal"
        ) from error
    if content != _content(kit):
        raise UserError(
            f"the kit {kit.folder} was tampered with: files in {kit.startup.name} differ "
            "from those that were sealed; ask the coordinator for a new kit"
        )


def _check_time(kit: Kit, root: Certificate, own: Certificate) -> None:
    now = datetime.now(UTC)
    for name, each in (("its certificate", own), ("its authority's certificate", root)):
        if not each.not_valid_before_utc <= now <= each.not_valid_after_utc:
            raise UserError(
                f"the kit {kit.folder} has expired: {name} is valid from "
                f"{each.not_valid_before_utc:%Y-%m-%d} to {each.not_valid_after_utc:%Y-%m-%d}; ask "
                "the coordinator for a new one"
            )


def _content(kit: Kit) -> str:
    files = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in kit.startup.iterdir()
        if path != kit.seal and path.is_file()
    }
    return json.dumps(files, sort_keys=True)


def _certificate(path: Path) -> Certificate:
    return load_pem_x509_certificate(path.read_bytes())


def _public(key: object) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]
