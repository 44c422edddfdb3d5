"""The seal of a kit: the hashes of all its files, signed by the study's authority.

It is checked before every start. A kit holds data only, and no file beyond the sealed ones: the
settings of FLARE are written by the installed fedquilt (``workspace.py``), never taken from a kit.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import Certificate
from nvflare.lighter.utils import load_private_key_file, verify_cert, verify_content

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.shown_text import shown
from fedquilt.core.wording import counted
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.certificates import (
    Authority,
    canonical_json,
    public_bytes,
    read_certificate,
)

FORMAT = 2  # 1 hashed the files directly in startup only
SHOWN_NAMES = 10
NOTE_DAYS = 30  # before the end of a certificate, every start says so


def seal(kit: Kit, authority: Authority) -> None:
    """Sign the hashes of the kit's files; its private key stays out, so that a site can make it."""
    present, links = _files(kit)
    assert not links
    files = {name: _hash(kit.folder / name) for name in present}
    signature = authority.sign(canonical_json(files))
    write_json(kit.seal, {"format": FORMAT, "files": files, "signature": signature})


def check_seal(kit: Kit) -> None:
    """Raise UserError unless the kit is complete, unaltered, of one authority and not expired."""
    files, signature = _read_seal(kit)
    _check_files(kit, files)
    if not kit.key.exists():
        raise UserError(
            f"the kit {kit.folder} has no private key yet: put in the one that the request was "
            "made with: fedquilt site accept KIT --key KEY"
        )
    try:
        root, own = read_certificate(kit.authority), read_certificate(kit.certificate)
        key = load_private_key_file(str(kit.key))
    except (OSError, ValueError, TypeError) as error:
        raise _not_complete(kit, error) from error
    try:
        verify_cert(own, root.public_key())
    except Exception as error:
        raise UserError(
            f"the kit {kit.folder} was tampered with: its authority did not sign its certificate"
        ) from error
    _check_time(kit, root, own)
    if public_bytes(key.public_key()) != public_bytes(own.public_key()):
        raise UserError(f"the kit {kit.folder} was tampered with: key and certificate differ")
    try:
        verify_content(canonical_json(files), signature, root.public_key())
    except (InvalidSignature, ValueError) as error:
        raise UserError(
            f"the kit {kit.folder} was tampered with: its authority did not sign its seal"
        ) from error


def expiry_note(kit: Kit) -> str | None:
    """Return a sentence if the kit's certificate expires soon."""
    end = read_certificate(kit.certificate).not_valid_after_utc
    days = (end - datetime.now(UTC)).days
    if days >= NOTE_DAYS:
        return None
    return (
        f"the certificate of this kit expires in {counted(days, 'day')}, on {end:%Y-%m-%d}; the "
        "coordinator renews it with `fedquilt deploy renew`"
    )


def _read_seal(kit: Kit) -> tuple[dict[str, str], str]:
    try:
        sealed = json.loads(kit.seal.read_text(encoding="utf-8"))
        is_current = sealed.get("format") == FORMAT
        files, signature = sealed["files"], sealed["signature"]
        texts = [*files.keys(), *files.values(), signature]
        if not all(isinstance(each, str) for each in texts):
            raise TypeError("its seal holds something other than texts")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _not_complete(kit, error) from error
    if not is_current:
        raise UserError(
            f"the kit {kit.folder} was made by an earlier fedquilt, whose seal left some files "
            "unchecked; ask the coordinator for a new kit"
        )
    return files, signature


def _not_complete(kit: Kit, error: Exception) -> UserError:
    return UserError(
        f"the kit {kit.folder} is not complete ({error}); ask the coordinator for a new one"
    )


def _check_files(kit: Kit, sealed: dict[str, str]) -> None:
    present, links = _files(kit)
    found = {
        "links or special files": links,
        "additional": sorted(present - sealed.keys()),
        "missing": sorted(sealed.keys() - present),
        "altered": [
            name
            for name in sorted(sealed.keys() & present)
            if _hash(kit.folder / name) != sealed[name]
        ],
    }
    told = [f"{what}: {_shown(names)}" for what, names in found.items() if names]
    if told:
        raise UserError(
            f"the kit {kit.folder} was tampered with; {'; '.join(told)}. Nothing in it was run. "
            "Ask the coordinator for a new kit, and keep your own files outside it"
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(map(shown, names[:SHOWN_NAMES])) + more


def _files(kit: Kit) -> tuple[set[str], list[str]]:
    """Return the kit's files by relative path, and what is neither a file nor a folder.

    The seal itself, the private key and the running participant's own folder are left out.
    """
    files, links = set(), []
    own = None if kit.is_of_a_site() else kit.work
    for folder, folders, names in os.walk(kit.folder):
        here = Path(folder)
        links += [here / name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if here / name != own]
        for path in (here / name for name in names):
            if path.is_symlink() or not path.is_file():
                links.append(path)
            elif path not in (kit.seal, kit.key):
                files.add(path.relative_to(kit.folder).as_posix())
    return files, sorted(path.relative_to(kit.folder).as_posix() for path in links)


def _check_time(kit: Kit, root: Certificate, own: Certificate) -> None:
    now = datetime.now(UTC)
    for name, each in (("its certificate", own), ("its authority's certificate", root)):
        if now < each.not_valid_before_utc:
            raise UserError(
                f"the kit {kit.folder} is not valid yet: {name} is valid from "
                f"{each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
                f"{now:%Y-%m-%d %H:%M} UTC; set the clock, it is slow"
            )
        if now > each.not_valid_after_utc:
            raise UserError(
                f"the kit {kit.folder} has expired: {name} was valid until "
                f"{each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
                f"{now:%Y-%m-%d %H:%M} UTC; if the clock is right, ask the coordinator for a new "
                "one"
            )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
