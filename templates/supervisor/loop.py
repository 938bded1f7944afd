"""All together: see, let the machine decide, do, tell."""

from __future__ import annotations

import queue
import secrets
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.attempts import Attempts, Failure, parse_attempts
from supervisor.children import Children
from supervisor.console import Console
from supervisor.evidence import Evidence
from supervisor.files import Folders, empty
from supervisor.head import HeadMachine
from supervisor.hearing import Hearing
from supervisor.heartbeat import Heartbeat
from supervisor.machine import CLEAN_LIMIT_S, Machine
from supervisor.processes import ActivityMeter, kill_others, memory_kb
from supervisor.questions import environment, work
from supervisor.settings import Desired, parse_desired, parse_secrets
from supervisor.state import SCHEMA, peers_of, state_of
from supervisor.step import Answer, Ask, Clean, Effect, SaveAttempts, Seen, StartEngine, StartRay
from supervisor.watching import Activity
from supervisor.worker import WorkerMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from supervisor.beat import Beat
    from supervisor.settings import Settings

STATE_EVERY_S = 5.0


class Supervisor:
    """Sees, lets the machine decide, does, and writes down what is; five times a second."""

    def __init__(self, settings: Settings, folders: Folders) -> None:
        self.settings = settings
        self.folders = folders
        self.release = folders.release_id()
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        incarnation = secrets.token_hex(6)
        self.console = Console(sys.stdout.buffer)
        self.children = Children(self.console)
        self.wake = threading.Event()
        self.heartbeat = Heartbeat(settings, Hearing(settings, self.release, incarnation), self.wake)
        attempts = parse_attempts(folders.read("attempts.json"))
        attempts = attempts.resumed(release=self.release, boot_id=self.boot_id, node=settings.node)
        kind = HeadMachine if settings.role == "head" else WorkerMachine
        self.machine: Machine = kind(settings, attempts, incarnation)
        self.stopping = False
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._secrets: dict[str, str] = {}
        self._desired = Desired()
        self._meter = ActivityMeter()
        self._activity = Activity()
        self._next_read = self._next_measure = self._next_write = 0.0
        self._written: dict[str, Any] = {}
        self._shown, self._since = "", time.time()

    def run(self) -> None:
        """Return when told to stop by a signal."""
        self._save_attempts(self.machine.attempts)
        self.heartbeat.start()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        while not self.stopping:
            self._turn()
            self.wake.wait(0.2)
            self.wake.clear()
        self._carry_out(self.machine.stopped())
        self.heartbeat.say(self._said())
        kill_others(3.0)
        self._publish()
        self.console.close()

    def _stop(self, *_: object) -> None:
        self.stopping = True
        self.wake.set()

    def _turn(self) -> None:
        try:
            self._carry_out(self.machine.step(time.monotonic(), self._look()))
            self._publish()
        except Exception as error:
            self.console.say("supervise", traceback.format_exc())
            time.sleep(1)
            self._carry_out(self.machine.crashed(f"{type(error).__name__}: {error}"))

    # -- seeing

    def _look(self) -> Seen:
        now = time.monotonic()
        if now >= self._next_read:
            self._next_read = now + 1
            self._read_files()
        if now >= self._next_measure:
            self._next_measure = now + 5
            self._activity = self._meter.measure()
        return Seen(
            desired=self._desired,
            token=bool(self.heartbeat.token),
            address_error=self.heartbeat.error,
            peers=self.heartbeat.view(),
            foreign_release=self.heartbeat.foreign_release(),
            exits=self.children.exits(),
            lines=self.children.fresh_lines(),
            answers=tuple(self._taken_answers()),
            activity=self._activity,
            available_kb=memory_kb().get("MemAvailable", 0),
        )

    def _read_files(self) -> None:
        self._desired = parse_desired(self.folders.read("desired"))
        # once read, they stay: a pair that serves does not end because somebody deleted the file
        self._secrets = parse_secrets(self.folders.read("secrets.env")) or self._secrets
        self.heartbeat.token = self._secrets.get("SPARK_DEPLOY_TOKEN", "").encode()
        self.children.secrets = tuple(value for value in self._secrets.values() if len(value) >= 8)

    def _taken_answers(self) -> Iterator[Answer]:
        while not self._answers.empty():
            yield self._answers.get()

    # -- doing

    def _carry_out(self, effects: list[Effect]) -> None:
        if effects:
            self.heartbeat.say(self._said())  # first of all: a peer that has to let go does so at once
        for effect in effects:
            if isinstance(effect, SaveAttempts):
                self._save_attempts(effect.attempts)
            elif isinstance(effect, StartRay):
                argv = ["ray", "start", *self.folders.arguments("ray.args")]
                env = environment(self._secrets, effect.session)
                Path(env["TMPDIR"]).mkdir(exist_ok=True)
                self.children.start("ray", argv, env)
            elif isinstance(effect, StartEngine):
                argv = ["vllm", "serve", *self.folders.arguments("serve.args")]
                env = environment(self._secrets, effect.session)
                self.children.start("vllm", argv, env | {"RAY_ADDRESS": self.settings.ray_address})
            elif isinstance(effect, Clean):
                self._begin_cleaning(effect)
            else:
                models = self.folders.models
                self._in_thread(effect, work(effect, self.settings, self._secrets, models))

    def _in_thread(self, ask: Ask | None, job: Callable[[], object]) -> None:
        def answer() -> None:
            value, error = None, ""
            try:
                value = job()
            except Exception as caught:
                error = f"{type(caught).__name__}: {caught}"
            if ask:
                self._answers.put(Answer(ask.number, ask.question, value, error))
                self.wake.set()

        threading.Thread(target=answer, daemon=True).start()

    def _begin_cleaning(self, clean: Clean) -> None:
        state, env = self._state(), environment(self._secrets)

        def clean_up() -> None:
            if clean.failure:
                self._save_evidence(clean.failure, state, env)
            self.children.forget()
            self._kill_and_empty()

        self._in_thread(Ask(clean.number, "clean", CLEAN_LIMIT_S), clean_up)

    def _save_evidence(self, failure: Failure, state: Mapping[str, Any], env: Mapping[str, str]) -> None:
        try:
            Evidence(self.folders, self.children).save(failure, state, env)
        except OSError as error:  # a full disk must not keep the memory taken
            self.console.say("supervise", f"cannot save the evidence: {error}")

    def _kill_and_empty(self) -> None:
        if left := kill_others(CLEAN_LIMIT_S / 2):
            self.console.say("supervise", f"cannot kill {left}")
        empty(Path("/dev/shm"))
        empty(Path("/tmp"), "ray")
        empty(Path("/tmp"), "sd-*")
        self.folders.adopt(self.folders.cache)

    # -- telling

    def _said(self) -> Beat:
        read, cpu = int(self._activity.read_bytes), int(self._activity.cpu_s)
        return replace(self.machine.said(), boot=self.boot_id[:8], read_bytes=read, cpu_s=cpu)

    def _save_attempts(self, attempts: Attempts) -> None:
        self._write("attempts.json", {"schema": SCHEMA, **asdict(attempts)})

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        try:
            self.folders.write(name, value)
        except OSError as error:
            self.console.say("supervise", f"cannot write run/{name}: {error}")

    def _state(self) -> dict[str, Any]:
        return state_of(self.machine, self.release, self.boot_id, self._since)

    def _publish(self) -> None:
        self._note_transition()
        self.heartbeat.say(self._said())
        state, now = self._state(), time.monotonic()
        if state == self._written and now < self._next_write:
            return
        self._written, self._next_write = state, now + STATE_EVERY_S
        heard = {"peers": peers_of(self.machine.seen.peers), "ignored": self.heartbeat.ignored()}
        self._write("state.json", {**state, "at": time.time(), **heard})

    def _note_transition(self) -> None:
        machine = self.machine
        if machine.shown != self._shown:
            self._shown, self._since = machine.shown, time.time()
            said = machine.progress
            self.console.say("supervise", f"{time.strftime('%H:%M:%S')} {machine.shown} {said}".rstrip())
            if machine.shown == "serving":  # what the engine has compiled
                self._in_thread(None, lambda: self.folders.adopt(self.folders.cache))
