"""provision(): writes a kit for the server, the coordinator and every site of a study."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import CtxKey
from nvflare.lighter.provision import prepare_builders, prepare_project
from nvflare.lighter.provisioner import Provisioner

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.version import VERSION
from fedquilt.deploy.kit import AUTHORITY, COORDINATOR, KEPT_IN_STARTUP, SERVER, Kit
from fedquilt.deploy.nvflare.seal import seal
from fedquilt.deploy.study import Study

LIGHTER = "nvflare.lighter.impl"
VALID_DAYS = 3650


def provision(study: Study, out: Path) -> dict[str, Path]:
    """Write the kits into ``out``, and the authority's private key into ``out/authority``.

    Raise UserError if ``out`` is not empty: new certificates would not match old kits.
    """
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder for the kits of this study")
    work = out / ".work"
    settings = project_settings(study)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        context = Provisioner(str(work), prepare_builders(settings)).provision(
            prepare_project(settings)
        )
    if context.get(CtxKey.BUILD_ERROR):
        raise UserError(f"FLARE could not make the kits: {printed.getvalue().strip()}")
    made = work / study.name / "prod_00"
    shutil.move(work / study.name / "state", out / AUTHORITY)
    (out / AUTHORITY).chmod(0o700)
    flare_names = {SERVER: study.server.host, COORDINATOR: coordinator_name(study)}
    flare_names |= {name: name for name in study.site_names}
    kits = {}
    for name, flare_name in flare_names.items():
        shutil.move(made / flare_name, out / name)
        kits[name] = out / name
        _finish(study, Kit(out / name), name, out / AUTHORITY)
    shutil.rmtree(work)
    return kits


def coordinator_name(study: Study) -> str:
    return f"coordinator@{study.name}.org"


def project_settings(study: Study) -> dict[str, Any]:
    """Return the content of FLARE's project.yml, the input of its provisioning."""
    server = {"type": "server", "org": "coordinator", "fed_learn_port": study.server.port}
    admin = {"type": "admin", "org": "coordinator", "role": "project_admin"}
    return {
        "api_version": 3,
        "name": study.name,
        "description": "",
        "participants": [
            {"name": study.server.host, **server},
            *(
                {"name": site.name, "type": "client", "org": site.organisation}
                for site in study.sites
            ),
            {"name": coordinator_name(study), **admin},
        ],
        "builders": [
            {
                "path": f"{LIGHTER}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{LIGHTER}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": f"{LIGHTER}.cert.CertBuilder", "args": {"root_valid_days": VALID_DAYS}},
            {"path": f"{LIGHTER}.signature.SignatureBuilder"},
        ],
    }


def _finish(study: Study, kit: Kit, role: str, authority: Path) -> None:
    """Delete what is not needed, such as scripts that skip our checks; add our files; seal."""
    for path in kit.startup.iterdir():
        if path.name not in KEPT_IN_STARTUP:
            path.unlink()
    for path in [*kit.local.iterdir(), *kit.folder.glob("readme*")]:
        if not path.name.startswith(("log_config", "resources")):
            path.unlink()
    write_json(kit.study_file, study.to_dict())
    write_json(kit.card, {"role": role, "study": study.name, "fedquilt": VERSION})
    seal(kit, authority)
