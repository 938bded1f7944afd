"""Files on a node over SFTP: whole, with their mode, or not at all."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko

FOLDER_MODE = 0o700


def write(sftp: paramiko.SFTPClient, path: str, content: bytes, mode: int) -> None:
    """
    Put *content* at *path* in one step: readers see the old file or the new one.

    Raises:
        OSError: the node said no; `Failure` is all that SFTP says of a full disk.
    """
    folder = posixpath.dirname(path)
    make_folders(sftp, folder)
    beside = posixpath.join(folder, f".{posixpath.basename(path)}.{secrets.token_hex(6)}")
    try:
        # Not pipelined: paramiko drops the errors of pipelined writes, a full disk among them.
        with sftp.open(beside, "wx") as stream:
            sftp.chmod(beside, mode)  # before the first byte: a secret is never readable
            stream.write(content)
        sftp.posix_rename(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            sftp.remove(beside)
        raise


def make_folders(sftp: paramiko.SFTPClient, folder: str) -> None:
    """Make *folder* and what is missing above it, 0700; what exists stays as it is."""
    if folder in ("", "/") or exists(sftp, folder):
        return
    make_folders(sftp, posixpath.dirname(folder))
    try:
        sftp.mkdir(folder, FOLDER_MODE)
    except OSError:
        if not exists(sftp, folder):  # somebody else may have made it in between
            raise


def exists(sftp: paramiko.SFTPClient, path: str) -> bool:
    try:
        sftp.stat(path)
    except FileNotFoundError:
        return False
    return True


def read(sftp: paramiko.SFTPClient, path: str) -> bytes | None:
    """Give the content, None where there is no file."""
    try:
        with sftp.open(path, "rb") as stream:
            stream.prefetch()
            return stream.read()
    except FileNotFoundError:
        return None
