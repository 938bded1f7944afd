"""The heartbeat between supervisors: authentic, fresh, small, or without effect."""

from __future__ import annotations

import hashlib
import hmac
import random
from dataclasses import replace
from typing import Any

import pytest

from supervisor.beat import Beat, decode_beat, encode_beat
from supervisor.hearing import Hearing
from tests.unit.supervision import HEAD, RELEASE, WORKER, settings

TOKEN = b"5ec4e7"


class Side:
    """One supervisor's hearing, and what it sends."""

    def __init__(self, node: str, incarnation: str, *, release: str = RELEASE) -> None:
        self.node = node
        self.peer = WORKER if node == HEAD else HEAD
        self.hearing = Hearing(settings(node), release, incarnation)

    def send(self, now: float, token: bytes = TOKEN, **said: Any) -> bytes:
        self.hearing.tick(now)
        beat = self.hearing.beat_for(self.peer, Beat(node=self.node, **said))
        return bytes(encode_beat(beat, "home", token))

    def hear(self, datagram: bytes, now: float) -> bool:
        return bool(self.hearing.hear(datagram, TOKEN, now))

    def view(self, now: float) -> Any:
        return self.hearing.view(now)[self.peer]


def talk(a: Side, b: Side, start: float, rounds: int = 4) -> float:
    """Let both hear each other four times a second; give the time afterwards."""
    now = start
    for _ in range(rounds):
        b.hear(a.send(now), now)
        a.hear(b.send(now), now)
        now += 0.25
    return now


@pytest.fixture
def head() -> Side:
    return Side(HEAD, "head-1")


@pytest.fixture
def worker() -> Side:
    return Side(WORKER, "worker-1")


def test_two_supervisors_hear_each_other_within_a_second(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)

    assert head.view(now).here
    assert worker.view(now).here


def test_what_is_said_arrives_whole(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    head.hear(worker.send(now, session="s-1", ray=True, phase="joined", lines=("a", "b"), cpu_s=3), now)

    beat = head.view(now).beat
    assert (beat.session, beat.ray, beat.phase, beat.lines, beat.cpu_s) == (
        "s-1",
        True,
        "joined",
        ("a", "b"),
        3,
    )


def test_first_beat_is_not_believed_before_it_gives_back_one_of_ours(head: Side, worker: Side) -> None:
    """
    It may have been recorded yesterday: only a proof that we were heard makes it fresh.
    """
    head.hearing.tick(100.0)

    assert not head.hear(worker.send(100.0), 100.0)
    assert head.hearing.ignored == {"unheard": 1}


def test_forged_beat_changes_nothing(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)

    assert not head.hear(worker.send(now, token=b"guess", phase="down"), now)
    assert head.hearing.ignored["forged"] == 1
    assert head.view(now).beat.phase != "down"


def test_changed_byte_is_a_forgery(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    datagram = bytearray(worker.send(now))
    datagram[-3] ^= 1

    assert not head.hear(bytes(datagram), now)


def test_replayed_beat_changes_nothing(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    recorded = worker.send(now, session="old")
    head.hear(recorded, now)
    later = talk(head, worker, now + 0.25)

    assert not head.hear(recorded, later)
    assert head.view(later).beat.session == ""


def test_replay_of_a_silent_peer_does_not_keep_it_alive(head: Side, worker: Side) -> None:
    """
    Its age counts from our own beat that it has proved to have heard, and that one gets old.
    """
    now = talk(head, worker, 100.0)
    recorded = worker.send(now)
    for second in range(60):
        head.hearing.tick(now + second)
        head.hear(recorded, now + second)

    assert head.view(now + 60).age_s > 59


def test_beats_recorded_before_our_restart_change_nothing(head: Side, worker: Side) -> None:
    """
    A restarted supervisor is another incarnation, and old beats give back the old one.
    """
    now = talk(head, worker, 100.0)
    recorded = worker.send(now, session="old")
    restarted = Side(HEAD, "head-2")
    for _ in range(8):
        restarted.hearing.tick(now)

    assert not restarted.hear(recorded, now)
    assert not restarted.view(now).here


def test_restarted_peer_is_heard_as_another_incarnation(head: Side, worker: Side) -> None:
    """
    In a second: it was silent for that long itself.
    """
    now = talk(head, worker, 100.0)
    restarted = Side(WORKER, "worker-2")
    now = talk(head, restarted, now + 1.0)

    assert head.view(now).beat.incarnation == "worker-2"


def test_replay_of_an_older_incarnation_does_not_bring_it_back(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    recorded = worker.send(now)
    restarted = Side(WORKER, "worker-2")
    now = talk(head, restarted, now + 1.0)

    assert not head.hear(recorded, now)
    assert head.view(now).beat.incarnation == "worker-2"


def test_flood_of_replays_does_not_silence_the_peer(head: Side, worker: Side) -> None:
    """
    We go on giving back the counters of the incarnation that has proved itself.
    """
    old = Side(WORKER, "worker-0")
    now = talk(head, old, 90.0)
    recorded = old.send(now)
    now = talk(head, worker, now + 1.0)
    for _ in range(40):
        for _ in range(20):
            head.hear(recorded, now)
        now = talk(head, worker, now, rounds=1)

    assert head.view(now).here
    assert worker.view(now).here


def test_link_that_carries_one_direction_is_silent_on_both_ends(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    for _ in range(40):
        head.hearing.tick(now)  # sent, and lost
        head.hear(worker.send(now), now)
        now += 0.25

    assert head.view(now).age_s > 9
    assert worker.view(now).age_s > 9


def test_reordered_beat_does_not_take_back_what_is_known(head: Side, worker: Side) -> None:
    now = talk(head, worker, 100.0)
    first, second = worker.send(now, phase="joined"), worker.send(now, phase="serving")
    head.hear(second, now)

    assert not head.hear(first, now)
    assert head.view(now).beat.phase == "serving"


def test_other_release_is_ignored_and_named(head: Side) -> None:
    """
    Ranks of two releases never mix; the operator sees what the other node runs.
    """
    other = Side(WORKER, "worker-1", release="ffff00000000")
    talk(head, other, 100.0)

    assert not head.view(101.0).here
    assert head.hearing.foreign_release == {WORKER: "ffff00000000"}


def test_other_release_is_forgotten_once_the_peer_runs_ours(head: Side, worker: Side) -> None:
    talk(head, Side(WORKER, "worker-0", release="ffff00000000"), 100.0)
    talk(head, worker, 102.0)

    assert head.hearing.foreign_release == {}


def test_other_deployment_with_the_same_token_is_ignored(head: Side, worker: Side) -> None:
    beat = worker.hearing.beat_for(HEAD, Beat(node=WORKER))

    assert not head.hear(encode_beat(beat, "other", TOKEN), 100.0)
    assert head.hearing.ignored == {"foreign": 1}


def test_unknown_node_is_ignored(head: Side, worker: Side) -> None:
    beat = replace(worker.hearing.beat_for(HEAD, Beat(node=WORKER)), node="spark-9")

    assert not head.hear(encode_beat(beat, "home", TOKEN), 100.0)
    assert head.hearing.ignored == {"unknown": 1}


def test_oversized_datagram_is_ignored_before_it_is_looked_at(head: Side) -> None:
    head.hear(b"x" * 1001, 100.0)

    assert head.hearing.ignored == {"oversized": 1}


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"node": 3}', b"\xff\xfe", b"[" * 900])
def test_authentic_nonsense_is_ignored(head: Side, body: bytes) -> None:
    """
    A newer supervisor may say what we do not understand; it must not take us down.
    """
    mac = hmac.new(TOKEN, body, hashlib.sha256).digest()

    assert not head.hear(mac + body, 100.0)


def test_value_of_a_wrong_type_is_left_out() -> None:
    body = b'{"deployment":"home","node":"spark-2","counter":"many","lines":["a"]}'
    mac = hmac.new(TOKEN, body, hashlib.sha256).digest()

    assert decode_beat(mac + body, "home", TOKEN) == Beat(node="spark-2", lines=("a",))


def test_long_lines_and_causes_are_cut_to_one_datagram() -> None:
    """
    The last lines are the ones that tell: the first are dropped.
    """
    beat = Beat(node=WORKER, cause="ü" * 2000, lines=tuple(f"{i} {'x' * 300}" for i in range(30)))
    datagram = encode_beat(beat, "home", TOKEN)

    assert len(datagram) <= 1000
    assert decode_beat(datagram, "home", TOKEN).lines[-1].startswith("29 x")


def test_heartbeat_survives_thirty_percent_loss_without_a_false_alarm(head: Side, worker: Side) -> None:
    """
    The longest gap in ten minutes stays under link_lost_s (5 s); measured 2.1 s at 4/s.
    """
    dice, now, longest = random.Random(1), talk(head, worker, 100.0), 0.0  # noqa: S311
    for _ in range(2400):
        for sender, receiver in ((head, worker), (worker, head)):
            datagram = sender.send(now)
            if dice.random() > 0.3:
                receiver.hear(datagram, now)
        longest = max(longest, head.view(now).age_s)
        now += 0.25

    assert longest < 5
