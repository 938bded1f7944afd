"""What known_hosts says of a key."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from paramiko import HostKeys

from orchestrator.remote import known_hosts
from orchestrator.remote.known_hosts import (
    Entry,
    HostKey,
    append,
    forget,
    judge,
    matches,
    parse_line,
    without,
)
from orchestrator.remote.ssh_config import SshSettings

FILE = Path("known_hosts")


def key(letter: str, kind: str = "ssh-ed25519") -> HostKey:
    name = kind.encode()
    return HostKey(kind, len(name).to_bytes(4, "big") + name + letter.encode() * 32)


def settings(hostname: str = "spark", port: int = 22, **changes: object) -> SshSettings:
    return SshSettings("spark-1", hostname, port, "op", **changes)  # type: ignore[arg-type]


def entries(*lines: str) -> tuple[Entry, ...]:
    return tuple(e for number, line in enumerate(lines, 1) if (e := parse_line(line, FILE, number)))


A, B = key("a"), key("b")
HASHED = HostKeys.hash_host("spark", base64.b64encode(b"x" * 20).decode())


def test_the_same_key_is_trusted() -> None:
    assert judge(settings(), A, entries(f"spark {A.line}")).status == "trusted"


def test_an_unheard_of_host_is_unknown() -> None:
    assert judge(settings(), A, entries(f"other {A.line}")).status == "unknown"


def test_another_key_of_the_same_type_is_a_change_and_its_line_is_named() -> None:
    """The operator has to look at that line."""
    verdict = judge(settings(), B, entries("# comment", f"spark {A.line}"))

    assert verdict.status == "changed"
    assert verdict.entry is not None
    assert verdict.entry.place == "known_hosts:2"


def test_a_key_of_a_type_we_do_not_know_is_a_change_too() -> None:
    """We asked for the types we know; a server that has none of them is not the one we met."""
    assert judge(settings(), key("a", "ssh-rsa"), entries(f"spark {A.line}")).status == "changed"


def test_any_of_several_lines_is_enough() -> None:
    """Hosts have several keys, and several files speak of them."""
    assert judge(settings(), B, entries(f"spark {A.line}", f"spark {B.line}")).status == "trusted"


def test_a_revoked_key_is_never_trusted() -> None:
    lines = entries(f"spark {A.line}", f"@revoked * {A.line}")

    assert judge(settings(), A, lines).status == "revoked"


def test_a_cert_authority_line_vouches_for_no_plain_key() -> None:
    """paramiko breaks on such a line, and checks no certificates; for us it says nothing."""
    lines = entries(f"@cert-authority *.lan,spark {A.line}")

    assert judge(settings(), A, lines).status == "unknown"
    assert known_hosts.has_authority(settings(), lines)


def test_on_another_port_the_plain_name_may_vouch_but_not_accuse() -> None:
    """As ssh(1): the key under `spark` is good for spark:2222, another key is merely unknown there."""
    lines = entries(f"spark {A.line}")

    assert judge(settings(port=2222), A, lines).status == "trusted"
    assert judge(settings(port=2222), B, lines).status == "unknown"


def test_an_alias_is_looked_up_without_port() -> None:
    lines = entries(f"gold {A.line}")

    assert judge(settings(port=2222, host_key_alias="Gold"), A, lines).status == "trusted"


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        ("spark", "spark", True),
        ("SPARK,other", "spark", True),
        ("*.lan,!bad.lan", "good.lan", True),
        ("*.lan,!bad.lan", "bad.lan", False),
        ("!bad.lan", "good.lan", False),
        ("spark-?", "spark-1", True),
        ("[spark]:2222", "[spark]:2222", True),
        ("[spark]:2222", "s", False),
        ("|1|broken", "spark", False),
        (HASHED, "spark", True),
        (HASHED, "spark-2", False),
    ],
)
def test_names_are_matched_as_sshd_8_says(names: str, name: str, expected: bool) -> None:
    assert matches(names, name) is expected


def test_our_hash_is_the_one_of_openssh() -> None:
    """Line taken from `ssh-keygen -H` (OpenSSH 9.2)."""
    assert matches("|1|DIVmDRoiJtctIysXf8fUpAISuMM=|Vi9/1/2LYPXZT1Efy4dm+SR+3DU=", "192.168.1.61")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# spark ssh-ed25519 AAAA",
        "spark",
        "spark ssh-ed25519",
        "spark ssh-ed25519 !!!",
        "spark ssh-rsa AAAA",
        "spark 1024 35 1",
    ],
)
def test_a_malformed_line_says_nothing(line: str) -> None:
    """One bad line must not lock the operator out of every host."""
    assert parse_line(line, FILE, 1) is None


def test_the_fingerprint_is_the_one_of_ssh_keygen() -> None:
    """`ssh-keygen -lf` on this key, OpenSSH 9.2."""
    blob = base64.b64decode("AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl")

    assert HostKey("ssh-ed25519", blob).fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


def test_forgetting_a_name_leaves_everybody_else() -> None:
    """Patterns, markers, comments and other names of the same line stay."""
    text = (
        f"# mine\nspark {A.line}\nother,spark {A.line}\n{HASHED} {A.line}\n"
        f"spark* {A.line}\n@revoked spark {B.line}\nbroken line\n"
    )

    assert without(text, "spark") == (
        f"# mine\nother {A.line}\nspark* {A.line}\n@revoked spark {B.line}\nbroken line\n"
    )


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / ".ssh" / "known_hosts"
    append(file, "spark", A, hash_name=False)

    assert file.read_text() == f"spark {A.line}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_last_line_without_newline_is_not_spoiled(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"other {B.line}")
    append(file, "spark", A, hash_name=False)

    assert file.read_text() == f"other {B.line}\nspark {A.line}\n"


def test_a_hashed_name_can_be_found_but_not_read(tmp_path: Path) -> None:
    """HashKnownHosts: Debian's default."""
    file = tmp_path / "known_hosts"
    append(file, "spark", A, hash_name=True)

    assert "spark" not in file.read_text()
    assert judge(settings(), A, known_hosts.read([file])).status == "trusted"


def test_forgetting_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"spark {A.line}\n")
    forget(file, "spark")

    assert file.read_text() == ""
    assert (tmp_path / "known_hosts.old").read_text() == f"spark {A.line}\n"


def test_forgetting_nothing_touches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"other {A.line}\n")
    forget(file, "spark")

    assert not (tmp_path / "known_hosts.old").exists()


def test_files_that_are_not_there_say_nothing(tmp_path: Path) -> None:
    assert known_hosts.read([tmp_path / "none", tmp_path]) == ()
