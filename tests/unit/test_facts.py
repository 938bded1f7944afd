"""What a node says of itself is read from recorded output, whatever is missing in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.facts import Listener, LockFacts
from orchestrator.planning.facts import facts_script, model_folder, parse_facts
from tests.unit.examples import INVENTORY, RECIPE

FACTS = Path(__file__).parents[1] / "fixtures" / "facts"
HEAD = INVENTORY.head


@pytest.fixture
def idle():
    """A node of the lab on which nothing runs."""
    return parse_facts(HEAD, (FACTS / "idle.txt").read_text())


@pytest.fixture
def serving():
    """The same node while a release serves."""
    return parse_facts(HEAD, (FACTS / "serving.txt").read_text())


def changed(text: str, section: str, lines: str) -> str:
    """Give recorded output with another text in one section."""
    before, _, rest = text.partition(f"@@ {section}\n")
    _, mark, after = rest.partition("\n@@ ")
    return f"{before}@@ {section}\n{lines}\n{mark}{after}"


def test_who_and_where(idle) -> None:
    assert (idle.user, idle.home, idle.machine, idle.docker.version) == (
        "op",
        "/home/op",
        "x86_64",
        "20.10.24+dfsg1",
    )


def test_addresses_and_the_way_to_the_peer(idle) -> None:
    assert idle.addresses["enp1s0f1np1"] == ("192.168.200.1",)
    assert idle.routes == {"192.168.200.2": "enp1s0f1np1"}


def test_a_node_without_our_container(idle) -> None:
    assert (idle.containers, idle.releases, idle.state, idle.lock.held) == ((), {}, None, False)


def test_our_container_with_its_release(serving) -> None:
    container = serving.container("spark-deploy-lab")

    assert container is not None
    assert (container.status, container.release, container.node) == (
        "running",
        serving.state.release,
        "spark-a",
    )
    assert container.folder == "/home/op/.spark-deploy/lab/spark-a"


def test_the_hash_of_every_file_of_a_release(serving) -> None:
    """They show whether somebody edited a file on the node."""
    files = serving.releases[serving.state.release]

    assert files["manifest.json"].startswith(serving.state.release)
    assert {"run.sh", "node.env", "ray.args", "serve.args", "supervise.py"} <= set(files)


def test_a_file_in_a_folder_of_a_release_has_its_path() -> None:
    """The supervisor's modules are in one."""
    line = f"{'0' * 64}  ./16351d85f367/supervisor/head.py"
    text = changed((FACTS / "idle.txt").read_text(), "releases", line)

    assert parse_facts(HEAD, text).releases == {"16351d85f367": {"supervisor/head.py": "0" * 64}}


def test_listeners_with_and_without_their_process(serving) -> None:
    """A user may not see the processes of others."""
    assert Listener("tcp", "0.0.0.0", 8000, "") in serving.listeners
    own = 'tcp LISTEN 0 128 127.0.0.1%lo:9000 0.0.0.0:* users:(("python3",pid=7,fd=3))'
    text = changed((FACTS / "idle.txt").read_text(), "listeners", own)
    assert parse_facts(HEAD, text).listeners == (Listener("tcp", "127.0.0.1", 9000, "python3"),)


@pytest.mark.parametrize(
    "said",
    [
        "bash: line 9: docker: command not found",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ],
)
def test_dockers_own_complaint_is_kept(said: str) -> None:
    facts = parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "docker", said))

    assert (facts.docker.version, facts.docker.problem) == ("", said)


def test_a_held_lock_with_its_holder() -> None:
    lines = 'held\n{"run": "r", "user": "ann", "host": "laptop", "pid": 7, "since": 5}'
    lock = parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "lock", lines)).lock

    assert (lock.held, lock.run, lock.user, lock.host, lock.pid, lock.since) == (
        True,
        "r",
        "ann",
        "laptop",
        7,
        5,
    )


def test_a_lock_whose_holder_was_not_written_is_held() -> None:
    lock = parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "lock", "held\n{torn")).lock

    assert (lock.held, lock.run) == (True, "")


@pytest.mark.parametrize("holder", ["[1]", "7", '{"run": 1, "pid": "x", "since": []}'])
def test_a_lock_whose_holder_is_garbage_is_held(holder: str) -> None:
    """A file on a node may say anything; a traceback would leave the operator without --break-lock's hint."""
    lock = parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "lock", f"held\n{holder}")).lock

    assert lock == LockFacts(held=True)


def test_the_weights_that_the_index_wants() -> None:
    lines = "folder /m\nconfig\nweight a.safetensors\nwanted a.safetensors\nwanted b.safetensors"
    model = parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "model", lines)).model

    assert (model.folder, model.has_config, model.weights) == ("/m", True, ("a.safetensors",))
    assert model.wanted_weights == ("a.safetensors", "b.safetensors")


def test_a_torn_state_file_is_no_state() -> None:
    """A power cut in the middle of a write; the supervisor writes it anew."""
    assert (
        parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "state", '{"schema": 1, "pha')).state
        is None
    )


@pytest.mark.parametrize(
    "garbage", ['"phase": 7', '"at": "x"', '"missing": [1]', '"attempts": null', '"cause": []', '"schema": 2']
)
def test_a_state_file_of_other_types_or_a_newer_schema_is_no_state(garbage: str) -> None:
    """Somebody edited it on the node, or it is of a newer release; the supervisor writes it anew within 5 s."""
    text = '{"schema": 1, ' + garbage + "}"

    assert parse_facts(HEAD, changed((FACTS / "idle.txt").read_text(), "state", text)).state is None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_cut_output_is_refused_not_guessed(share: float) -> None:
    text = (FACTS / "serving.txt").read_text()

    with pytest.raises(ValueError, match="the facts of spark-1 are cut"):
        parse_facts(HEAD, text[: int(len(text) * share)])


def test_a_hub_model_lies_in_the_cache_of_the_login_user() -> None:
    assert model_folder(RECIPE, HEAD) == "~/.cache/huggingface/hub/models--org--tiny"


def test_a_local_model_lies_where_the_recipe_says() -> None:
    assert model_folder(replace(RECIPE, model="/models/tiny"), HEAD) == "/models/tiny"


def test_the_script_changes_nothing() -> None:
    """Facts are taken from a pair that serves, and without a lock."""
    text = re.sub(r"#.*", "", facts_script(INVENTORY, RECIPE, HEAD).text)

    assert not any(
        word in text for word in (" rm ", "mkdir", " mv ", "> /", "docker run", "docker stop", "kill")
    )
