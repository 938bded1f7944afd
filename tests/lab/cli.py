"""The lab's command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from . import engine, machine, network
from .claim import claimed
from .lab import Lab
from .requirements import lab_available, missing_for_engine, missing_packages
from .shell import LabError
from .topology import STATE, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

CANNOT_RUN = 3


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    if options.action is not _packages and (reason := lab_available()):
        print(f"lab: {reason}", file=sys.stderr)
        return CANNOT_RUN
    lab = Lab(Topology(options.id, options.nodes))
    try:
        return int(options.action(lab, options) or 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    top.add_argument(
        "--id", default=os.environ.get("LAB_ID", "lab"), help="labs of different ids run side by side"
    )
    top.add_argument("--nodes", type=int, default=int(os.environ.get("LAB_NODES", "2")), choices=range(2, 9))
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: object, text: str, **arguments: dict[str, object]) -> None:
        sub = commands.add_parser(name, help=text, description=text)
        for argument, settings in arguments.items():
            flag = argument.startswith("real")
            sub.add_argument(f"--{argument}" if flag else argument, **settings)  # type: ignore[arg-type]
        sub.set_defaults(action=action)

    words: dict[str, object] = {"nargs": argparse.REMAINDER, "metavar": "CMD"}
    state: dict[str, object] = {"choices": ["up", "down"]}
    command(
        "up", _up, "boot all machines", real={"action": "store_true", "help": "the real engine's image too"}
    )
    command("packages", _packages, "print the Debian packages that lab and real engine miss here")
    command("engine", _engine, "install the real engine: venv and model")
    command("down", lambda lab, _: lab.down(), "remove everything that runs, keep the image cache")
    command("down-all", _down_all, "the same for every lab that no test session holds")
    command("status", _status, "what is up, as JSON lines")
    command("run", _run, "run a command as root on a node, without SSH", node={}, words=words)
    command("ssh", _ssh, "log in by SSH as op", node={}, words=words)
    command("adm", _adm, "run a command in the admin's namespace", words=words)
    command("power-cut", lambda lab, o: lab.power_cut(o.node), "cut a node's power", node={})
    command("boot", lambda lab, o: lab.boot(o.node), "boot it again with the same disk", node={})
    command(
        "fabric", lambda lab, o: lab.fabric(up=o.state == "up"), "plug or pull the fabric cable", state=state
    )
    command(
        "mgmt",
        lambda lab, o: lab.management(o.node, up=o.state == "up"),
        "plug or pull a management cable",
        state=state,
        node={},
    )
    return top


def _packages(*_: object) -> None:
    for package in (*missing_packages(), *missing_for_engine()):
        print(package)


def _engine(*_: object) -> int:
    reason = engine.install()
    print(f"lab: {reason}" if reason else f"{engine.VENV} and {engine.MODEL} are in place", file=sys.stderr)
    return CANNOT_RUN if reason else 0


def _up(lab: Lab, options: argparse.Namespace) -> None:
    if options.real and (reason := engine.install()):
        raise LabError(reason)
    lab.up(real_engine=options.real)
    _status(lab, options)


def _down_all(lab: Lab, _: argparse.Namespace) -> None:
    for folder in lab.topology.folder.parent.glob("*/"):
        with contextlib.suppress(BlockingIOError), claimed(folder.with_suffix(".lock")):
            Lab(Topology(folder.name)).down()


def _status(lab: Lab, _: argparse.Namespace) -> None:
    for one in lab.topology.machines:
        facts = {"machine": one.key, "name": one.name, "pid": machine.pid(one), "address": one.address}
        print(json.dumps(facts | ({"fabric": one.fabric_ip} if one.fabric_ip else {})))
    print(f"key {lab.topology.folder}/id, state {STATE}")


def _run(lab: Lab, options: argparse.Namespace) -> NoReturn:
    _become(machine.command_in(lab.node(options.node), options.words or ["bash", "-l"]))


def _adm(lab: Lab, options: argparse.Namespace) -> NoReturn:
    _become([*network.inside(lab.topology.admin_namespace), *(options.words or ["bash"])])


def _ssh(lab: Lab, options: argparse.Namespace) -> NoReturn:
    _become(lab.ssh_command(options.node, options.words))


def _become(command: Sequence[str]) -> NoReturn:
    os.execvp(command[0], list(command))  # noqa: S606  # the lab's program becomes the one asked for
