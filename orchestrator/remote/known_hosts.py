"""known_hosts files: what they say of a host's key, how one is added or replaced. The format: sshd(8)."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paramiko import HostKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.remote.ssh_config import SshSettings


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type and its bytes on the wire."""

    type: str  # ssh-ed25519, ecdsa-sha2-nistp256, ssh-rsa, …
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -lf` shows it: SHA256:…"""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        return f"{self.type} {base64.b64encode(self.blob).decode()}"

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file."""

    file: Path
    number: int  # from 1
    marker: str  # "", "@cert-authority" or "@revoked"
    names: str  # patterns with commas, or |1|salt|hash
    key: HostKey

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Verdict:
    """What the known_hosts files say about a key that a host offers; *entry* is the line that decided."""

    status: Literal["trusted", "unknown", "changed", "revoked"]
    entry: Entry | None = None


def judge(settings: SshSettings, key: HostKey, entries: Sequence[Entry]) -> Verdict:
    """
    Compare the offered key with all that is known of the host.

    As ssh(1): any matching line with this very key is enough, a revoked key never is, and on a
    port other than 22 the host's plain name may vouch for the key (but never accuse it).
    """
    named = [entry for entry in entries if matches(entry.names, settings.known_hosts_name)]
    plain = [entry for entry in entries if matches(entry.names, _plain_name(settings))]
    revoked = [e for e in (*named, *plain) if e.marker == "@revoked" and e.key == key]
    same = [e for e in (*named, *plain) if not e.marker and e.key == key]
    other = [entry for entry in named if not entry.marker]
    if revoked:
        return Verdict("revoked", revoked[0])
    if same:
        return Verdict("trusted", same[0])
    same_type = [entry for entry in other if entry.key.type == key.type]
    return Verdict("changed", (same_type or other)[0]) if other else Verdict("unknown")


def known_types(settings: SshSettings, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Key types by which we know the host: we ask the server for these first, as ssh(1) does."""
    names = (settings.known_hosts_name, _plain_name(settings))
    known = (e.key.type for e in entries if not e.marker and any(matches(e.names, name) for name in names))
    return tuple(dict.fromkeys(known))


def has_authority(settings: SshSettings, entries: Sequence[Entry]) -> bool:
    """Whether a @cert-authority line vouches for the host: paramiko cannot check host certificates."""
    return any(e.marker == "@cert-authority" and matches(e.names, settings.known_hosts_name) for e in entries)


def _plain_name(settings: SshSettings) -> str:
    return settings.host_key_alias.lower() or settings.hostname.lower()


def read(files: Iterable[Path]) -> tuple[Entry, ...]:
    """All entries of all files; a file that is missing or unreadable, a malformed line say nothing."""
    return tuple(
        entry
        for file in files
        for number, line in enumerate(_lines(file), start=1)
        if (entry := parse_line(line, file, number))
    )


def unreadable(files: Iterable[Path]) -> tuple[Path, ...]:
    """Give those that we may not read: they may well know the key."""
    return tuple(file for file in files if _refused(file))


def _refused(file: Path) -> bool:
    try:
        file.open("rb").close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


def parse_line(line: str, file: Path, number: int) -> Entry | None:
    """One line, or None: empty, a comment, malformed, of an old format."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except ValueError:
        return None
    inner = blob[4 : 4 + int.from_bytes(blob[:4], "big")]  # the key's own first string is its type
    return (
        Entry(file, number, marker, words[0], HostKey(words[1], blob)) if inner == words[1].encode() else None
    )


def matches(names: str, name: str) -> bool:
    """Whether the first column of a line speaks of *name* (lower case)."""
    if names.startswith("|1|"):
        return _matches_hash(names, name)
    patterns = names.lower().split(",")
    refused = any(_matches_pattern(pattern[1:], name) for pattern in patterns if pattern.startswith("!"))
    return not refused and any(_matches_pattern(p, name) for p in patterns if not p.startswith("!"))


def _matches_pattern(pattern: str, name: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))  # only * and ? are special to ssh


def _matches_hash(names: str, name: str) -> bool:
    with contextlib.suppress(ValueError, AssertionError):  # no base64, no 20 bytes of salt
        return HostKeys.hash_host(name, names) == names
    return False


def without(text: str, name: str) -> str:
    """
    A file's text without the plain keys of *name*.

    A line of several names only loses this one; patterns and lines with a marker stay.
    """
    kept = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        entry = parse_line(line, Path(), number)
        if entry is None or entry.marker or not matches(entry.names, name):
            kept.append(line)
        elif not entry.names.startswith("|1|"):
            others = [pattern for pattern in entry.names.split(",") if pattern.lower() != name]
            kept += [line.replace(entry.names, ",".join(others), 1)] if others else []
    return "".join(kept)


def append(file: Path, name: str, key: HostKey, *, hash_name: bool) -> None:
    """Add a line to *file* (made 0600 in a folder 0700), its name hashed where HashKnownHosts says so."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = file.read_bytes() if file.exists() else b""
    shown = HostKeys.hash_host(name) if hash_name else name
    line = f"{shown} {key.line}\n".encode()
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "ab") as stream:
        stream.write(line if before.endswith(b"\n") or not before else b"\n" + line)


def forget(file: Path, name: str) -> None:
    """Drop the keys of *name* from *file*; the file as it was stays beside it as FILE.old."""
    text = file.read_text(errors="surrogateescape")
    remaining = without(text, name)
    if remaining == text:
        return
    _replace(file.with_name(file.name + ".old"), text)
    _replace(file, remaining)


def _replace(file: Path, text: str) -> None:
    target = file.resolve()  # a link stays a link
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".known_hosts-")  # 0600
    with os.fdopen(descriptor, "w", errors="surrogateescape") as stream:
        stream.write(text)
    Path(name).replace(target)
