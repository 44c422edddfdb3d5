"""A handshake with the server before FLARE starts, which would try for ever and not say why."""

from __future__ import annotations

import socket
import ssl
import time

from fedquilt.deploy.kit import Kit
from fedquilt.deploy.study import Place
from fedquilt.errors import UserError


def greet(kit: Kit, place: Place, seconds: float) -> None:
    """Raise UserError with the reason unless the server accepts this kit's certificate in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            _shake_hands(kit, place)
            return
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{place.host}:{place.port} could not be reached within {seconds:.0f} s "
                    f"({error}); is the server started, and does the firewall allow it?"
                ) from error
            time.sleep(min(1.0, seconds / 10))
        except ssl.SSLError as error:
            why = getattr(error, "reason", None) or error.args[-1]
            raise UserError(
                f"{place.host}:{place.port} and this kit do not accept each other: {why}; the kit "
                "is of another study, expired or altered"
            ) from error


def _shake_hands(kit: Kit, place: Place) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(kit.authority)
    context.load_cert_chain(kit.certificate, kit.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((place.host, place.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=place.host) as line,
    ):
        # With TLS 1.3 a refused certificate shows only now: FLARE hangs up without a word.
        if not line.recv(1):
            raise ssl.SSLError("the server has hung up on seeing the kit's certificate")
