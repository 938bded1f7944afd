"""Three ways to show a run: moving lines, plain lines, JSON."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import termios
import threading
from contextlib import suppress
from datetime import timezone
from itertools import chain
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ManyError, SparkDeployError, UnreachableError
from orchestrator.model.event import Event, Kind, from_mapping, to_mapping
from orchestrator.run.mask import mask, masking
from orchestrator.ui import errors
from orchestrator.ui.jsonl import jsonl
from orchestrator.ui.live import ECHO_WIDTH, live
from orchestrator.ui.plain import plain
from orchestrator.ui.sink import choose, tee

NASTY = st.text(st.characters() | st.sampled_from("\x1b\x9b\r\u202e"))
PROGRESS = {"phase": "starting-engine", "elapsed_s": 130, "limit_s": 3600}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def plain_lines(*events, replay=False):
    stream = io.StringIO()
    sink = plain(stream, timezone=timezone.utc, replay=replay)
    for event in events:
        sink(event)
    return stream.getvalue().splitlines()


def drawn(*events, colour=False):
    stream = Terminal()
    with live(stream, colour=colour, clock=lambda: 100.0) as sink:
        for event in events:
            sink(event)
    return stream.getvalue()


def strings(value):
    """Give every string in *value*, the keys too."""
    if isinstance(value, str):
        yield value
    for inner in (
        chain(*value.items()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from strings(inner)


def test_plain_says_the_same_progress_once():
    """A CI log of a 40 minute load is read by humans: unchanged text is no news, whatever the clock says."""
    first = Event(0, "progress", "weights 3/7", node="spark-1", data=PROGRESS)
    again = Event(9, "progress", "weights 3/7", node="spark-1", data={**PROGRESS, "elapsed_s": 139})
    next_one = Event(20, "progress", "weights 4/7", node="spark-1", data={**PROGRESS, "elapsed_s": 150})

    assert plain_lines(first, again, next_one) == [
        "00:00:00  progress   spark-1: starting-engine: weights 3/7 (2 min 10 s of 1 h)",
        "00:00:20  progress   spark-1: starting-engine: weights 4/7 (2 min 30 s of 1 h)",
    ]


def test_plain_tells_two_nodes_apart():
    """The same words from two nodes are two facts."""
    events = [Event(0, "progress", "joined", node=node) for node in ("spark-1", "spark-2")]

    assert len(plain_lines(*events)) == 2


def test_plain_names_the_action_that_ended():
    """`done` alone would mean nothing in a log with two nodes side by side."""
    begin = Event(0, "action-started", "upload 8 files", step="files", node="spark-2")
    failed = Event(1, "action-failed", "disk full\n  found 0 bytes", step="files", node="spark-2")

    assert (
        plain_lines(begin, failed)[1]
        == "00:00:01  FAILED     spark-2: upload 8 files: disk full | found 0 bytes"
    )


@given(
    st.text(), st.sampled_from(["note", "warning", "action-failed", "progress", "undo-started", "started"])
)
def test_plain_writes_at_most_one_line_per_event(text, kind):
    """Whatever a node says, the log stays one line an event."""
    assert len(plain_lines(Event(0, kind, text, step="s", node="n"))) == 1


def test_an_error_is_left_to_the_one_who_caught_it():
    """Otherwise every error stood twice on the terminal."""
    event = Event(0, "error", "no route to spark-2", data={"exit_code": 5})

    assert plain_lines(event) == []
    assert "no route" not in drawn(event)


def test_a_replay_shows_the_error_too():
    """`runs show` is the only place where it could be seen again."""
    event = Event(0, "error", "no route\n  hint look at the cable")

    assert plain_lines(event, replay=True) == [
        "00:00:00  ERROR      no route",
        "                       hint look at the cable",
    ]


def test_live_keeps_lines_of_what_is_done_and_takes_the_moving_ones_away():
    """After the run the scrollback tells its story, without half-drawn tables."""
    screen = drawn(
        Event(0, "step-started", "load the model", step="ready"),
        Event(1, "progress", "weights 3/7", node="spark-1", data=PROGRESS),
        Event(9, "step-done", step="ready", data={"elapsed_s": 9.0}),
    )

    lasting = screen.replace("\r", "")

    assert "✓ load the model (9.0 s)\n" in lasting
    assert lasting.endswith("\x1b[1A\x1b[2K")


def test_live_shows_phase_elapsed_and_limit_of_each_node():
    """An hour of loading is bearable when one sees how much of it has passed."""
    screen = drawn(
        Event(0, "step-started", "load the model", step="ready"),
        Event(1, "progress", "weights 3/7", node="spark-1", data=PROGRESS),
        Event(1, "progress", "joined", node="spark-2", data={"elapsed_s": 130, "limit_s": 3600}),
    )

    assert re.search(r"spark-1\S*  +starting-engine: weights 3/7  +\S*2 min 10 s of 1 h", screen)
    assert re.search(r"spark-2\S*  +joined  +\S*2 min 10 s of 1 h", screen)


def test_live_gives_the_cursor_back_when_the_run_breaks_off():
    """Ctrl-C in a step must not leave a terminal without a cursor."""
    stream = Terminal()
    with suppress(KeyboardInterrupt), live(stream, colour=True) as sink:
        sink(Event(0, "step-started", "load the model", step="ready"))
        raise KeyboardInterrupt

    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_live_rests_between_two_steps_so_that_a_question_can_be_asked():
    """A prompt under a table that redraws itself four times a second cannot be answered."""
    stream = Terminal()
    with live(stream, colour=False) as sink:
        sink(Event(0, "step-started", "look at the nodes", step="facts"))
        sink(Event(1, "step-done", step="facts"))

        assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_live_has_no_colour_when_told_so():
    """NO_COLOR takes colours away, not the moving lines."""
    events = (Event(0, "step-started", "load", step="ready"), Event(1, "warning", "lost spark-2"))

    assert "\x1b[33m" in drawn(*events, colour=True)
    assert "\x1b[33m" not in drawn(*events, colour=False)


def test_live_draws_no_markup_of_a_node():
    """A log line with [bold] in it is text, not a command to rich."""
    assert "[bold red]x[/]" in drawn(Event(0, "note", "[bold red]x[/]", node="n"))


def test_json_is_one_object_a_line_with_a_schema():
    """Machines read it line by line and can tell versions apart."""
    stream = io.StringIO()
    jsonl(stream)(Event(1.5, "progress", "weights 3/7\nmore", "ready", "spark-1", PROGRESS))

    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {
            "schema": "spark-deploy/event/v1",
            "at": 1.5,
            "kind": "progress",
            "step": "ready",
            "node": "spark-1",
            "text": "weights 3/7\nmore",
            "data": PROGRESS,
        }
    ]


@given(NASTY, st.dictionaries(NASTY, NASTY | st.integers() | st.lists(NASTY)))
def test_json_stays_one_ascii_line_whatever_is_in_it(text, data):
    """No text of a node can forge an event or reach the terminal through `jq -r`."""
    stream = io.StringIO()
    jsonl(stream)(Event(0, "note", text, data=data))
    line = stream.getvalue()

    assert line.isascii()
    assert line.count("\n") == 1
    assert [
        string for string in strings(json.loads(line)) if not string.replace("\n", "").isprintable()
    ] == []


@given(st.text(), st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_an_event_survives_being_written_and_read(text, node, data):
    """The journal replays what was seen."""
    event = Event(1.25, "note", text, "step", node, data)

    assert from_mapping(json.loads(json.dumps(to_mapping(event)))) == event


@given(st.floats(min_value=1e-7, max_value=0.002))
def test_a_replay_shows_the_second_that_the_screen_showed(before):
    """Rounded to milliseconds, 18.9997 s became 19 s in the journal: one `up` in fifty had a line that differed."""
    event = Event(1_764_553_459 - before, "note", "x")

    assert plain_lines(from_mapping(to_mapping(event))) == plain_lines(event)


@pytest.mark.parametrize(
    "raw", [{}, {"schema": "spark-deploy/run/v1", "at": 1}, {"schema": "spark-deploy/event/v1"}]
)
def test_what_is_no_event_is_refused(raw):
    """A line of another file is not an empty event."""
    with pytest.raises(ValueError, match="not an event"):
        from_mapping(raw)


@pytest.mark.parametrize(
    "kind", ["note", "action-failed", "progress", "warning", "action-started", "started"]
)
@pytest.mark.parametrize("output", ["live", "plain", "json"])
def test_no_escape_sequence_of_a_node_reaches_the_terminal(output, kind):
    """A container's log line must not set a window title, or worse."""
    stderr, stdout = Terminal(), Terminal()
    with choose(output, stderr, stdout, {"TERM": "xterm"}) as sink:
        sink(
            Event(
                0,
                kind,
                "evil\x1b]0;owned\x07 \x1b[31mred",
                step="s",
                node="n",
                data={"phase": "\x1b]0;owned\x07"},
            )
        )
    shown = stderr.getvalue() + stdout.getvalue()

    assert "owned" not in shown
    assert "\\u001b" not in shown


@pytest.mark.parametrize(
    ("terminal", "environ"),
    [(False, {"TERM": "xterm"}), (True, {"TERM": "dumb"})],
    ids=["no terminal", "dumb terminal"],
)
def test_live_is_plain_where_the_cursor_cannot_move(terminal, environ):
    """A pipe or an editor's shell gets lines, not escapes."""
    stderr = Terminal() if terminal else io.StringIO()
    with choose("live", stderr, io.StringIO(), environ) as sink:
        sink(Event(0, "step-started", "load", step="ready"))

    assert "\x1b" not in stderr.getvalue()
    assert "ready: load" in stderr.getvalue()


@pytest.mark.parametrize("output", ["live", "plain"])
def test_the_answer_alone_goes_to_standard_output(output):
    """`spark-deploy up > endpoint` holds the endpoint and nothing else."""
    stderr, stdout = Terminal(), io.StringIO()
    with choose(output, stderr, stdout, {"TERM": "xterm"}) as sink:
        sink(Event(0, "note", "looking"))
        sink(Event(1, "finished", "http://127.0.0.1:8000/v1", data={"exit_code": 0, "elapsed_s": 1.0}))

    assert stdout.getvalue() == "http://127.0.0.1:8000/v1\n"


def test_json_goes_to_standard_output_whole():
    """Nothing else is mixed into it, and standard error stays empty."""
    stderr, stdout = Terminal(), io.StringIO()
    with choose("json", stderr, stdout, {}) as sink:
        sink(Event(0, "note", "looking"))
        sink(Event(1, "finished", "served", data={"exit_code": 0}))

    assert [json.loads(line)["kind"] for line in stdout.getvalue().splitlines()] == ["note", "finished"]
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("output", ["plain", "json"])
def test_a_reader_who_left_does_not_stop_the_run(output):
    """`up | head -1` must not leave half a pair behind."""
    with choose(output, Gone(), Gone(), {}) as sink:
        sink(Event(0, "finished", "served"))


def test_what_is_left_for_a_reader_who_left_makes_no_noise_at_exit():
    """Python flushes again when it ends, and would turn a served pair into exit code 120."""
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stdout:
        jsonl(stdout)(Event(0, "note", "x" * 100))


@pytest.mark.parametrize("output", ["live", "plain", "json"])
def test_no_secret_reaches_a_screen(output):
    """Whatever a node quotes."""
    stderr, stdout = Terminal(), Terminal()
    with choose(output, stderr, stdout, {"TERM": "xterm"}) as screen:
        sink = masking(screen, mask(["hunter2"]))
        for kind in get_args(Kind):
            sink(
                Event(0, kind, "said hunter2", "ready", "spark-1", {"phase": "hunter2", "recipe": "hunter2"})
            )
    shown = stderr.getvalue() + stdout.getvalue()

    assert "said ***" in shown
    assert "hunter2" not in shown


def test_a_terminal_that_went_away_does_not_stop_the_run():
    """The same for moving lines: a closed SSH window of the laptop's user."""
    ours, theirs = pty.openpty()
    stderr = open(theirs, "w", buffering=1, closefd=False)  # noqa: SIM115 - closing it raises
    os.close(ours)
    with choose("live", stderr, io.StringIO(), {"TERM": "xterm"}) as sink:
        sink(Event(0, "step-started", "load", step="ready"))
        sink(Event(1, "finished", "served"))
    with suppress(OSError):
        stderr.close()
    os.close(theirs)


def test_a_stream_without_unicode_gets_escapes_instead_of_an_exception():
    """LC_ALL=C on a CI machine is no reason to fail."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    plain(stream)(Event(0, "note", "Größe ✓"))

    assert b"Gr\\xf6\\xdfe \\u2713" in raw.getvalue()


def test_events_of_several_threads_never_mix():
    """Nodes work side by side; lines do not."""
    stream = io.StringIO()
    sink = tee(plain(stream, timezone=timezone.utc))
    threads = [
        threading.Thread(target=lambda name=name: [sink(Event(0, "note", f"{name * 40}")) for _ in range(50)])
        for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {line.split()[-1] for line in stream.getvalue().splitlines()} == {name * 40 for name in "abcd"}


def test_an_error_says_what_where_found_wanted_and_what_to_do():
    """The shape of every error of this tool."""
    stream = io.StringIO()
    error = SparkDeployError(
        "port is taken", at="home.yaml:14", found="8000", wanted="a free port", hint="stop it"
    )
    errors.show(error, stream, {})

    assert stream.getvalue() == (
        "Error: port is taken\n  at     home.yaml:14\n  found  8000\n  wanted a free port\n  hint   stop it\n"
    )


def test_every_one_of_several_errors_is_shown():
    """Two dead nodes are two errors, also when one of them is a bundle itself."""
    stream = io.StringIO()
    inner = ManyError((SparkDeployError("two"), SparkDeployError("three")))
    errors.show(ManyError((SparkDeployError("one"), inner)), stream, {})

    assert stream.getvalue() == "Error: one\nError: two\nError: three\n"


def test_an_error_is_red_on_a_terminal_only():
    """And not with NO_COLOR."""
    shown = []
    for stream, environ in ((Terminal(), {}), (Terminal(), {"NO_COLOR": "1"}), (io.StringIO(), {})):
        errors.show(SparkDeployError("no"), stream, environ)
        shown.append("\x1b[" in stream.getvalue())

    assert shown == [True, False, False]


def test_an_error_as_an_event_carries_its_exit_code():
    """`--output json` tells a machine how the command will end."""
    event = errors.event(UnreachableError("no route to \x1b[1mspark-2", hint="look at the cable"), at=7)

    assert event == Event(
        7, "error", "no route to spark-2\n  hint   look at the cable", data={"exit_code": 5}
    )


def test_the_moving_lines_leave_room_for_the_echo_of_ctrl_c(monkeypatch):
    """At the end of a full line it wrapped, and every line drawn later stood one too low: dead spinners."""
    monkeypatch.setenv("COLUMNS", "80")
    screen = drawn(
        Event(0, "step-started", "load the model " * 9, step="ready"),
        Event(0, "progress", "weights " * 20, node="spark-1", data=PROGRESS),
    )
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "\n").split("\n")

    assert max(map(len, lines)) == 80 - ECHO_WIDTH


@pytest.fixture
def terminal_of_40():
    """Both ends of a real terminal of 40 columns: what is written, and where to read it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(slave, "w") as stream:
        yield stream, lambda: os.read(master, 4096).decode().replace("\r\n", "\n")
    os.close(master)


def test_an_error_is_broken_between_words_on_a_terminal(terminal_of_40):
    """The terminal alone breaks within them. A hint stays whole: it may be a command to copy."""
    stream, read = terminal_of_40
    hint = "spark-deploy trust spark-1 --fingerprint SHA256:0123456789"
    errors.show(
        UnreachableError("the host key of spark-1 is not known to this machine", found="a key", hint=hint),
        stream,
        {"NO_COLOR": "1"},
    )

    assert read() == (
        f"Error: the host key of spark-1 is not\n         known to this machine\n  found  a key\n  hint   {hint}\n"
    )


def test_an_error_in_a_file_is_not_broken():
    """Whoever searches a log wants whole lines."""
    stream = io.StringIO()
    errors.show(UnreachableError("long " * 100), stream, {})

    assert stream.getvalue().count("\n") == 1
