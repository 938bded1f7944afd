"""run(): what a script sees, what comes back, and that nothing of it stays."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.remote.script import KEEP_BYTES, MAX_SCRIPT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.remote.connection import FabricHost


def alive(pid: str) -> bool:
    """Whether a process still runs; a zombie that only waits for its parent does not."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def cancelled_when(host: FabricHost, line: str) -> Callable[[str], None]:
    """An on_line that cancels, from another thread, when the script prints *line*."""

    def on_line(said: str) -> None:
        if said == line:
            threading.Thread(target=host.cancel).start()

    return on_line


def test_output_and_exit_code_come_back(host: FabricHost) -> None:
    outcome = host.run("echo out; echo err >&2; exit 3", timeout_s=20)

    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")


def test_a_script_arrives_byte_for_byte(host: FabricHost) -> None:
    """Quotes, newlines, backslashes, history marks, unicode: no shell on the way may touch them."""
    hard = "a'b\"c`d`$e\\f!g\tä→🎉 *?[x]"

    outcome = host.run(f"cat <<'END'\n{hard}\nEND\nprintf '%s\\n' \"$0\" | cat\n", timeout_s=20)

    assert outcome.stdout == f"{hard}\nbash\n"


def test_a_script_that_reads_stdin_gets_nothing(host: FabricHost) -> None:
    """Piped into `bash -s`, a child would swallow the rest of the script and the script end with 0."""
    assert host.run("cat; echo rest", timeout_s=20).stdout == "rest\n"


def test_the_largest_script_runs(host: FabricHost) -> None:
    script = "echo begin\n" + "#" * (MAX_SCRIPT_BYTES - 30) + "\necho end"

    assert host.run(script, timeout_s=20).stdout == "begin\nend\n"


@pytest.mark.parametrize("script", ["#" * (MAX_SCRIPT_BYTES + 1), "echo \0"])
def test_what_no_command_line_can_carry_is_our_own_mistake(host: FabricHost, script: str) -> None:
    with pytest.raises(ValueError, match="files go with put"):
        host.run(script, timeout_s=20)


def test_two_megabytes_of_output_come_whole(host: FabricHost) -> None:
    """More than a channel's window: whoever waits for the exit code before reading hangs."""
    outcome = host.run(
        "head -c 2000000 /dev/zero | tr '\\0' x; head -c 2000000 /dev/zero | tr '\\0' y >&2", timeout_s=60
    )

    assert (outcome.stdout, outcome.stderr) == ("x" * 2_000_000, "y" * 2_000_000)


def test_of_endless_output_the_two_ends_are_kept(host: FabricHost) -> None:
    """A script gone wild must not eat the laptop's memory."""
    outcome = host.run("echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last", timeout_s=60)

    assert outcome.stdout.startswith("first\n")
    assert outcome.stdout.endswith("\nlast\n")
    assert "bytes dropped" in outcome.stdout
    assert len(outcome.stdout) < KEEP_BYTES * 2


def test_lines_come_while_the_script_runs(host: FabricHost) -> None:
    """The script waits for what its own first line causes; told at its end, it would run out of time."""
    outcome = host.run("echo ready; sleep 300", timeout_s=5, on_line=cancelled_when(host, "ready"))

    assert outcome.exit_code == 143


def test_both_streams_are_heard_and_a_last_line_needs_no_newline(host: FabricHost) -> None:
    lines: list[str] = []
    host.run("echo one; echo two >&2; printf three", timeout_s=20, on_line=lines.append)

    assert sorted(lines) == ["one", "three", "two"]


def test_time_that_runs_out_is_124_and_leaves_no_process(host: FabricHost) -> None:
    outcome = host.run("sleep 301 & echo $!; echo $$; sleep 302", timeout_s=2)

    assert outcome.exit_code == 124
    assert [pid for pid in outcome.stdout.split() if alive(pid)] == []


def test_a_script_that_ignores_sigterm_is_killed_and_still_out_of_time(host: FabricHost) -> None:
    outcome = host.run(
        "trap '' TERM; (sleep 303; sleep 304) & echo $!; echo $$; sleep 305; sleep 306", timeout_s=2
    )

    assert outcome.exit_code == 124
    assert [pid for pid in outcome.stdout.split() if alive(pid)] == []


def test_cancel_kills_the_whole_process_group(host: FabricHost) -> None:
    """Ctrl-C: children and grandchildren, too."""
    script = (
        "bash -c 'sleep 307 & echo $!; sleep 308' & echo $!; echo $$; sleep 309 & echo $!; echo ready; wait"
    )

    outcome = host.run(script, timeout_s=60, on_line=cancelled_when(host, "ready"))

    pids = [word for word in outcome.stdout.split() if word != "ready"]
    assert outcome.exit_code == 143
    assert len(pids) >= 3
    assert [pid for pid in pids if alive(pid)] == []


def test_cancel_without_a_script_does_nothing(host: FabricHost) -> None:
    host.cancel()

    assert host.run("echo still here", timeout_s=20).stdout == "still here\n"


@pytest.mark.parametrize("job", ["sleep 310", "(trap '' TERM; sleep 310)"], ids=["polite", "ignores-sigterm"])
def test_a_job_in_the_background_does_not_outlive_its_script(host: FabricHost, job: str) -> None:
    """A script that was shown ended must have ended."""
    outcome = host.run(f"{job} >/dev/null 2>&1 & echo $!", timeout_s=20)

    assert outcome.exit_code == 0
    assert not alive(outcome.stdout)


def test_a_daemon_that_keeps_the_streams_open_does_not_hold_us(host: FabricHost) -> None:
    """It left the group on purpose (setsid); that is its right, but the script has ended."""
    outcome = host.run("setsid sleep 311 & echo $!", timeout_s=5)

    os.kill(int(outcome.stdout), 9)
    assert outcome.exit_code == 0
    assert host.alive()  # held to its limit, the line is cut


def test_a_script_that_is_killed_on_the_node_shows_the_signal(host: FabricHost) -> None:
    """The kernel's OOM killer, for one."""
    assert host.run("kill -9 $$", timeout_s=20).exit_code == 137


def test_scripts_run_one_after_the_other_on_one_connection(host: FabricHost) -> None:
    assert [host.run(f"echo {number}", timeout_s=20).stdout for number in range(20)] == [
        f"{number}\n" for number in range(20)
    ]
