"""Strict host keys: only a key that known_hosts has is accepted, on every hop; anything else is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paramiko

from orchestrator.errors import UnreachableError
from orchestrator.remote import known_hosts
from orchestrator.remote.known_hosts import HostKey
from orchestrator.shell import sh

if TYPE_CHECKING:
    from orchestrator.remote.known_hosts import Entry, Verdict
    from orchestrator.remote.ssh_config import SshSettings

# HostKeyAlgorithms by which a server proves a key of this type (RFC 8332: an ssh-rsa key signs with SHA-2)
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class HostKeyError(UnreachableError):
    """A host key that is unknown, changed or revoked."""


class StrictPolicy(paramiko.MissingHostKeyPolicy):
    """
    Asked by paramiko for every key, as its own key store stays empty.

    paramiko's store holds one key per type and host, and breaks on marker lines.
    """

    def __init__(self, settings: SshSettings, where: str) -> None:
        self.settings = settings
        self.where = where

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        """Raises HostKeyError: the key is not the one that we know."""
        check(self.settings, HostKey(key.get_name(), key.asbytes()), self.where)


def check(settings: SshSettings, key: HostKey, where: str) -> None:
    """Raises HostKeyError, its *at* being *where*: known_hosts does not have this key for the host."""
    verdict = known_hosts.judge(settings, key, known_hosts.read(settings.known_hosts_files))
    if verdict.status != "trusted":
        raise refusal(settings, key, verdict, where)


def refusal(settings: SshSettings, key: HostKey, verdict: Verdict, where: str) -> HostKeyError:
    """What is wrong with a key that is not trusted, and what to do about it."""
    if verdict.entry is None:
        return _unknown(settings, key, where)
    explain = _revoked if verdict.status == "revoked" else _changed
    return explain(settings, key, verdict.entry, where)


def transport_for(settings: SshSettings, sock: Any, **options: Any) -> paramiko.Transport:
    """A transport that asks the server for the key types we know it by first, as ssh(1) does."""
    transport = paramiko.Transport(sock, **options)
    known = known_hosts.known_types(settings, known_hosts.read(settings.known_hosts_files))
    wanted = [algorithm for type_ in known for algorithm in ALGORITHMS.get(type_, (type_,))]
    security = transport.get_security_options()
    first = [algorithm for algorithm in security.key_types if algorithm in wanted]
    security.key_types = (*first, *(a for a in security.key_types if a not in first))
    return transport


def trust_command(settings: SshSettings, key: HostKey) -> str:
    """The exact command that accepts *key*."""
    return f"spark-deploy trust {sh(settings.written)} --fingerprint {key.fingerprint}"


def show_own_key(key: HostKey) -> str:
    """What to run on the machine's own console to see the same fingerprint."""
    kind = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(key.type, "ecdsa")
    return f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"


def _unknown(settings: SshSettings, key: HostKey, where: str) -> HostKeyError:
    files = ", ".join(map(str, settings.known_hosts_files)) or "any known_hosts file"
    closed = ", ".join(map(str, known_hosts.unreadable(settings.known_hosts_files)))
    if closed:
        return HostKeyError(
            f"the host key of {settings.written} cannot be checked: {closed} cannot be read",
            at=where,
            found=f"{key}; Permission denied",
            wanted=f"a line for {settings.known_hosts_name} in {files}, readable for you",
            hint=f"`ls -l {closed}` shows whose it is; after a `sudo` it may be root's: sudo chown $USER {closed}",
        )
    authority = known_hosts.has_authority(settings, known_hosts.read(settings.known_hosts_files))
    note = (
        " (its @cert-authority line does not help: paramiko checks no host certificates)" if authority else ""
    )
    return HostKeyError(
        f"the host key of {settings.written} is not known",
        at=where,
        found=str(key),
        wanted=f"a line for {settings.known_hosts_name} in {files}{note}",
        hint=f"compare with `{show_own_key(key)}` on its console, then: {trust_command(settings, key)}",
    )


def _changed(settings: SshSettings, key: HostKey, entry: Entry, where: str) -> HostKeyError:
    return HostKeyError(
        f"the host key of {settings.written} has CHANGED",
        at=where,
        found=str(key),
        wanted=f"{entry.key} as in {entry.place}",
        hint="reinstalled, or somebody sits in between: do not go on before "
        f"`{show_own_key(key)}` on its console shows the found fingerprint; "
        f"only then: {trust_command(settings, key)}",
    )


def _revoked(settings: SshSettings, key: HostKey, entry: Entry, where: str) -> HostKeyError:
    return HostKeyError(
        f"the host key of {settings.written} is revoked",
        at=where,
        found=f"{key}, marked @revoked in {entry.place}",
        wanted="a new host key on the machine",
        hint=f"whoever wrote {entry.place} knows why; spark-deploy never trusts this key",
    )
