"""provision(): writes a kit for the server, the coordinator and every site of a study."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

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


def provision(study: Study, out: Path, *, with_site_keys: bool = True) -> dict[str, Path]:
    """Write the kits into ``out``, and the authority's private key into ``out/authority``.

    Raise UserError if ``out`` is not empty: new certificates would not match old kits.

    Args:
        with_site_keys: also make the sites' keys and kits here, for demonstrations; otherwise
            every site makes its own key (``site_keys.py``).
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder for the kits of this study")
    authority = Authority.create(out / AUTHORITY, study.name)
    kits = {}
    for name in subjects(study):
        if with_site_keys or name in (SERVER, COORDINATOR):
            kit = Kit(out / name)
            kit.startup.mkdir(parents=True)
            key = new_key(_certificate_file(kit, name).with_suffix(".key"))
            write_kit(study, kit, name, authority, key.public_key())
            kits[name] = kit.folder
    return kits


def write_kit(study: Study, kit: Kit, name: str, authority: Authority, public_key: Any) -> None:
    """Write everything but the private key into a participant's kit, and seal it."""
    kit.startup.mkdir(parents=True, exist_ok=True)
    issued = authority.issue(subjects(study)[name], public_key)
    _certificate_file(kit, name).write_bytes(issued.public_bytes(Encoding.PEM))
    shutil.copy(authority.certificate_file, kit.authority)
    write_json(kit.study_file, study.to_dict())
    write_json(kit.card, {"role": name, "study": study.name, "fedquilt": VERSION})
    seal(kit, authority)


def _certificate_file(kit: Kit, name: str) -> Path:
    return kit.startup / ("server.crt" if name == SERVER else "client.crt")


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
