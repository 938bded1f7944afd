"""put() and read(): whole files with their mode, or a message that says why not."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
import pytest

from orchestrator.errors import StepFailedError
from orchestrator.remote import files
from orchestrator.shell import NodePath
from tests.remote.conftest import node, open_hosts

if TYPE_CHECKING:
    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client, Sshd


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_arrives_with_its_mode_and_its_folders_are_ours_alone(
    host: FabricHost, tmp_path: Path
) -> None:
    host.put(NodePath(f"{tmp_path}/a/b/run.sh"), b"echo\n", 0o755)

    assert (tmp_path / "a/b/run.sh").read_bytes() == b"echo\n"
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/run.sh")] == [0o700, 0o700, 0o755]


class Watching(paramiko.SFTPClient):
    """Notes the mode that a file has when its content comes."""

    def open(self, filename: str, mode: str = "r", bufsize: int = -1) -> paramiko.SFTPFile:
        file = super().open(filename, mode, bufsize)
        write, self.modes = file.write, []

        def noting(data: bytes) -> None:
            self.modes.append(stat.S_IMODE(Path(filename).stat().st_mode))
            write(data)

        file.write = noting
        return file


def test_a_secret_is_never_readable_by_others(host: FabricHost, tmp_path: Path) -> None:
    """Its mode is set before its first byte; sshd's umask would have it 0644 until then."""
    channel = host.open_session(10)
    channel.invoke_subsystem("sftp")
    sftp = Watching(channel)

    files.write(sftp, f"{tmp_path}/secrets.env", b"KEY=x\n", 0o600)

    assert sftp.modes == [0o600]
    assert mode(tmp_path / "secrets.env") == 0o600


def test_a_file_is_replaced_in_one_step(host: FabricHost, tmp_path: Path) -> None:
    """A supervisor that reads meanwhile sees the old or the new file; nothing is left beside it."""
    target = tmp_path / "desired"
    target.write_text("old")
    with target.open() as reader:
        host.put(NodePath(str(target)), b"new")

        assert reader.read() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir() if "desired" in path.name] == ["desired"]


def test_tilde_is_the_home_on_the_node(host: FabricHost, sshd: Sshd) -> None:
    host.put(NodePath("~/.spark-deploy/x y/file"), b"content")

    assert (sshd.home / ".spark-deploy/x y/file").read_bytes() == b"content"
    assert host.read(NodePath("~/.spark-deploy/x y/file")) == b"content"


def test_a_file_that_is_not_there_is_none(host: FabricHost, tmp_path: Path) -> None:
    assert host.read(NodePath(f"{tmp_path}/no/such")) is None


def test_megabytes_come_back_as_they_went(host: FabricHost, tmp_path: Path) -> None:
    content = bytes(range(256)) * 12_000
    host.put(NodePath(f"{tmp_path}/big"), content)

    assert host.read(NodePath(f"{tmp_path}/big")) == content


def test_a_file_in_the_way_of_a_folder_is_explained(host: FabricHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StepFailedError) as caught:
        host.put(NodePath(f"{tmp_path}/file/below"), b"")

    assert caught.value.message == f"{tmp_path}/file/below cannot be written"
    assert caught.value.at == "spark-1"
    assert caught.value.hint == "a file may be in the way of a folder"


def test_a_full_disk_is_named(host: FabricHost, tmp_path: Path) -> None:
    """SFTP says `Failure`, and nothing more."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk to fill needs the right to mount")
    try:
        with pytest.raises(StepFailedError) as caught:
            host.put(NodePath(f"{disk}/new/big"), b"x" * 200_000)
        left = [path for path in disk.rglob("*") if path.is_file()]
    finally:
        subprocess.run(["umount", disk], check=True)

    assert caught.value.found is not None
    assert caught.value.found.startswith(f"Failure; {disk} is ")
    assert left == []


def test_a_folder_without_permission_is_named(host: FabricHost, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    if subprocess.run(["chattr", "+i", closed], capture_output=True, check=False).returncode:
        pytest.skip("root may write everywhere, and this file system knows no chattr +i")
    try:
        with pytest.raises(StepFailedError) as caught:
            host.put(NodePath(f"{closed}/file"), b"")
    finally:
        subprocess.run(["chattr", "-i", closed], check=True)

    assert caught.value.message == f"{closed}/file cannot be written"


def test_a_server_without_sftp_is_named(make_sshd, client: Client, tmp_path: Path) -> None:
    sshd = make_sshd(sftp="/bin/false")
    client.trust(sshd)

    with (
        open_hosts([node("spark-1")], client.environment) as hosts,
        pytest.raises(StepFailedError, match="has no SFTP"),
    ):
        hosts["spark-1"].put(NodePath(f"{tmp_path}/x"), b"")
