"""A site's private key never leaves it: the site makes key and request, the coordinator signs.

    fedquilt site request north North_Hospital --out keys      at the site
    fedquilt deploy approve study.toml north.csr               at the coordinator
    fedquilt site accept kits/north --key keys/north.key       at the site

What travels, the request and the kit, holds no secret.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import (
    CertificateSigningRequest,
    CertificateSigningRequestBuilder,
    Name,
    NameAttribute,
    load_pem_x509_csr,
)
from cryptography.x509.oid import NameOID
from nvflare.lighter.utils import load_private_key_file

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.certificates import (
    Authority,
    fingerprint,
    new_key,
    public_bytes,
    read_certificate,
    write_private,
)
from fedquilt.deploy.nvflare.provision import subjects, write_kit
from fedquilt.deploy.nvflare.seal import check_seal, seal
from fedquilt.deploy.study import NAME, ORGANISATION, Study

MAX_REQUEST_BYTES = 2**16


def make_request(site: str, organisation: str, out: Path) -> tuple[Path, Path, str]:
    """Make a private key and a request for a certificate; return both files and a fingerprint.

    Raise UserError if the site has a key there already: a new one would make its kit useless.
    """
    if not NAME.fullmatch(site) or not ORGANISATION.fullmatch(organisation):
        raise UserError(
            f"a site named {site!r} of {organisation!r}: give both as in the study file: small "
            "letters, digits and hyphens; letters, digits and underscores"
        )
    key_file, request_file = out / f"{site}.key", out / f"{site}.csr"
    if key_file.exists():
        raise UserError(
            f"{key_file} already exists; it belongs to the kit that was made for it. Give another "
            "--out for a new key"
        )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = new_key(key_file)
    name = Name(
        [
            NameAttribute(NameOID.COMMON_NAME, site),
            NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
        ]
    )
    request = CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    request_file.write_bytes(request.public_bytes(Encoding.PEM))
    return key_file, request_file, fingerprint(key.public_key())


def approve(study: Study, request_file: Path, authority: Authority, out: Path) -> tuple[Kit, str]:
    """Write a kit without a private key for the site that made the request."""
    request = _read_request(request_file)
    site, organisation = (
        _attribute(request, each) for each in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    )
    agreed = study.site(site)
    if organisation != agreed.organisation:
        raise UserError(
            f"{request_file} is a request of {shown(site)} of {shown(organisation)}, and the study "
            f"knows it as a site of {agreed.organisation}; ask the site for another request"
        )
    kit = Kit(out / site)
    if kit.folder.exists():
        raise UserError(
            f"{kit.folder} already exists: {site} has a certificate. Renew it with `fedquilt "
            "deploy renew`. If the site has lost its key, or someone else may have it, a new kit "
            "alone does not keep the old one out: exclude the site with `fedquilt deploy exclude`"
        )
    public_key = request.public_key()
    write_kit(study, kit, site, authority, public_key)
    return kit, fingerprint(public_key)


def accept(folder: Path, key_file: Path) -> tuple[Kit, str]:
    """Put the site's own key into its new kit; return the kit and the authority's fingerprint."""
    kit = Kit(folder.resolve())
    kit.require()
    try:
        key = load_private_key_file(str(key_file))
        certificate = read_certificate(kit.certificate)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"{key_file} and {kit.certificate} are not a private key and a certificate: {error}"
        ) from error
    if public_bytes(key.public_key()) != public_bytes(certificate.public_key()):
        raise UserError(
            f"the kit {kit.folder} was made for another key than {key_file}; give the key that the "
            "request was made with, or make a new request"
        )
    if not kit.key.exists():
        write_private(kit.key, key_file.read_bytes())
    check_seal(kit)
    return kit, fingerprint(read_certificate(kit.authority).public_key())


def renew(kit: Kit, authority: Authority) -> datetime:
    """Give a kit a new certificate for the same key; return the moment until which it is valid."""
    study, name = kit.study(), kit.role()
    try:
        old = read_certificate(kit.certificate)
    except (OSError, ValueError) as error:
        raise UserError(f"{kit.certificate} is not a certificate: {error}") from error
    if kit.authority.read_bytes() != authority.certificate_file.read_bytes():
        raise UserError(f"{kit.folder} is not a kit of the authority in {authority.folder}")
    issued = authority.issue(subjects(study)[name], old.public_key())
    write_bytes(kit.certificate, issued.public_bytes(Encoding.PEM))
    seal(kit, authority)
    end: datetime = issued.not_valid_after_utc
    return end


def _read_request(path: Path) -> CertificateSigningRequest:
    try:
        with path.open("rb") as file:
            request = load_pem_x509_csr(file.read(MAX_REQUEST_BYTES))
        if not request.is_signature_valid:
            raise InvalidSignature("its signature is not of its key")
        if getattr(request.public_key(), "key_size", 0) < 2048:
            raise ValueError("its key is not an RSA key of 2048 bits or more")
    except (OSError, ValueError, InvalidSignature) as error:
        raise UserError(
            f"{path} is not a request of a site ({error}); `fedquilt site request` makes one"
        ) from error
    return request


def _attribute(request: CertificateSigningRequest, kind: Any) -> str:
    found = request.subject.get_attributes_for_oid(kind)
    return str(found[0].value) if len(found) == 1 else ""
