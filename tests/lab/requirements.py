"""Whether this machine can run the lab, and why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# program -> Debian package
PROGRAMS = {
    "dockerd": "docker.io",
    "runc": "runc",
    "docker": "docker.io",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "curl": "curl",
    "ping": "iputils-ping",
    "ps": "procps",
}
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"])


def missing_packages() -> list[str]:
    """Debian packages that `apt-get install` must bring before the lab can run."""
    missing = {
        package for program, package in PROGRAMS.items() if not shutil.which(program, path=SEARCH_PATH)
    }
    return sorted(missing)


def missing_for_engine() -> list[str]:
    """What the real engine needs besides: ensurepip, a Debian package of its own, and what vLLM's CPU build links to."""
    files = {
        "python3.*/ensurepip": "python3-venv",
        "*/libnuma.so.1": "libnuma1",
        "*/libgomp.so.1": "libgomp1",
    }
    return [package for pattern, package in files.items() if not list(Path("/usr/lib").glob(pattern))]


def lab_available() -> str | None:
    """Why the lab cannot run here, in one line, or None where it can."""
    if not sys.platform.startswith("linux"):
        return f"the lab needs Linux (network namespaces); this is {sys.platform}"
    if os.geteuid() != 0:
        return "the lab needs root: it makes network namespaces, mounts and Docker engines"
    if not Path("/etc/debian_version").exists():
        return "the lab needs Debian or Ubuntu: its images are cut out of the running system"
    if missing := missing_packages():
        return f"the lab needs programs that are not here; run: apt-get install -y {' '.join(missing)}"
    return _namespaces()


def _namespaces() -> str | None:
    script = "mount -t tmpfs none /mnt && mknod /mnt/null c 1 3 && ip link add lab0 type veth peer name lab1"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", script]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    reason = tried.stderr.strip().splitlines()[-1:] or [f"exit {tried.returncode}"]
    return f"the lab needs namespaces, mounts, mknod and veth links, but: {reason[0]}"
