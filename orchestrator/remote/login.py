"""How we log in: the agent's keys and key files, in the order of ssh(1). Nothing here ever asks."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, cast

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from paramiko.agent import AgentKey
    from paramiko.auth_strategy import AuthFailure

    from orchestrator.remote.ssh_config import SshSettings

AGENT_TIMEOUT_S = 10.0  # an agent may ask its user to confirm (ssh-add -c); then it takes a person's time
# The beginning of a file of OpenSSH's own format, in base64 (PROTOCOL.key): `openssh-key-v1\0`, and the cipher `none`
OPENSSH_KEY, NO_CIPHER = b"b3BlbnNzaC1rZXktdjEA", b"AAAABG5vbmU"


class KeySource(InMemoryPrivateKey):
    """A key that the server may accept, and the name by which a message speaks of it."""

    def __init__(self, username: str, key: paramiko.PKey, name: str) -> None:
        super().__init__(username, key)
        self.name = name


class StrictAuth(AuthStrategy):
    """Agent keys named by IdentityFile, then the agent's other keys, then key files."""

    def __init__(self, settings: SshSettings, agent_keys: tuple[AgentKey, ...]) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self.settings = settings
        self.agent_keys = agent_keys
        self.for_agent: dict[Path, str] = {}  # files that only an agent could use, and why
        self.unusable: list[str] = []  # other files, each with its reason

    def get_sources(self) -> Iterator[AuthSource]:
        """Every key once, the cheapest first."""
        user = self.settings.user
        named = {blob for file in self.settings.identity_files if (blob := public_blob(file))}
        chosen = [key for key in self.agent_keys if key.blob in named]
        others = [key for key in self.agent_keys if key.blob not in named]
        for agent_key in chosen if self.settings.identities_only else chosen + others:
            yield KeySource(user, agent_key, f"{agent_key.comment or agent_key.get_name()} (agent)")
        for file in self.settings.identity_files:
            if (key := self._load(file)) and not self._in_agent(key.asbytes()):
                yield KeySource(user, key, str(file))

    def _in_agent(self, blob: bytes | None) -> bool:
        return any(key.blob == blob for key in self.agent_keys)

    def _load(self, file: Path) -> paramiko.PKey | None:
        """Give a key file's key; None, and the reason noted, where it cannot be used."""
        try:
            if encrypted(file.read_bytes()):
                self._leave_to_agent(file, "has a passphrase")
            else:
                return paramiko.PKey.from_path(str(file))  # and its FILE-cert.pub, if there is one
        except FileNotFoundError:
            pass  # the defaults of ssh(1) name files that nobody has
        except OSError as error:
            self.unusable.append(f"{file}: {error.strerror}")
        except UnsupportedAlgorithm:  # the key of a FIDO token
            self._leave_to_agent(file, "only an agent can use it")
        except (ValueError, TypeError, paramiko.SSHException, UnknownKeyType):
            self.unusable.append(f"{file}: not a key that paramiko can use")
        return None

    def _leave_to_agent(self, file: Path, why: str) -> None:
        if not self._in_agent(public_blob(file)):
            self.for_agent[file] = why


def encrypted(data: bytes) -> bool:
    """Whether a private key file needs a passphrase: OpenSSH's own format, PKCS#8 and old PEM."""
    if OPENSSH_KEY in data:
        return OPENSSH_KEY + NO_CIPHER not in data
    return b"ENCRYPTED" in data  # BEGIN ENCRYPTED PRIVATE KEY, or Proc-Type: 4,ENCRYPTED


def public_blob(identity: Path) -> bytes | None:
    """Give the public half of a key file, from the .pub beside it (or the file itself, if it is one)."""
    for file in (f"{identity}.pub", identity):
        with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
            return PublicBlob.from_file(file).key_blob
    return None


@contextlib.contextmanager
def agent_keys(path: str) -> Iterator[tuple[AgentKey, ...]]:
    """Give the keys of the agent at *path*; none where there is no agent. They sign only inside the block."""
    agent = AgentSSH()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(AGENT_TIMEOUT_S)
    try:
        if path:
            with contextlib.suppress(OSError, paramiko.SSHException):
                connection.connect(path)
                agent._connect(connection)  # type: ignore[attr-defined]  # noqa: SLF001  Agent() reads os.environ alone
        yield agent.get_keys()
    finally:
        connection.close()


def refused(settings: SshSettings, strategy: StrictAuth, failure: AuthFailure) -> UnreachableError:
    """Name the user, what was tried and what could not be: the message of a failed login."""
    hung_up = any(
        not isinstance(result.result, paramiko.AuthenticationException) for result in failure.result
    )
    said = [f"{cast('KeySource', result.source).name}: refused" for result in failure.result]
    said += [f"{file}: {why}" for file, why in strategy.for_agent.items()]
    said += [*strategy.unusable, *(["then the server hung up"] if hung_up else [])]
    nothing = (
        f"no key: no agent, and none of {', '.join(map(str, settings.identity_files)) or 'the default files'}"
    )
    return UnreachableError(
        f"{_who(settings)} is not let in",
        found="; ".join(said) or nothing,
        wanted="a key of the agent or a key file without passphrase; passwords are never asked for",
        hint=_way_in(settings, [*strategy.for_agent], hung_up=hung_up) if said else _first_key(settings),
    )


def wants_more(settings: SshSettings) -> UnreachableError:
    """The refusal of a server for which a key is not enough."""
    return UnreachableError(
        f"{_who(settings)} is not let in by a key alone",
        found="the server wants a second factor",
        wanted="a login that nobody has to answer for",
        hint="`AuthenticationMethods publickey` for this user in its /etc/ssh/sshd_config",
    )


def _who(settings: SshSettings) -> str:
    return f"{settings.user}@{settings.written.rpartition('@')[2]}"


def _way_in(settings: SshSettings, for_agent: list[Path], *, hung_up: bool) -> str:
    if for_agent:
        return f"ssh-add {for_agent[0]}  (an agent must run: eval $(ssh-agent))"
    if hung_up:  # sshd ends the connection after MaxAuthTries, 6 by default
        return "name the right key in ssh_config: `IdentityFile …` and `IdentitiesOnly yes`"
    return f"ssh-copy-id {_copy_target(settings)}"


def _first_key(settings: SshSettings) -> str:
    name = f"ssh-keygen -t ed25519, then ssh-copy-id {_copy_target(settings)}"
    return f"{name}; or, if the key has another name, `IdentityFile …` in ~/.ssh/config"


def _copy_target(settings: SshSettings) -> str:
    port = f"-p {settings.port} " if settings.port != 22 and ":" in settings.written else ""
    return f"{port}{settings.user}@{settings.hostname}" if port else settings.written
