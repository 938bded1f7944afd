"""
`python -m tests.truth [--port 0] [--tls] [--reference] [--set NAME=JSON]…`: serve until killed.

Prints one line of JSON when it listens: port, control_port, pid, ca_file.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from .api import route
from .clock import no_timer_slack
from .options import REFERENCE, Options
from .server import Server


def main() -> None:
    asked = _arguments()
    options = Options(curve=REFERENCE if asked.reference else None)
    options.change({name: _value(text) for name, _, text in (one.partition("=") for one in asked.set)})
    if asked.cpu is not None:
        os.sched_setaffinity(0, {asked.cpu})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    no_timer_slack()
    gc.disable()  # no pauses; a reset collects
    ca_file, tls = _certificate() if asked.tls else ("", None)
    server = Server(options, route, port=asked.port, host=asked.host, tls=tls)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ports = {"port": server.port, "control_port": server.control_port}
    print(json.dumps(ports | {"pid": os.getpid(), "ca_file": ca_file}), flush=True)
    server.run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--cpu", type=int, help="stay on this core")
    parser.add_argument("--tls", action="store_true", help="with a certificate of its own for localhost")
    parser.add_argument("--reference", action="store_true", help="the curve of the reference deployment")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="see options.py")
    return parser.parse_args()


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _certificate() -> tuple[str, ssl.SSLContext]:
    """The file with the certificate, which is its own authority; the caller removes the folder that it is in."""
    folder = Path(tempfile.mkdtemp(prefix="truth-"))
    files = folder / "key.pem", folder / "certificate.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = [*words.split(), *names, "-keyout", str(files[0]), "-out", str(files[1])]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    return str(files[1]), context


if __name__ == "__main__":
    sys.exit(main())
