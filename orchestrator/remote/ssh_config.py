"""A host as OpenSSH sees it: `ssh -G HOST` where there is an ssh, else paramiko's parser of ssh_config."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import FileError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Options = dict[str, list[str]]

# readconf.c, fill_default_options(); the types that paramiko can sign with
DEFAULT_IDENTITIES = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
CONNECT_TIMEOUT_S = 10.0  # ssh's own default is TCP's, some two minutes (tcp(7), tcp_syn_retries)
MAX_HOPS = 8  # nobody jumps further; beyond it is a loop


@dataclass(frozen=True)
class SshEnvironment:
    """What ssh reads of the process and its user; tests bring their own."""

    home: Path  # $HOME: `~` here, even where passwd says something else
    passwd_home: Path  # what ssh itself takes for `~`
    user: str
    agent: str = ""  # $SSH_AUTH_SOCK
    ssh: str | None = None  # the ssh program; None: paramiko's parser

    @classmethod
    def from_process(cls, environ: Mapping[str, str] | None = None) -> SshEnvironment:
        """Take home, user and agent from *environ*, by default the process's own."""
        variables = os.environ if environ is None else environ
        try:
            user, passwd_home = pwd.getpwuid(os.getuid()).pw_name, pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:  # a container's user without a line in passwd
            user, passwd_home = variables.get("USER", ""), variables.get("HOME", "/")
        return cls(
            home=Path(variables.get("HOME") or passwd_home),
            passwd_home=Path(passwd_home),
            user=user,
            agent=variables.get("SSH_AUTH_SOCK", ""),
            ssh=shutil.which("ssh", path=variables.get("PATH")),
        )

    @property
    def config_file(self) -> Path | None:
        """
        The one file to read instead of ssh's usual ones; None: leave it to ssh.

        ssh looks for ~/.ssh/config in passwd's home; with another $HOME it must be told.
        """
        if self.home == self.passwd_home:
            return None
        return next(filter(_is_there, self.usual_files), Path(os.devnull))

    @property
    def usual_files(self) -> tuple[Path, Path]:
        return self.home / ".ssh" / "config", SYSTEM_CONFIG


@dataclass(frozen=True)
class Destination:
    """`ssh:` of an inventory, or a hop of ProxyJump, taken apart; port 0 = not given."""

    host: str
    user: str = ""
    port: int = 0


@dataclass(frozen=True)
class SshSettings:
    """Everything about one hop that decides how we log in and which host key we accept."""

    written: str  # HOST, user@HOST:port …: exactly as the operator wrote it
    hostname: str
    port: int
    user: str
    host_key_alias: str = ""
    user_known_hosts: tuple[Path, ...] = ()
    global_known_hosts: tuple[Path, ...] = ()
    hash_known_hosts: bool = False
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""  # socket of the agent, "" = none
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str = ""
    connect_timeout_s: float = CONNECT_TIMEOUT_S

    @property
    def known_hosts_name(self) -> str:
        """The name under which known_hosts files hold this host's keys (sshd(8), SSH_KNOWN_HOSTS)."""
        if self.host_key_alias:
            return self.host_key_alias.lower()
        return self.hostname.lower() if self.port == 22 else f"[{self.hostname.lower()}]:{self.port}"

    @property
    def known_hosts_files(self) -> tuple[Path, ...]:
        return (*self.user_known_hosts, *self.global_known_hosts)

    @property
    def address(self) -> str:
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"


def _is_there(file: Path) -> bool:
    """Raises FileError: its folder may not be looked into, as ~/.ssh after a `sudo` that made it root's."""
    try:
        return stat.S_ISREG(file.stat().st_mode)  # is_file() takes every error for a no, from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise FileError(
            f"{file} cannot be read",
            found=error.strerror,
            hint=f"`ls -ld {file.parent}` shows whose it is; after a `sudo` it may be root's",
        ) from error


def parse_destination(written: str) -> Destination:
    """
    Take HOST, user@HOST, HOST:port, user@HOST:port, [v6]:port or a bare IPv6 address apart.

    Raises:
        UsageError: it is none of these, or would be an option for ssh.
    """
    user, _, place = written.removeprefix("ssh://").rpartition("@")
    bracketed = re.fullmatch(r"\[([^\[\]]+)\](?::(\d+))?", place)
    plain = re.fullmatch(r"([^:]+)(?::(\d+))?", place)
    bare = re.fullmatch(r"([0-9A-Fa-f:.]+:[0-9A-Fa-f:.]+(?:%\w+)?)()", place)  # IPv6
    match = bracketed or plain or bare
    host, port = (match[1], match[2]) if match else ("", "")
    legal = host and not re.search(r"[\s\[\]\x00-\x1f]", user + host) and not host.startswith("-")
    if not legal or user.startswith("-") or (port and not 0 < int(port) < 65536):
        raise UsageError(
            "this is no SSH destination",
            found=repr(written),
            wanted="HOST, user@HOST:port or a Host of ssh_config",
        )
    return Destination(host, user, int(port or 0))


def parse_ssh_g(output: str) -> Options:
    """Turn the output of `ssh -G` into keyword (lower case) → its values, in order."""
    options: Options = {}
    for line in output.splitlines():
        keyword, _, value = line.partition(" ")
        if value:
            options.setdefault(keyword.lower(), []).append(value)
    return options


def route(written: str, environment: SshEnvironment) -> tuple[SshSettings, ...]:
    """
    Every hop to *written*, in the order in which they are dialled; the last is the host itself.

    Raises:
        FileError: ssh finds a mistake in its configuration, or jump hosts form a loop.
        UsageError: *written* is no destination.
    """
    hops = [settings_of(written, environment)]
    jumps = hops[0].proxy_jump
    while jumps:
        if len(hops) > MAX_HOPS:
            raise FileError(
                f"the jump hosts of {written} form a loop",
                found=" ← ".join(hop.written for hop in hops),
                hint="look at ProxyJump in ssh_config",
            )
        hops.append(settings_of(jumps[-1], environment))
        # ssh reaches the last jump through those before it, whatever the last one's own ProxyJump says
        jumps = jumps[:-1] or hops[-1].proxy_jump
    return tuple(reversed(hops))


def settings_of(written: str, environment: SshEnvironment) -> SshSettings:
    """One hop's own settings; see route()."""
    destination = parse_destination(written)
    if environment.ssh:
        options = parse_ssh_g(_ask_ssh(destination, environment))
    else:
        options = _ask_paramiko(destination, environment)
    return settings_from(options, written, destination, environment)


def settings_from(
    options: Options, written: str, destination: Destination, environment: SshEnvironment
) -> SshSettings:
    """The options of `ssh -G`, typed, with `~` and percent signs expanded. Pure but for $VARIABLES."""

    def one(keyword: str, default: str = "") -> str:
        value = options.get(keyword, [default])[0]
        return default if value.lower() == "none" else value

    hostname = one("hostname", destination.host)
    port = int(one("port", str(destination.port or 22)))
    user = one("user", destination.user or environment.user)
    tokens = _tokens(destination, environment, hostname=hostname, port=port, user=user)
    tokens["k"] = one("hostkeyalias", destination.host)

    def path(text: str) -> Path:
        return _path(_expand(text, tokens), environment)

    jump = one("proxyjump")
    return SshSettings(
        written=written,
        hostname=_expand(hostname, {"%": "%", "h": destination.host}),
        port=port,
        user=user,
        host_key_alias=one("hostkeyalias"),
        user_known_hosts=tuple(path(text) for text in _split_paths(one("userknownhostsfile"))),
        global_known_hosts=tuple(path(text) for text in _split_paths(one("globalknownhostsfile"))),
        hash_known_hosts=one("hashknownhosts") in ("yes", "true"),
        identity_files=tuple(
            path(text) for text in options.get("identityfile", []) if text.lower() != "none"
        ),
        identities_only=one("identitiesonly") in ("yes", "true"),
        agent=_agent(options.get("identityagent", ["SSH_AUTH_SOCK"])[0], environment, path),
        proxy_jump=tuple(hop for hop in jump.split(",") if hop),
        proxy_command="" if jump else _expand(one("proxycommand"), tokens),
        connect_timeout_s=float(one("connecttimeout") or 0) or CONNECT_TIMEOUT_S,
    )


def _tokens(
    destination: Destination, environment: SshEnvironment, *, hostname: str, port: int, user: str
) -> dict[str, str]:
    """What ssh_config(5), TOKENS, says of the percent signs."""
    return {
        "%": "%",
        "d": str(environment.home),
        "h": hostname,
        "i": str(os.getuid()),
        "L": socket.gethostname().partition(".")[0],
        "l": socket.gethostname(),
        "n": destination.host,
        "p": str(port),
        "r": user,
        "u": environment.user,
    }


def _agent(value: str, environment: SshEnvironment, path: Callable[[str], Path]) -> str:
    if value == "SSH_AUTH_SOCK":
        return environment.agent
    if value.lower() == "none":
        return ""
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:], "")
    return str(path(value))


def _split_paths(value: str) -> list[str]:
    """
    Split a list of files as `ssh -G` prints it: by blanks, without quotes.

    A piece that begins like no path belongs to the one before: a folder's name has a blank.
    """
    pieces: list[str] = []
    for piece in value.split(" "):
        if pieces and not piece.startswith(("/", "~", "%", "$")):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    return [piece for piece in pieces if piece]


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    expanded = re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), expanded)


def _path(text: str, environment: SshEnvironment) -> Path:
    """`~` is $HOME; what ssh already expanded with passwd's home moves to $HOME as well."""
    if text == "~" or text.startswith("~/"):
        return environment.home / text[2:]
    path = Path(text).expanduser()
    moved = environment.home != environment.passwd_home and environment.passwd_home != Path("/")
    if moved and path.is_relative_to(environment.passwd_home) and not path.is_relative_to(environment.home):
        return environment.home / path.relative_to(environment.passwd_home)
    return path


def _ask_ssh(destination: Destination, environment: SshEnvironment) -> str:
    command = [environment.ssh or "ssh", "-G"]
    command += ["-F", str(environment.config_file)] if environment.config_file else []
    command += ["-l", destination.user] if destination.user else []
    command += ["-p", str(destination.port)] if destination.port else []
    try:
        answer = subprocess.run(
            [*command, "--", destination.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,  # `Match exec` runs commands, CanonicalizeHostname asks DNS
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(
            f"`ssh -G {destination.host}` did not end within 20 s", hint="look at `Match exec` in ssh_config"
        ) from error
    if answer.returncode != 0:
        raise FileError(
            f"ssh refuses its configuration for {destination.host}",
            found=" ".join(answer.stderr.split()),
            hint=f"`ssh -G {destination.host}` shows the same",
        )
    return answer.stdout


def _ask_paramiko(destination: Destination, environment: SshEnvironment) -> Options:
    """Without an ssh program: no Include, but Host, Match, ProxyJump and the rest."""
    import paramiko

    files = (environment.config_file,) if environment.config_file else environment.usual_files
    config = paramiko.SSHConfig()
    try:
        for file in files:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                config.parse(file.read_text().splitlines())
        found: dict[str, str | list[str]] = dict(config.lookup(destination.host))
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise FileError(
            "ssh_config cannot be read", at=", ".join(map(str, files)), found=str(error)
        ) from error
    options: Options = {
        "userknownhostsfile": ["~/.ssh/known_hosts ~/.ssh/known_hosts2"],
        "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"],
        "identityfile": list(DEFAULT_IDENTITIES),
        **{key: [value] if isinstance(value, str) else value for key, value in found.items()},
    }
    if destination.user:
        options["user"] = [destination.user]
    if destination.port:
        options["port"] = [str(destination.port)]
    return options
