"""The part of supervise.py that touches the world, one piece at a time."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orchestrator.assets import templates
from supervisor.api import Api
from supervisor.attempts import Failure
from supervisor.beat import Beat
from supervisor.children import Children
from supervisor.cluster import ray_members
from supervisor.console import Console
from supervisor.evidence import Evidence
from supervisor.files import Folders, drop_cache, model_folder
from supervisor.hearing import Hearing
from supervisor.heartbeat import Heartbeat, address_error
from supervisor.settings import Desired, Limits, parse_desired, parse_secrets, parse_settings
from supervisor.step import Watch
from supervisor.watching import Counters
from tests.unit.supervision import HEAD, RELEASE, WORKER, settings

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def folders(tmp_path: Path) -> Any:
    for name in ("release", "run", "cache", "models"):
        (tmp_path / name).mkdir()
    return Folders(*(tmp_path / name for name in ("release", "run", "cache", "models")))


@pytest.fixture
def children() -> Iterator[Any]:
    started = Children(Console(io.BytesIO()))
    yield started
    for child in list(started._running.values()):
        child.kill()
        child.wait()


def read_to_the_end(name: str) -> None:
    """Until all that the child says has been read."""
    for thread in threading.enumerate():
        if thread.name == f"read {name}":
            thread.join(10)


# -- files


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/*/supervise.json")) + sorted(GOLDEN.glob("*/*/*/supervise.json")), ids=str
)
def test_rendered_settings_are_understood(path: Path) -> None:
    """
    The renderer and the supervisor are two programs with one file between them.
    """
    parsed = parse_settings(path.read_text())

    assert parsed.head in {parsed.node, *parsed.peers}
    assert parsed.nodes[parsed.fabric_ip] == parsed.node
    assert asdict(parsed.limits) == {
        **asdict(parsed.limits),
        **json.loads(path.read_text())["limits"],
    }


def test_limits_that_are_not_named_keep_their_defaults() -> None:
    raw = {
        "deployment": "home", "node": "a", "role": "head", "fabric_ip": "1.1.1.1", "peers": [], "head_ip": "1.1.1.1",
        "ray_port": 1, "heartbeat_port": 2, "api": {"host": "h", "port": 3}, "served_name": "s", "model": "m",
        "transport": "tcp", "limits": {"hang_s": 7, "newer": 1},
    }  # fmt: skip

    assert parse_settings(json.dumps(raw)).limits == Limits(hang_s=7)


@pytest.mark.parametrize(
    ("text", "desired"),
    [
        ("up run-7\n", {"run": "run-7"}),
        ("down\n", {"down": True}),
        ("down run-7", {"down": True}),
        ("", {}),
        ("up", {}),
        ("sideways", {}),
    ],
)
def test_desired_is_up_unless_it_says_down(text: str, desired: dict[str, Any]) -> None:
    assert parse_desired(text) == Desired(**desired)


def test_secret_is_everything_after_the_first_equals_sign() -> None:
    assert parse_secrets("# note\nA=b=c \n\nHF_TOKEN=hf_x\n") == {"A": "b=c ", "HF_TOKEN": "hf_x"}


def test_release_is_named_by_its_manifest(folders: Any) -> None:
    (folders.release / "manifest.json").write_bytes(b"{}")

    assert folders.release_id() == "44136fa355b3"


def test_state_is_replaced_in_one_piece(folders: Any) -> None:
    """
    A reader that has the old file open reads it to the end.
    """
    folders.write("state.json", {"phase": "booting"})
    with (folders.run / "state.json").open() as before:
        folders.write("state.json", {"phase": "serving"})

        assert json.load(before) == {"phase": "booting"}
    assert json.loads((folders.run / "state.json").read_text()) == {"phase": "serving"}
    assert [path.name for path in folders.run.iterdir()] == ["state.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files are given to another user")
def test_what_is_written_belongs_to_the_owner_of_run(folders: Any) -> None:
    """
    The container is root, the operator is not, and has to remove it all.
    """
    os.chown(folders.run, 1234, 1235)
    folders.write("state.json", {})
    (folders.cache / "deep").mkdir()
    (folders.cache / "deep" / "kernel").touch()
    (folders.cache / "link").symlink_to("/etc/passwd")
    folders.adopt(folders.cache)

    owners = {path.lstat().st_uid for path in (folders.run / "state.json", *folders.cache.rglob("*"))}
    assert owners == {1234}
    assert Path("/etc/passwd").stat().st_uid == 0


def test_hub_id_and_local_path_are_found_in_the_container() -> None:
    models = Path("/spark-deploy/huggingface/hub")

    assert model_folder("Qwen/Qwen3.5", models) == models / "models--Qwen--Qwen3.5"
    assert model_folder("/srv/model", models) == Path("/srv/model")


def test_page_cache_of_every_file_is_given_back(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "a").write_bytes(b"x" * 4096)
    (tmp_path / "snapshot").symlink_to("blobs")

    assert drop_cache(tmp_path) == 1
    assert drop_cache(tmp_path / "missing") == 0


# -- children


def test_childs_lines_end_at_newlines_and_carriage_returns(children: Any) -> None:
    """
    A progress bar is one line of an hour otherwise.
    """
    children.start("vllm", ["printf", r"a 10%%\ra 20%%\rb\r\nc\n\nd"], os.environ)
    read_to_the_end("vllm")

    assert [line for _, line in children.fresh_lines()] == ["a 10%", "a 20%", "b", "c", "d"]


def test_secret_never_leaves_by_the_log(children: Any) -> None:
    children.secrets = ("hunter2-hunter2",)
    children.start("vllm", ["echo", "key=hunter2-hunter2!"], os.environ)
    read_to_the_end("vllm")

    assert list(children.kept["vllm"]) == ["key=***!"]


def test_program_that_the_image_lacks_is_an_exit_with_a_reason(children: Any) -> None:
    """
    Current NGC images have no Ray.
    """
    children.start("ray", ["no-such-program"], os.environ)

    assert children.exits() == {"ray": 127}
    assert "no-such-program: No such file or directory" in children.kept["ray"][0]


def test_exit_code_of_a_signal_is_negative(children: Any) -> None:
    children.start("vllm", ["sh", "-c", "kill -9 $$"], os.environ)
    children._running["vllm"].wait(10)

    assert children.exits() == {"vllm": -9}


def test_child_that_is_forgotten_says_nothing_more(children: Any, tmp_path: Path) -> None:
    os.mkfifo(go := tmp_path / "go")
    children.start("ray", ["no-such-program"], os.environ)
    children.start("vllm", ["sh", "-c", 'read x <"$0"; echo too late', str(go)], os.environ)
    children.forget()
    go.write_text("on\n")
    read_to_the_end("vllm")

    assert (children.exits(), children.fresh_lines(), list(children.kept["vllm"])) == ({}, (), [])


def test_console_that_nobody_reads_blocks_nobody() -> None:
    """
    The pipe is dockerd's: while that is down, an engine must not wait for a log line to be written.
    """
    full = threading.Event()

    class Pipe(io.BytesIO):
        def write(self, _: Any) -> int:
            full.wait(10)
            return 0

    console = Console(Pipe())
    began = time.monotonic()
    for _ in range(30_000):
        console.say("vllm", "x")
    took = time.monotonic() - began
    full.set()

    assert took < 5


def test_what_was_said_last_is_out_once_the_console_is_closed() -> None:
    pipe = io.BytesIO()
    console = Console(buffered := io.BufferedWriter(pipe))  # as standard output is
    console.say("supervise", "down")
    console.close()

    assert pipe.getvalue() == b"[supervise] down\n"
    buffered.close()


def test_lines_that_found_no_room_are_counted() -> None:
    pipe = io.BytesIO()
    console = Console(pipe)
    console._dropped = 7
    console.say("vllm", "after")
    console.close()

    assert pipe.getvalue() == b"[supervise] 7 lines were dropped: nobody read them\n[vllm] after\n"


# -- HTTP


class Engine(BaseHTTPRequestHandler):
    """An engine as the test wants it: path to status."""

    statuses: ClassVar[dict[str, int]] = {}
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def _answer(self) -> None:
        self.seen.append((self.path, self.headers.get("authorization")))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(self.statuses.get(self.path, 200))
        self.end_headers()
        if self.path == "/metrics":
            self.wfile.write(b"vllm:iteration_tokens_total_count{} 5\nvllm:num_requests_running{} 1\n")

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[HTTPServer]:
    Engine.statuses, Engine.seen = {}, []
    server = HTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def api(engine: HTTPServer, key: str = "", host: str = "127.0.0.1") -> Any:
    where = replace(settings(), api_host=host, api_port=engine.server_port)
    return Api(where, key)


def test_key_of_the_engine_is_sent(engine: HTTPServer) -> None:
    api(engine, key="k-1").complete(5)

    assert Engine.seen == [("/v1/completions", "Bearer k-1")]


def test_model_without_plain_completions_is_asked_in_chat(engine: HTTPServer) -> None:
    Engine.statuses = {"/v1/completions": 404}

    assert api(engine).complete(5) == 200
    assert [path for path, _ in Engine.seen] == ["/v1/completions", "/v1/chat/completions"]


def test_engine_bound_to_every_address_is_asked_on_loopback(engine: HTTPServer) -> None:
    assert api(engine, host="0.0.0.0").health(5) == 200


def test_proxy_in_the_environment_is_not_asked(engine: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert api(engine).health(5) == 200


def test_one_look_gives_health_and_counters(engine: HTTPServer) -> None:
    assert api(engine).watch(5) == Watch(200, Counters(1, 5))


def test_unhealthy_engine_is_not_asked_for_metrics(engine: HTTPServer) -> None:
    Engine.statuses = {"/health": 503}

    assert api(engine).watch(5) == Watch(503)


def test_engine_without_metrics_is_healthy_all_the_same(engine: HTTPServer) -> None:
    Engine.statuses = {"/metrics": 404}

    assert api(engine).watch(5) == Watch(200)


def test_refused_connection_is_an_error_not_a_status() -> None:
    closed = HTTPServer(("127.0.0.1", 0), Engine)
    closed.server_close()

    with pytest.raises(OSError, match="refused"):
        api(closed).health(5)


# -- Ray's members


def test_reason_why_ray_does_not_tell_is_kept(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise RuntimeError('unauthenticated')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    with pytest.raises(OSError, match="RuntimeError: unauthenticated"):
        ray_members("127.0.0.1:1", env, 10)


def test_older_ray_is_asked_another_way(tmp_path: Path) -> None:
    """
    Before it had GcsClient.get_all_node_info.
    """
    (tmp_path / "ray.py").write_text(
        "def init(address, log_to_driver): pass\n"
        "def nodes(): return [{'Alive': True, 'NodeManagerAddress': '1.1.1.1', 'Resources': {'GPU': 1.0}},\n"
        "  {'Alive': False, 'NodeManagerAddress': '1.1.1.2', 'Resources': {}}]\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    assert ray_members("127.0.0.1:1", env, 10) == [("1.1.1.1", 1.0)]


# -- evidence


def test_evidence_tells_the_whole_story(folders: Any, children: Any) -> None:
    children.start("vllm", ["echo", "the last words"], os.environ)
    read_to_the_end("vllm")
    failure = Failure("why", WORKER, ("a line",))
    folder = Evidence(folders, children).save(failure, {"phase": "serving"}, {"PATH": "/none"})

    assert json.loads((folder / "cause.json").read_text())["cause"] == "why"
    assert (folder / "vllm.log").read_text() == "the last words"
    assert json.loads((folder / "state.json").read_text()) == {"phase": "serving"}
    assert "MemAvailable" in (folder / "meminfo.txt").read_text()


def test_last_three_attempts_are_kept(folders: Any, children: Any) -> None:
    """
    A pair that fails for a month does not fill the disk.
    """
    evidence = Evidence(folders, children)
    for _ in range(12):
        evidence.save(Failure("why"), {}, {"PATH": "/none"})

    assert sorted(path.name for path in (folders.run / "evidence").iterdir()) == ["10", "11", "12"]


def test_ray_logs_are_capped_and_errors_come_first(folders: Any, children: Any, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(50):
        (logs / f"worker-{number}.out").write_bytes(b"x" * 100_000)
    (logs / "raylet.err").write_text("the reason\n")
    target = tmp_path / "ray-logs"
    Evidence(folders, children)._save_ray_logs(target, logs)

    assert (target / "raylet.err").read_text() == "the reason\n"
    assert sum(path.stat().st_size for path in target.iterdir()) <= 2_000_000


# -- safety and heartbeat


def test_started_by_hand_it_refuses() -> None:
    """
    It ends every process that it can see.
    """
    script = str(templates() / "supervise.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=20)

    assert done.returncode == 1
    assert "the main process of a container" in done.stderr


def test_missing_address_is_told_apart_from_a_taken_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        assert address_error("127.0.0.1", port) == f"UDP 127.0.0.1:{port}: Address already in use"
    assert address_error("203.0.113.7", 0) == "fabric address 203.0.113.7: Cannot assign requested address"


def test_what_a_supervisor_says_is_heard_over_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ips = {HEAD: "127.0.0.1", WORKER: "127.0.0.2"}
    beats = {}
    for node, peer in ((HEAD, WORKER), (WORKER, HEAD)):
        where = replace(settings(node), fabric_ip=ips[node], peers={peer: ips[peer]}, heartbeat_port=port)
        beats[node] = Heartbeat(where, Hearing(where, RELEASE, node), threading.Event())
        beats[node].token = b"t"
    beats[WORKER].say(Beat(node=WORKER, phase="joined"))

    for _ in range(40):
        for beat in beats.values():
            beat.turn()
        if (view := beats[HEAD].view()[WORKER]).here:
            break
    for beat in beats.values():
        beat.close()

    assert (view.here, view.beat.phase) == (True, "joined")
