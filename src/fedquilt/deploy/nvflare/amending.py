"""How a site joins a running study.

    fedquilt deploy amend new_study.toml --reason "..."        at the coordinator
    fedquilt site agree kits/north amendment.json              at every site of before
    fedquilt deploy adopt amendment.json north.agreed.json ... at the coordinator

``adopt`` gives the kits of before the new agreement; the joining site gets one as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import Certificate, load_pem_x509_certificate
from nvflare.lighter.utils import (
    load_private_key_file,
    sign_content,
    verify_cert,
    verify_content,
)

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.deploy.amendment import (
    Agreement,
    Amendment,
    read_agreement,
    read_amendment,
    read_amendments,
    write_amendments,
)
from fedquilt.deploy.kit import COORDINATOR, SERVER, Kit
from fedquilt.deploy.nvflare.certificates import (
    Authority,
    common_name,
    public_bytes,
    read_certificate,
)
from fedquilt.deploy.nvflare.provision import write_kit
from fedquilt.deploy.nvflare.seal import check_seal
from fedquilt.deploy.protocol.lineage import MAX_REASON
from fedquilt.deploy.study import Study


def propose(kit: Kit, after: Study, reason: str, out: Path) -> Amendment:
    """Write an amendment of the coordinator's study for its sites to sign."""
    if not 1 <= len(reason.strip()) <= MAX_REASON:
        raise UserError(f"give a reason of 1 to {MAX_REASON} characters: every site reads it")
    if out.exists():
        raise UserError(f"{out} already exists; give another --out")
    amendment = Amendment(kit.study(), after, reason.strip())
    amendment.check()
    write_json(out, amendment.to_dict())
    return amendment


def agree(kit: Kit, amendment: Amendment, out: Path) -> Path:
    """Sign an amendment with the site's key; return the file to send back."""
    if amendment.before.hash != kit.study().hash:
        raise UserError(
            f"the amendment is of another agreement ({amendment.before.hash[:16]}) than the kit "
            f"{kit.folder} ({kit.study().hash[:16]}); ask the coordinator"
        )
    key = load_private_key_file(str(kit.key))
    certificate = kit.certificate.read_text(encoding="ascii")
    signed = Agreement(kit.role(), certificate, str(sign_content(amendment.text, key)))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{signed.site}.agreed.json"
    write_json(path, signed.__dict__)
    return path


def adopt(
    amendment_file: Path,
    agreement_files: Sequence[Path],
    authority: Authority,
    kits: Path,
    without: Sequence[str] = (),
) -> list[Kit]:
    """Give the kits the new agreement, if every site of before has signed it.

    The kits keep their keys, and get new certificates. ``without`` names sites that take no part
    any more; the server checks that.
    """
    amendment = replace(
        read_amendment(amendment_file),
        agreements=tuple(map(read_agreement, agreement_files)),
        without=tuple(without),
    )
    root = read_certificate(authority.certificate_file)
    check_agreements(amendment, root)
    names = [name for name in amendment.before.site_names if name not in without]
    found = [Kit(kits / name) for name in (SERVER, COORDINATOR, *names)]
    for kit in found:
        if kit.study().hash != amendment.before.hash:
            raise UserError(f"{kit.folder} is a kit of another agreement than the amendment's")
    for kit in found:
        key = read_certificate(kit.certificate).public_key()
        write_amendments(kit.amendments, [*read_amendments(kit.amendments), amendment])
        write_kit(amendment.after, kit, kit.role(), authority, key)
    return found


def check_agreements(amendment: Amendment, root: Certificate) -> dict[str, Certificate]:
    """Return the certificates of the sites that signed; raise UserError unless all have."""
    amendment.check()
    signed = {}
    for each in amendment.agreements:
        try:
            certificate = load_pem_x509_certificate(each.certificate.encode())
            verify_cert(certificate, root.public_key())
            if common_name(certificate) != each.site:
                raise ValueError("its certificate is another site's")
            verify_content(amendment.text, each.signature, certificate.public_key())
        except (InvalidSignature, ValueError, TypeError) as error:
            raise UserError(
                f"the agreement of {each.site!r} to this amendment is not valid: "
                f"{str(error) or type(error).__name__}; ask the site to sign it again"
            ) from error
        signed[each.site] = certificate
    needed = [each for each in amendment.before.site_names if each not in amendment.without]
    if missing := [name for name in needed if name not in signed]:
        raise UserError(
            f"{', '.join(missing)} has not agreed to the amendment; every site of the study has to "
            "sign it with `fedquilt site agree`"
        )
    return signed


def check_amendments(kit: Kit) -> None:
    """Raise UserError unless the kit's site, and all others, have signed its amendments."""
    amendments, study = read_amendments(kit.amendments), kit.study()
    root, own = read_certificate(kit.authority), read_certificate(kit.certificate)
    for number, each in enumerate(amendments):
        signed = check_agreements(each, root)
        name, follows = kit.role(), [*amendments[number + 1 :]]
        if each.after.hash != (follows[0].before.hash if follows else study.hash):
            raise UserError(f"the kit {kit.folder} is of another study than its amendments")
        if name in each.before.site_names and (
            name not in signed
            or public_bytes(signed[name].public_key()) != public_bytes(own.public_key())
        ):
            raise UserError(
                f"the kit {kit.folder} is of an amendment that {name} has not signed with its own "
                "key; ask the coordinator"
            )


def open_coordinators_kit(folder: Path) -> Kit:
    """Return the coordinator's kit of the study before an amendment."""
    kit = Kit(folder.resolve())
    kit.require(COORDINATOR)
    check_seal(kit)
    return kit
