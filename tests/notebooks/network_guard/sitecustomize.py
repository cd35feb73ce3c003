"""Python runs this at its start, where the folder is on PYTHONPATH: no connection leaves.

A connection to any other machine fails, and is written to the file that $NETWORK_ATTEMPTS names,
since a library may catch the failure and say nothing. Jupyter talks to its kernel through ZeroMQ,
which is not Python's socket module, and through this machine's own addresses.
"""

import os
import socket

THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "", None)


def _refuse(where: object) -> None:
    with open(os.environ["NETWORK_ATTEMPTS"], "a", encoding="utf-8") as file:
        file.write(f"{where}\n")
    raise OSError(f"no network in this test: {where}")


def _guarded(connect):
    def connect_here_only(self, address, *rest):
        if self.family != getattr(socket, "AF_UNIX", None) and address[0] not in THIS_MACHINE:
            _refuse(address)
        return connect(self, address, *rest)

    return connect_here_only


def _resolve_here_only(host, *rest, _original=socket.getaddrinfo, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name not in (*THIS_MACHINE, socket.gethostname()):
        _refuse(host)
    return _original(host, *rest, **options)


if "NETWORK_ATTEMPTS" in os.environ:
    socket.socket.connect = _guarded(socket.socket.connect)
    socket.socket.connect_ex = _guarded(socket.socket.connect_ex)
    socket.getaddrinfo = _resolve_here_only
