"""What the client sends and keeps of the wire: counts, order, ends and closed sockets; no timings."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any

import pytest

from orchestrator.bench.stream import Wanted, read
from orchestrator.client import wire
from orchestrator.client.drive import Driven, Limits, Ticks, closed_loop, open_loop, run
from orchestrator.client.server import Server, parse_url
from orchestrator.client.stamps import SO_TIMESTAMPNS, Receiver
from orchestrator.errors import UnreachableError
from orchestrator.model.bench import Received
from tests.bench.driving import TOKENS, bodies, drive, driven
from tests.truth.client import Truth

PATH = "/v1/completions"


def endless() -> Iterator[bytes]:
    return bodies(chat=False, tokens=TOKENS)


def scheduled(server: Server, due_s: list[float], max_in_flight: int = 1) -> Driven:
    return run(open_loop(server, PATH, endless(), due_s, max_in_flight=max_in_flight))


def slots(driven: Driven) -> dict[int, list[Received]]:
    """The requests of each slot, in the order of their sending."""
    by_slot: dict[int, list[Received]] = {}
    for one in sorted(driven.received, key=lambda one: one.sent_ns):
        by_slot.setdefault(one.slot, []).append(one)
    return by_slot


def test_the_server_sees_as_many_requests_as_were_asked_for(truth: Truth) -> None:
    """And never more of them at once than there are slots."""
    done = drive(truth, requests=21, concurrency=4)

    assert (len(done.received), len(truth.requests())) == (21, 21)
    assert max(one["in_flight"] for one in truth.requests()) <= 4


def test_bodies_are_sent_in_their_order(truth: Truth) -> None:
    """The seed decides which prompts a level has, not the speed of the server."""
    drive(truth, requests=9, concurrency=1)

    expected = [json.loads(body)["prompt"] for body in islice(endless(), 9)]
    assert [body["prompt"] for body in truth.bodies()] == expected[: len(truth.bodies())]


def test_a_slot_sends_its_next_request_when_its_last_has_ended(truth: Truth) -> None:
    """Closed loop: one request each, never two, and the wait for the client is told apart."""
    truth.config(ttft=0.002, itl=0.0005)

    for requests in slots(drive(truth, requests=24, concurrency=4)).values():
        for last, following in pairwise(requests):
            assert last.ended_ns == following.scheduled_ns < following.sent_ns


@pytest.mark.parametrize("limit", [{"requests": 2}, {"duration_s": 0}, {"requests": 99, "duration_s": 0}])
def test_every_slot_sends_one_request_however_short_the_level(truth: Truth, limit: dict[str, Any]) -> None:
    """A level of 4 that had 2 in flight would not be one."""
    done = run(closed_loop(parse_url(truth.url), PATH, endless(), 4, **limit))

    assert Counter(one.slot for one in done.received) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_level_ends_with_its_bodies(truth: Truth) -> None:
    """A finite set of prompts is never begun anew: the cache would answer."""
    done = run(closed_loop(parse_url(truth.url), PATH, islice(endless(), 5), 2, duration_s=60))

    assert len(done.received) == 5


def test_the_clock_starts_with_the_first_send_and_dispatch_ends_with_the_last(truth: Truth) -> None:
    """The steady window is cut by these."""
    done = drive(truth, requests=9, concurrency=3)
    sent = [one.sent_ns for one in done.received]

    assert (done.zero_ns, done.last_dispatch_ns) == (min(sent), max(sent))


def test_one_socket_serves_a_slot_for_the_whole_level(truth: Truth) -> None:
    """Opened before the clock starts; none is opened while it runs."""
    done = drive(truth, requests=12, concurrency=3)

    assert (len({one["connection"] for one in truth.requests()}), done.client.reopened) == (3, 0)


def test_arrivals_follow_the_send_and_each_other(truth: Truth) -> None:
    """Kernel stamps are of another clock: mapped wrongly, they would lie before the send."""
    truth.config(ttft=0.002, itl=0.0005)

    for one in drive(truth, requests=8, concurrency=2).received:
        times = [one.sent_ns, *(at for at, _ in one.reads), one.ended_ns]
        assert times == sorted(times)


def test_tokens_are_those_that_the_server_sent(truth: Truth) -> None:
    """Several in an event, and several events in a read."""
    truth.config(tokens_per_chunk=[3, 1, 4, 2], reasoning=5)
    requests = driven(truth, requests=6, concurrency=2, chat=True, tokens=31)

    assert Counter(one.tokens for one in requests) == Counter(
        tuple(one["tokens"]) for one in truth.requests()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="stamps are Linux's")
def test_plain_http_is_stamped_by_the_kernel(truth: Truth) -> None:
    """How late this process got to run is then known, and in no arrival."""
    client = drive(truth, requests=4).client

    assert (client.stamps, client.clock_jumps) == ("kernel", 0)
    assert client.lag_max_ms is not None


@pytest.mark.parametrize("runner", [run, asyncio.run])
def test_tls_works_with_a_ca_file(runner: Callable[..., Driven]) -> None:
    """On both event loops; an arrival is then the time of its read."""
    with Truth(tls=True) as truth:
        server = parse_url(truth.url, ca_file=truth.ca_file)
        done = runner(closed_loop(server, PATH, endless(), 3, requests=9))

    assert [read(one, Wanted(TOKENS), 0).failure for one in done.received] == [""] * 9
    assert done.client.stamps == "read"


def test_without_stamps_lag_is_that_of_a_timer() -> None:
    """A client that cannot keep up with TLS must not pass its gate unseen."""
    with Truth(tls=True, ttft=0.1) as truth:
        server = parse_url(truth.url, ca_file=truth.ca_file)
        client = run(closed_loop(server, PATH, endless(), 1, requests=1)).client

    assert client.lag_max_ms is not None
    assert 0 <= (client.lag_p99_ms or 0) <= client.lag_max_ms


def test_an_unknown_certificate_is_no_connection() -> None:
    """A message and exit 5, before anything of the key has been sent."""
    with Truth(tls=True) as truth, pytest.raises(UnreachableError, match="certificate verify failed"):
        run(closed_loop(parse_url(truth.url), PATH, endless(), 2, requests=2))


def test_insecure_takes_any_certificate() -> None:
    """As asked."""
    with Truth(tls=True) as truth:
        done = run(closed_loop(parse_url(truth.url, insecure=True), PATH, endless(), 1, requests=1))

    assert done.received[0].status == 200


@pytest.mark.parametrize(("key", "status"), [("secret", 200), ("", 401), ("wrong", 401)])
def test_the_api_key_goes_with_every_request(truth: Truth, key: str, status: int) -> None:
    """And a wrong one is a class of its own, not a broken stream."""
    truth.config(key="secret")
    done = run(closed_loop(parse_url(truth.url, key), PATH, endless(), 2, requests=4))

    assert [one.status for one in done.received] == [status] * 4


def test_the_prefix_of_a_url_is_kept(truth: Truth) -> None:
    """A gateway has several models behind one host."""
    truth.config(prefix="/llm")
    done = run(closed_loop(parse_url(truth.url), "/llm" + PATH, endless(), 1, requests=1))

    assert done.received[0].status == 200


def test_a_forward_is_dialled_in_place_of_the_host(truth: Truth) -> None:
    """The name need not even resolve here."""
    server = parse_url("http://spark-a.invalid:8000", connect=("127.0.0.1", truth.port))
    done = run(closed_loop(server, PATH, endless(), 1, requests=1))

    assert done.received[0].status == 200


def test_the_way_behind_a_forward_is_open_before_the_clock_starts() -> None:
    """Its near end always is: the first request of a socket would else pay for the far one."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(65536):
                    asked.append(data.split(b"\r\n")[0])
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        server = threading.Thread(target=answer)
        server.start()
        near = parse_url("http://spark-a.invalid:8000/llm", connect=listener.getsockname()[:2])
        done = run(closed_loop(near, "/llm" + PATH, endless(), 1, requests=1))
        server.join(10)

    assert asked == [b"GET /llm/health HTTP/1.1", b"POST /llm" + PATH.encode() + b" HTTP/1.1"]
    assert done.client.reopened == 0


def test_a_server_that_refuses_is_unreachable(truth: Truth) -> None:
    """Not a level of failures."""
    truth.config(refuse=True)
    with pytest.raises(UnreachableError, match="no connection to"):
        run(closed_loop(parse_url(truth.url), PATH, endless(), 2, requests=2))


def test_a_socket_that_the_server_closed_while_idle_is_opened_anew(truth: Truth) -> None:
    """uvicorn closes after 5 s: no failure, no time of the request, and it is counted."""
    truth.config(idle_close=0.1)
    done = scheduled(parse_url(truth.url), [0, 0.5])

    assert [read(one, Wanted(TOKENS), 0).failure for one in done.received] == ["", ""]
    assert done.client.reopened >= 1  # two, where this machine stalls before the first


def test_arrivals_keep_their_schedule_where_no_slot_is_free(truth: Truth) -> None:
    """Else an overloaded server would look fast: it is asked less."""
    truth.config(ttft=0.03)
    done = scheduled(parse_url(truth.url), [0, 0, 0.001, 0.002])
    first = done.received[0]

    assert [one.scheduled_ns - first.scheduled_ns for one in done.received] == [0, 0, 1_000_000, 2_000_000]
    assert all(last.ended_ns <= one.sent_ns for last, one in pairwise(done.received))


def test_nothing_is_sent_before_it_is_due(truth: Truth) -> None:
    """Not by a timer's rounding, either."""
    done = scheduled(parse_url(truth.url), [0.0, 0.0104, 0.0207, 0.0309], max_in_flight=4)

    assert all(one.scheduled_ns <= one.sent_ns for one in done.received)


LATE: dict[str, tuple[dict[str, Any], Limits, str]] = {
    "no token comes": ({"ttft": 30}, Limits(first_s=0.2), "timeout"),
    "pings are no tokens": ({"ttft": 30, "ping": 0.01}, Limits(first_s=0.2), "timeout"),
    "tokens stop": ({"itl": 30}, Limits(stall_s=0.2), "stall"),
    "it takes too long in all": ({"itl": 0.02}, Limits(total_s=0.2), "timeout"),
    "a long prefill after a role chunk is no stall": (
        {"ttft": 1.2, "role_chunk": "immediate"},
        Limits(stall_s=0.8),
        "",
    ),
    "a long stream with short gaps is neither": ({"itl": 0.05}, Limits(first_s=0.9, stall_s=0.9), ""),
}


@pytest.mark.parametrize("case", LATE)
def test_what_comes_too_late_has_a_class_of_its_own(truth: Truth, case: str) -> None:
    """A dead engine must not hold the level for ever, and a busy one must not be taken for dead."""
    options, limits, failure = LATE[case]
    truth.config(**options)

    requests = driven(truth, requests=2, concurrency=2, chat=True, tokens=24, limits=limits)

    assert [one.failure for one in requests] == [failure] * 2


def test_progress_is_told_while_a_level_runs(truth: Truth) -> None:
    """From it come the bar and the time left."""
    truth.config(ttft=0.01, itl=0.03)
    seen: list[Ticks] = []
    run(closed_loop(parse_url(truth.url), PATH, endless(), 2, requests=4, on_progress=seen.append))

    assert max(tick.in_flight for tick in seen) == 2
    assert [tick.events for tick in seen] == sorted(tick.events for tick in seen)


@pytest.mark.parametrize("runner", [run, asyncio.run])
@pytest.mark.parametrize("tls", [False, True])
def test_a_cancelled_level_closes_every_socket(tls: bool, runner: Callable[..., None]) -> None:
    """Ctrl-C: the server must not go on generating for nobody."""
    with Truth(tls=tls, ttft=0.01, itl=30) as truth:
        server = parse_url(truth.url, ca_file=truth.ca_file)

        async def interrupted() -> None:
            def stop(tick: Ticks) -> None:
                if tick.events >= 3:
                    level.cancel()

            level = asyncio.ensure_future(
                closed_loop(server, PATH, endless(), 3, requests=9, on_progress=stop)
            )
            with pytest.raises(asyncio.CancelledError):
                await level

        runner(interrupted())
        while not all(one["client_gone"] for one in truth.requests()):
            pass  # the server notices within its next turn
        assert len(truth.requests()) == 3


def test_a_bug_in_the_bodies_ends_the_level_at_once(truth: Truth) -> None:
    """Not after the requests in flight, which may take an hour."""
    truth.config(ttft=0.01, itl=30)

    def broken() -> Iterator[bytes]:
        yield next(endless())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(closed_loop(parse_url(truth.url), PATH, broken(), 2, requests=9))


HEAD = b"HTTP/1.1 200 OK\r\n"
Script = list[bytes | None]


@contextmanager
def scripted(script: Script, *, until: bytes = b"") -> Iterator[Server]:
    """A server that answers the k-th request with script[k], then closes where that ends in EOF; None: without a byte."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    thread = threading.Thread(target=_serve, args=(listener, list(script), until))
    thread.start()
    yield parse_url(f"http://127.0.0.1:{listener.getsockname()[1]}")
    thread.join()
    listener.close()


def _serve(listener: socket.socket, script: Script, until: bytes) -> None:
    while script:
        peer, _ = listener.accept()
        peer.settimeout(30)
        with peer:
            while script and _asked(peer, until):
                answer = script.pop(0)
                peer.sendall((answer or b"").removesuffix(b"EOF"))
                if answer is None or answer.endswith(b"EOF"):
                    break


def _asked(peer: socket.socket, until: bytes) -> bool:
    """Whether a request came: all of it, or up to *until*."""
    request = b""
    while not (until and until in request):
        piece = peer.recv(65536)
        request += piece
        head, found, body = request.partition(b"\r\n\r\n")
        size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        if not piece or (found and len(body) >= size):
            return bool(piece)
    return True


def asked(server: Server, requests: int = 1) -> list[Received]:
    limits = Limits(first_s=5)
    return list(
        run(closed_loop(server, PATH, iter([b"{}"] * requests), 1, requests=requests, limits=limits)).received
    )


FRAMINGS = {
    "a length": HEAD + b"content-length: 5\r\n\r\nhello",
    "chunks": HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    "trailers": HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "the end of the connection": HEAD + b"\r\nhelloEOF",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\nhelloEOF",
    "a length, and goodbye": HEAD + b"connection: close\r\ncontent-length: 5\r\n\r\nhelloEOF",
    "100 Continue first": b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_framing_of_a_body_is_taken_off(framing: str) -> None:
    """And the next request on that slot has its own answer."""
    with scripted([FRAMINGS[framing], FRAMINGS["a length"]]) as server:
        found = asked(server, 2)

    assert [b"".join(data for _, data in one.reads) for one in found] == [b"hello"] * 2
    assert [(one.status, one.end) for one in found] == [(200, "complete")] * 2


def test_bytes_after_an_answer_are_not_taken_for_the_next_one() -> None:
    """The socket is given up, and the answer counts as it was."""
    with scripted(
        [FRAMINGS["a length"] + b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", FRAMINGS["a length"]]
    ) as server:
        found = asked(server, 2)

    assert [(one.status, one.end) for one in found] == [(200, "complete")] * 2


CUTS = {
    "nothing": None,
    "half a head": b"HTTP/1.1 20EOF",
    "half a body": HEAD + b"content-length: 9\r\n\r\nhelloEOF",
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\nhelloEOF",
    "no last chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nEOF",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\nEOF",
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_broken_answer_is_a_disconnect_and_the_slot_goes_on(cut: str) -> None:
    """On a new socket: the next answer is whole."""
    with scripted([CUTS[cut], FRAMINGS["a length"]]) as server:
        found = asked(server, 2)

    assert [one.end for one in found] == ["disconnect", "complete"]
    assert found[0].detail


def test_a_request_that_met_a_dying_idle_socket_is_sent_once_more() -> None:
    """The server's timer struck while the request was on its way: nothing broke that a user would see."""
    answer = FRAMINGS["a length"]
    with scripted([answer, None, answer]) as server:
        done = scheduled(server, [0, 0.6])

    assert [one.end for one in done.received] == ["complete", "complete"]
    assert done.client.reopened == 1


def test_a_refusal_before_the_body_was_sent_is_heard() -> None:
    """413: the server does not read on, and what is left must not pass for the next request."""
    body = b'{"prompt": "' + b"x" * 20_000_000 + b'"}'
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nhugeEOF"
    with scripted([refusal], until=b"prompt") as server:
        done = run(closed_loop(server, PATH, iter([body]), 1, requests=1))

    assert done.received[0].end in ("complete", "disconnect")  # as the reset comes before or after the words


def test_a_body_larger_than_the_kernel_takes_at_once_arrives_whole(truth: Truth) -> None:
    """A prompt of 100,000 token ids is 600 kB."""
    truth.config(max_model_len=2_000_000)
    requests = driven(truth, requests=2, prompt_tokens=1_000_000)

    assert [(one.failure, one.prompt_tokens) for one in requests] == [("", 1_000_000)] * 2


@pytest.mark.parametrize("stamped", [False, True])
def test_both_ways_of_reading_give_the_same_bytes(truth: Truth, stamped: bool) -> None:
    """Elsewhere than on Linux, and under TLS, asyncio reads."""
    server = parse_url(truth.url)

    async def body() -> bytes:
        connection = await wire.dial(server, None, Receiver(), stamped=stamped)
        body = next(endless())
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        end = await connection.exchange(head + body)
        connection.close()
        assert end == ("complete", "")
        return b"".join(data for _, data in connection.answer.reads)

    assert run(body()).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("runner", [run, asyncio.run])
def test_a_reset_behind_unread_bytes_is_not_taken_for_a_stall(runner: Callable[..., tuple[str, str]]) -> None:
    """uvloop tells of both at once, and then of nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        peer.recv(65536)
        peer.sendall(HEAD + b"content-length: 9\r\n\r\nhello")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        served.set()

    async def ended() -> tuple[str, str]:
        server = parse_url(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection = await wire.dial(server, None, Receiver())
        exchange = asyncio.ensure_future(connection.exchange(b"GET / HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(0)
        served.wait(30)  # meanwhile this loop reads nothing
        while not exchange.done():
            await asyncio.sleep(0)
            connection.poke()
        return await exchange

    thread = threading.Thread(target=serve)
    thread.start()
    assert runner(ended())[0] == "disconnect"
    thread.join()
    listener.close()


def stamp(at_ns: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("qq", *divmod(at_ns, 1_000_000_000)))]


def test_a_stamp_is_told_on_the_monotonic_clock() -> None:
    """As late as it was read: that is the client's lag."""
    receiver = Receiver()
    before_ns, stamped_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()

    assert before_ns - 1_000_000 < receiver.arrival_ns(stamp(stamped_ns)) < after_ns + 1_000_000
    assert len(receiver.lags_ns) == 1


@pytest.mark.parametrize("ancillary", [[], stamp(0), stamp(4_000_000_000_000_000_000)])
def test_a_read_without_a_usable_stamp_arrived_when_it_was_read(ancillary: list[Any]) -> None:
    """The first packets have none; one of a clock that was set back would lie in the future."""
    receiver = Receiver()
    before_ns = time.monotonic_ns()

    assert before_ns <= receiver.arrival_ns(ancillary) <= time.monotonic_ns()
    assert not receiver.lags_ns


def test_a_clock_that_jumped_is_counted() -> None:
    """Arrivals around the jump cannot be trusted: a gate makes the level invalid."""
    receiver = Receiver()
    receiver.offset_ns += 2_000_000

    receiver.check_clock()
    receiver.check_clock()

    assert receiver.clock_jumps == 1
