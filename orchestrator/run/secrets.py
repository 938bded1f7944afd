"""The values of secrets: from where the inventory says into secrets.env on the nodes, and nowhere else."""

from __future__ import annotations

import secrets
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import FileError
from orchestrator.planning.steps import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.model.inventory import Inventory, SecretSource
    from orchestrator.model.recipe import Recipe

COMMAND_LIMIT_S = 60  # a password manager may ask for a finger


def resolve_secrets(inventory: Inventory, recipe: Recipe, environ: Mapping[str, str]) -> dict[str, str]:
    """
    Give the value of every secret that the recipe names.

    Raises:
        FileError: a value is missing, spans lines, or its file can be read by others.
    """
    if not recipe.secrets:
        return {}
    offered = _offered(inventory.secrets_from, environ)
    missing = [name for name in recipe.secrets if not offered.get(name)]
    if missing:
        raise FileError(
            f"the secret {missing[0]} has no value",
            at=recipe.source,
            found=f"nothing in {_where(inventory.secrets_from)}",
            hint=f"export {missing[0]}=…, or say secrets_from: in the inventory",
        )
    values = {name: offered[name] for name in recipe.secrets}
    for name, value in values.items():
        if "\n" in value or "\r" in value:
            raise FileError(f"the secret {name} spans lines; one line is wanted")
    return values


def _where(source: SecretSource) -> str:
    return {"environment": "the environment", "file": source.file, "command": " ".join(source.command)}[
        source.kind
    ]


def _offered(source: SecretSource, environ: Mapping[str, str]) -> Mapping[str, str]:
    if source.kind == "environment":
        return environ
    if source.kind == "file":
        return parse_secrets(_read_private(Path(source.file).expanduser()))
    try:
        done = subprocess.run(source.command, capture_output=True, check=True, timeout=COMMAND_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise FileError(
            f"the command of secrets_from failed: {type(error).__name__}", at=source.command[0]
        ) from error
    return parse_secrets(done.stdout)


def _read_private(path: Path) -> bytes:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"the secrets file cannot be read: {error.strerror}", at=str(path)) from error
    if mode & 0o077:
        raise FileError(
            "the secrets file can be read by others",
            at=str(path),
            found=f"{mode:04o}",
            wanted="0600",
            hint=f"chmod 600 {path}",
        )
    return content


def parse_secrets(content: bytes | None) -> dict[str, str]:
    """Parse `KEY=value` lines; blank lines and those that begin with # are skipped."""
    lines = (content or b"").decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name.strip(): value for name, _, value in pairs}


def secrets_file(values: Mapping[str, str], names: Iterable[str]) -> bytes:
    """Give the bytes of secrets.env."""
    return "".join(f"{name}={values[name]}\n" for name in sorted(names)).encode()


def with_token(values: Mapping[str, str], found: Mapping[str, bytes | None]) -> dict[str, str]:
    """Keep the deployment's token where all nodes hold the same one, else make a new one."""
    tokens = {parse_secrets(content).get(TOKEN, "") for content in found.values()}
    token = tokens.pop() if len(tokens) == 1 else ""
    return {**values, TOKEN: token or secrets.token_hex(32)}


def changed_secrets(values: Mapping[str, str], found: Mapping[str, bytes | None]) -> tuple[str, ...]:
    """Name what differs from the nodes' files; values are compared, never shown."""
    differing = (values.items() ^ parse_secrets(content).items() for content in found.values())
    return tuple(sorted({name for pairs in differing for name, _ in pairs}))
