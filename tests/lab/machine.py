"""One machine's life: power on, power cut, power on again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from . import network
from .shell import CLEAN_ENVIRONMENT, LabError, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .topology import Machine

HERE = Path(__file__).parent
BOOT_LIMIT_S = 30


def power_on(machine: Machine, binds: Iterable[str] = ()) -> None:
    """Begin to boot; booted() says when it is up."""
    (machine.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    (machine.folder / "disk/log/sshd.log").write_text("")  # so that "listening" is this boot's
    launcher = machine.folder / "launcher.pid"
    launcher.unlink(missing_ok=True)
    namespaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
    init = [HERE / "node/init.sh", machine.name, machine.folder, *binds]
    command = [*network.inside(machine.namespace), *namespaces, *init]
    # setsid --fork: the machine outlives the program that switched it on
    script = 'echo $$ >"$0"; exec "$@" >"$LOG" 2>&1 </dev/null'
    environment = {**CLEAN_ENVIRONMENT, "LOG": str(machine.folder / "boot.log")}
    words = [str(word) for word in ("sh", "-c", script, launcher, *command)]
    run(["env", "-i", *(f"{k}={v}" for k, v in environment.items()), "setsid", "--fork", *words])
    wait_for(f"{machine.name} to start", lambda: _find_init(launcher), timeout_s=5, every_s=0.005)
    machine.pid_file.write_text(str(_find_init(launcher)))


def _find_init(launcher: Path) -> int:
    """PID 1 of the machine, as the host counts: the only child of `unshare --fork`."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        parent = int(launcher.read_text())
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
    return 0


def wait_until_booted(machine: Machine) -> None:
    """
    Return when sshd listens and the engine answers.

    Raises:
        LabError: it did not come up; carries its last words.
    """
    try:
        wait_for(
            f"sshd on {machine.name}", lambda: _sshd_listens(machine), timeout_s=BOOT_LIMIT_S, every_s=0.02
        )
        if machine.fabric_ip:
            wait_for(f"dockerd on {machine.name}", lambda: engine_answers(machine), timeout_s=BOOT_LIMIT_S)
    except LabError as error:
        raise LabError(f"{error}\n{_last_words(machine)}") from error


def _sshd_listens(machine: Machine) -> bool:
    require_pid(machine)
    return "Server listening" in (machine.folder / "disk/log/sshd.log").read_text()


def _last_words(machine: Machine) -> str:
    logs = [machine.folder / "boot.log", *(machine.folder / "disk/log").glob("*.log")]
    return "\n".join(f"{log.name}: {line}" for log in logs for line in log.read_text().splitlines()[-5:])


def engine_answers(machine: Machine) -> bool:
    """Whether dockerd answers on its socket now."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(f"/proc/{pid(machine)}/root/run/docker.sock")
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return client.recv(64).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def pid(machine: Machine) -> int:
    """PID 1 of the machine, as the host counts; 0 when its power is off."""
    with contextlib.suppress(OSError, ValueError):
        found = int(machine.pid_file.read_text())
        # a number is used again some day: it must live in the machine's own network
        if (
            Path(f"/proc/{found}/ns/net").stat().st_ino
            == network.namespace_file(machine.namespace).stat().st_ino
        ):
            return found
    return 0


def require_pid(machine: Machine) -> int:
    """
    As pid().

    Raises:
        LabError: the machine is not up.
    """
    if found := pid(machine):
        return found
    raise LabError(f"{machine.name} is not up")


def power_off(machine: Machine) -> None:
    """Kill PID 1: the whole pid namespace goes, containers and mounts with it."""
    if not (found := pid(machine)):
        return
    os.kill(found, signal.SIGKILL)
    wait_for(f"{machine.name} to go", lambda: not Path(f"/proc/{found}").exists(), timeout_s=20, every_s=0.01)
    machine.pid_file.unlink()


def command_in(machine: Machine, command: Sequence[str | Path]) -> list[str]:
    """*command* as root on *machine*, without SSH."""
    environment = [f"{key}={value}" for key, value in CLEAN_ENVIRONMENT.items()]
    enter = ["nsenter", "--target", str(require_pid(machine)), "--all", "env", "-i", *environment]
    return [*enter, *(str(word) for word in command)]


def remove_cgroups(machine: Machine) -> None:
    """Remove the empty cgroups of containers that were killed with their machine; one in use is another lab's."""
    for mount in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")):
        top = mount / machine.cgroup
        if top.is_dir():
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()


def outside_path(machine: Machine, path: str) -> Path:
    """
    A file of the machine as the host reaches it.

    Absolute links on the way would lead into the host: give paths without any.
    """
    return Path(f"/proc/{require_pid(machine)}/root") / path.lstrip("/")
