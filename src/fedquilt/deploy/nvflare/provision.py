"""provision(): writes a kit for the server, the coordinator and every site of a study."""

from __future__ import annotations

import shutil
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.deploy.kit import AUTHORITY, COORDINATOR, SERVER, Kit
from fedquilt.deploy.nvflare.certificates import Authority, Subject, new_key
from fedquilt.deploy.nvflare.seal import seal
from fedquilt.deploy.study import Study

COORDINATORS_ORGANISATION = "coordinator"
COORDINATORS_ROLE = "project_admin"  # FLARE's name; workspace.py takes most of its rights away


def provision(study: Study, out: Path) -> dict[str, Path]:
    """Write the kits into ``out``, and the authority's private key into ``out/authority``.

    Raise UserError if ``out`` is not empty: new certificates would not match old kits.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder for the kits of this study")
    authority = Authority.create(out / AUTHORITY, study.name)
    kits = {}
    for name, subject in subjects(study).items():
        kit = Kit(out / name)
        kit.startup.mkdir(parents=True)
        certificate = kit.startup / ("server.crt" if name == SERVER else "client.crt")
        key = new_key(certificate.with_suffix(".key"))
        issued = authority.issue(subject, key.public_key())
        certificate.write_bytes(issued.public_bytes(Encoding.PEM))
        shutil.copy(authority.certificate_file, kit.authority)
        write_json(kit.study_file, study.to_dict())
        write_json(kit.card, {"role": name, "study": study.name, "fedquilt": VERSION})
        seal(kit, authority)
        kits[name] = kit.folder
    return kits


def subjects(study: Study) -> dict[str, Subject]:
    """Return whom the kits' certificates are for, by the kits' names."""
    host = study.server.host
    return {
        SERVER: Subject(host, COORDINATORS_ORGANISATION, host=host),
        COORDINATOR: Subject(
            coordinator_name(study), COORDINATORS_ORGANISATION, role=COORDINATORS_ROLE
        ),
        **{site.name: Subject(site.name, site.organisation) for site in study.sites},
    }


def coordinator_name(study: Study) -> str:
    return f"coordinator@{study.name}.org"[:64]
