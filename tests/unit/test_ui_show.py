"""What is shown is what runs, byte for byte."""

import hashlib
import re
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import orchestrator
from orchestrator.model.inventory import Api, Fabric, Inventory, Node, Paths
from orchestrator.model.plan import Action, Plan, Script, Step, Upload, UploadSecrets
from orchestrator.model.release import Release, ReleaseFile
from orchestrator.shell import NodePath
from orchestrator.ui.show import show_plan, show_release_diff

FABRIC = Fabric("enp1s0f1np1", IPv4Interface("192.168.200.1/24"), ())
INVENTORY = Inventory("home", "", (Node("spark-1", 0, "spark-1", FABRIC, Paths()),), Api("127.0.0.1", 8000))
FOLDER = NodePath("~/.spark-deploy/home/spark-1/releases/0123456789ab")
SUM_LINE = re.compile(r"^sha256:([0-9a-f]{64})  ([^:]+):(.+)$", re.MULTILINE)


def shown(*work, undo=()):
    steps = tuple(Step(f"s{n}", "title", (Action("spark-1", "title", each),)) for n, each in enumerate(work))
    return show_plan(Plan("serve", steps, undo), None, INVENTORY)


def unquoted(text, indent):
    """Give the bytes that the lines behind bars stand for."""
    bars = [line.removeprefix(indent)[1:] for line in text.splitlines() if line.startswith(f"{indent}|")]
    return "".join(f"{line[1:]}\n" for line in bars)


def test_every_file_has_a_line_with_its_sum_node_and_path():
    """It can be compared with `sha256sum` on the node by a test, or by a suspicious operator."""
    files = (ReleaseFile("run.sh", b"#!/bin/bash\n", 0o755), ReleaseFile("ray.args", b"--head\n"))

    assert SUM_LINE.findall(shown(Upload(FOLDER, files))) == [
        (hashlib.sha256(file.content).hexdigest(), "spark-1", f"{FOLDER}/{file.path}") for file in files
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Co", "Cn"]))))
def test_a_script_can_be_read_back_from_what_is_shown(lines):
    """Not a paraphrase: the very bytes."""
    script = "".join(f"{line}\n" for line in lines)

    assert unquoted(shown(Script(script, 30)), "    ") == script


def test_a_missing_line_break_at_the_end_is_told():
    """Two scripts that differ must look different."""
    assert "(no line break at the end)" in shown(Script("true", 30))
    assert "(no line break at the end)" not in shown(Script("true\n", 30))


def test_what_would_move_the_cursor_is_spelled_out():
    """A plan that hides a line behind an escape would be a lie."""
    text = shown(Script("rm -rf x\x1b[2K\r\n", 30), Upload(FOLDER, (ReleaseFile("a", b"\xff\x1b\n"),)))

    assert "\x1b" not in text
    assert "    | rm -rf x\\x1b[2K\\r\n" in text
    assert "  | \\xff\\x1b\n" in text


def test_a_line_of_a_file_cannot_pass_for_a_sum():
    """Content stands behind bars; only the tool's own lines begin a line."""
    forged = f"sha256:{'0' * 64}  spark-1:/etc/passwd\n"
    text = shown(Upload(FOLDER, (ReleaseFile("a", forged.encode()),)), Script(forged, 1))

    assert [path for _, _, path in SUM_LINE.findall(text)] == [f"{FOLDER}/a"]


def test_the_same_bytes_are_printed_once():
    """supervise.py is the same on every node: shown twice it would only hide the rest."""
    file = ReleaseFile("supervise.py", b"print(1)\n")
    actions = tuple(Action(node, "put", Upload(FOLDER, (file,))) for node in ("spark-1", "spark-2"))
    text = show_plan(Plan("serve", (Step("files", "put", actions),)), None, INVENTORY)

    assert text.count("print(1)") == 1
    assert f"the same bytes as spark-1:{FOLDER}/supervise.py" in text


def test_nodes_that_run_the_same_script_stand_together():
    """One script to read instead of eight."""
    actions = tuple(Action(f"spark-{n}", "stop", Script("docker rm x\n", 120)) for n in (1, 2))
    text = show_plan(Plan("down", (Step("stop", "stop", actions),)), None, INVENTORY)

    assert "  on spark-1, spark-2: script of 12 bytes, at most 2 min\n    | docker rm x\n" in text


def test_secrets_are_shown_by_name():
    """Their values are not even in the plan."""
    assert "run/secrets.env (0600): HF_TOKEN, VLLM_API_KEY" in shown(
        UploadSecrets(NodePath("~/x/run"), ("HF_TOKEN", "VLLM_API_KEY"))
    )


def test_the_way_back_is_shown_too():
    """It runs without another question, so it is part of what is agreed to."""
    undo = (Step("remove", "remove container", (Action("spark-1", "remove", Script("docker rm x\n", 9)),)),)
    text = shown(Script("true\n", 1), undo=undo)

    assert text.index("Undo 1/1 remove: remove container") > text.index("these lead back:")


def test_equal_releases_have_no_difference():
    """An empty text is how a no-op is known."""
    files = {"spark-1": {"run.sh": b"a\n"}}

    assert show_release_diff(files, files) == ""


def test_a_difference_is_told_per_node_and_file():
    """A change on one node only shows there."""
    old = {"spark-1": {"ray.args": b"--head\n--port=1\n"}, "spark-2": {"ray.args": b"x\n"}}
    new = {"spark-1": {"ray.args": b"--head\n--port=2\n"}, "spark-2": {"ray.args": b"x\n"}}

    assert show_release_diff(old, new) == (
        "--- a/spark-1/ray.args\n+++ b/spark-1/ray.args\n@@ -1,2 +1,2 @@\n --head\n---port=1\n+--port=2\n"
    )


def test_new_and_gone_files_are_told_apart_from_empty_ones():
    """As git does: /dev/null is the other side."""
    diff = show_release_diff({"spark-1": {"old": b"x\n"}}, {"spark-1": {"new": b""}})

    assert diff == "--- /dev/null\n+++ b/spark-1/new\n--- a/spark-1/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


def test_a_lost_line_break_at_the_end_is_a_difference():
    """Otherwise the diff would show two equal lines, or glue two together."""
    diff = show_release_diff({"n": {"f": b"x\n"}}, {"n": {"f": b"x"}})

    assert diff.endswith("-x\n+x\n\\ No newline at end of file\n")


def test_the_manifest_is_no_news_beside_what_it_sums_up():
    """It changes with every file; alone it is shown."""
    old = {"n": {"manifest.json": b"1\n", "run.sh": b"a\n"}}

    assert "manifest" not in show_release_diff(old, {"n": {"manifest.json": b"2\n", "run.sh": b"b\n"}})
    assert "manifest" in show_release_diff(old, {"n": {"manifest.json": b"2\n", "run.sh": b"a\n"}})


def test_a_release_is_compared_as_it_is():
    """Its files by node are what would lie there."""
    release = Release("home", ReleaseFile("manifest.json", b"{}"), {"n": (ReleaseFile("run.sh", b"b\n"),)})

    assert "+b\n" in show_release_diff({"n": {"run.sh": b"a\n"}}, release)


def test_no_escape_of_a_node_reaches_the_terminal_in_a_diff():
    """The old files were read from the node."""
    assert "\x1b" not in show_release_diff({"n": {"f": b"\x1b[2Jx\n"}}, {"n": {"f": b"y\n"}})


def test_nodes_are_shown_with_the_way_in_and_the_fabric():
    """Where we log in and where Ray talks are two addresses; both are reviewed."""
    crossed = replace(INVENTORY.nodes[0], ssh="admin@10.0.0.1:2222")
    text = show_plan(Plan("serve", ()), None, replace(INVENTORY, nodes=(crossed,)))

    assert "  spark-1  head    ssh admin@10.0.0.1:2222  fabric 192.168.200.1 on enp1s0f1np1\n" in text


def test_dry_run_is_a_word_of_the_command_line_only():
    """Showing and running are two readers of one plan; no function is told to pretend."""
    package = Path(orchestrator.__file__).parent
    below = [path for path in package.rglob("*.py") if "cli" not in path.parts]

    assert [str(path) for path in below if "dry_run" in path.read_text()] == []
