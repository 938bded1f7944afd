"""Learn host keys: what every hop to a host offers, and what known_hosts says of it. The only writer of known_hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import StepFailedError, UnreachableError, UsageError
from orchestrator.remote import known_hosts
from orchestrator.remote.dial import Line, add_hop, offered_key, where
from orchestrator.remote.known_hosts import HostKey, Verdict
from orchestrator.remote.strict import refusal, show_own_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.remote.ssh_config import SshSettings


@dataclass(frozen=True)
class Offer:
    """The key that one hop shows, and what we know of it."""

    settings: SshSettings
    key: HostKey
    verdict: Verdict
    target: bool  # the host itself, not a jump host on the way

    @property
    def text(self) -> str:
        """What an operator must see before saying yes."""
        hop = f"{self.settings.written} ({self.settings.address})"
        if self.verdict.status == "trusted":
            return f"{hop} is trusted: {self.key}"
        offers = f"{hop} offers {self.key}"
        console = f"  on its console, `{show_own_key(self.key)}` must show the same fingerprint"
        if self.verdict.entry is None:
            return f"{offers}\n{console}"
        known = f"  KNOWN as {self.verdict.entry.key}, {self.verdict.entry.place}: reinstalled, or somebody in between"
        return f"{offers}\n{known}\n{console}"


def offers(route: Sequence[SshSettings], name: str) -> Iterator[Offer]:
    """
    Give what each hop offers, the nearest first.

    The next hop lies behind this one: it is dialled when the caller asks on, and by then this one
    must be trusted.

    Raises:
        UnreachableError: a hop does not answer, lets us not in, or is not trusted yet (HostKeyError).
    """
    line = Line()
    try:
        for settings in route:
            place = where(route, settings, name)
            offered = offered_key(line, settings, place)
            key = HostKey(offered.get_name(), offered.asbytes())
            verdict = known_hosts.judge(settings, key, known_hosts.read(settings.known_hosts_files))
            if verdict.status == "revoked":
                raise refusal(settings, key, verdict, place)
            yield Offer(settings, key, verdict, target=settings is route[-1])
            if settings is not route[-1]:
                add_hop(line, settings, place)
    finally:
        line.close()


def record(offer: Offer) -> tuple[Path, tuple[str, ...]]:
    """
    Write the offered key down, in place of those that the host had.

    Returns:
        The file, and the places (`file:line`) that still vouch for another key: patterns and files that are not ours.

    Raises:
        UsageError: ssh_config gives no file to write to.
        StepFailedError: the file cannot be written.
    """
    settings = offer.settings
    files = [file for file in settings.user_known_hosts if file != Path(os.devnull)]
    if not files:
        raise UsageError(
            f"there is no file to write the key of {settings.written} to",
            found="UserKnownHostsFile none or /dev/null in ssh_config",
            hint="give the host a UserKnownHostsFile",
        )
    try:
        for file in files if offer.verdict.status == "changed" else ():
            if file.is_file():
                known_hosts.forget(file, settings.known_hosts_name)
        known_hosts.append(
            files[0], settings.known_hosts_name, offer.key, hash_name=settings.hash_known_hosts
        )
    except OSError as error:
        raise StepFailedError(
            f"the key of {settings.written} cannot be written down",
            at=error.filename,
            found=error.strerror,
            hint=f"`ls -l {error.filename or files[0]}` shows whose it is; after a `sudo` it may be root's",
        ) from error
    return files[0], _still_other(offer)


def _still_other(offer: Offer) -> tuple[str, ...]:
    name = offer.settings.known_hosts_name
    entries = known_hosts.read(offer.settings.known_hosts_files)
    named = [entry for entry in entries if not entry.marker and known_hosts.matches(entry.names, name)]
    return tuple(entry.place for entry in named if entry.key != offer.key)


def normal_fingerprint(text: str) -> str:
    """`SHA256:…` without padding. Raises UsageError: it is no such thing."""
    prefix, _, digest = text.strip().partition(":")
    if prefix.upper() != "SHA256" or len(digest.rstrip("=")) != 43:
        raise UsageError("this is no fingerprint", found=text, wanted="SHA256:… as `ssh-keygen -lf` shows it")
    return f"SHA256:{digest.rstrip('=')}"


def other_fingerprint(offer: Offer, wanted: Sequence[str]) -> UnreachableError:
    """The refusal of a hop whose key is not among those given; nothing is written."""
    kind = "" if offer.target else "jump host "
    return UnreachableError(
        f"{kind}{offer.settings.written} offers another key than the one given; nothing was written for it",
        at=offer.settings.address,
        found=str(offer.key),
        wanted=" or ".join(wanted),
        hint=f"compare with `{show_own_key(offer.key)}` on its console",
    )
