"""The journal holds what was done and found, never a secret, and never stands in the way."""

import io
import json
import os
import stat
import subprocess
import tarfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ManyError, StepFailedError, UsageError
from orchestrator.model.event import Event
from orchestrator.model.release import Release, ReleaseFile
from orchestrator.run.history import list_runs, load_run, runs_folder
from orchestrator.run.journal import KEPT_RUNS, Journal
from orchestrator.run.mask import hide_in_error, mask, mask_bytes, masked, masking

NINE = 1_796_072_400  # 2026-11-30 21:00:00 UTC


@pytest.fixture
def environ(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def opened(environ, *, at=NINE, command="up", warn=None):
    return Journal.open(environ, "home", command, lambda: at, warn)


def contents(folder):
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@contextmanager
def full_disk(folder):
    """A file system of 64 KiB, most of it used."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_run_has_a_sortable_id_and_a_folder_of_its_own(environ):
    """The id is the time in UTC, so that `ls` tells the order, also when the clock changes in autumn."""
    journal = opened(environ)

    assert journal.id.startswith("20261130T210000-")
    assert journal.folder == runs_folder(environ) / journal.id


def test_nobody_else_may_read_a_journal(environ):
    """Logs of nodes are not for every user of the laptop."""
    with opened(environ) as journal:
        journal(Event(NINE, "note", "x"))
        journal.save("spark-1", "logs/container.log", b"x")
        files = [path for path in journal.folder.rglob("*") if path.is_file()]

    assert stat.S_IMODE(journal.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_relative_state_home_is_ignored():
    """So says the XDG base directory specification."""
    expected = "/home/u/.local/state/spark-deploy/runs"

    assert str(runs_folder({"XDG_STATE_HOME": "state", "HOME": "/home/u"})) == expected


def test_what_was_kept_is_found_again(environ, tmp_path):
    """Plan, sources, rendered files, evidence and events of one run in one folder."""
    inventory = tmp_path / "home.yaml"
    inventory.write_text("name: home\n")
    file = ReleaseFile("run.sh", b"#!/bin/bash\n", 0o755)
    with opened(environ) as journal:
        journal.keep_sources(inventory=str(inventory))
        journal.describe(argv=["up", "--yes"], version="0.1.0", release="abc")
        journal.write_plan("Plan: serve\n")
        journal.write_release(Release("home", ReleaseFile("manifest.json", b"{}"), {"spark-1": (file,)}))
        journal.save("spark-1", "container.log", b"loading\n")
        journal(Event(NINE + 1, "note", "x"))
    run = load_run(environ, journal.id)

    assert run.files() == (
        "events.jsonl",
        "evidence/spark-1/container.log",
        "files/spark-1/run.sh",
        "plan.txt",
        "run.json",
        "sources/inventory.yaml",
    )
    assert (run.command, run.deployment, run.release, run.argv) == ("up", "home", "abc", ("up", "--yes"))
    assert (run.folder / "files/spark-1/run.sh").read_bytes() == b"#!/bin/bash\n"


def test_an_event_is_on_disk_as_soon_as_it_happened(environ):
    """A killed run tells how far it came."""
    event = Event(NINE + 1, "step-started", "load the model", "ready")
    with opened(environ) as journal:
        journal(event)

        assert load_run(environ, journal.id).events == (event,)


def test_evidence_cannot_leave_the_folder(environ):
    """Names of evidence come from a node, which may be broken or hostile."""
    with opened(environ) as journal:
        journal.save("../spark-1", "../../../../run.json", b"evil")
        journal.save("spark-1", "/etc/passwd", b"evil")
        journal.save("..", "..", b"evil")
    evidence = [path for path in load_run(environ, journal.id).files() if path.startswith("evidence/")]

    assert evidence == [
        "evidence/spark-1/etc/passwd",
        "evidence/spark-1/run.json",
        "evidence/unnamed/unnamed",
    ]


def archive(*members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return packed.getvalue()


def test_packed_evidence_is_unpacked_and_masked(environ):
    """A secret inside of a compressed file could not be found, so nothing compressed is kept."""
    with opened(environ) as journal:
        journal.hide(["hunter2"])
        journal.save(
            "spark-1", "supervisor.tar.gz", archive(("./1/ray.log", b"token=hunter2"), ("../x", b"y"))
        )
    evidence = journal.folder / "evidence" / "spark-1" / "supervisor"

    assert (evidence / "1" / "ray.log").read_bytes() == b"token=***"
    assert sorted(p.name for p in evidence.rglob("*") if p.is_file()) == ["ray.log", "x"]


@pytest.mark.parametrize("cut", [0, 10, 100])
def test_a_torn_archive_costs_only_what_is_missing(environ, cut):
    """A node that dies while it tells its evidence is the rule, not the exception."""
    whole = archive(("1/ray.log", os.urandom(2000)))
    with opened(environ, warn=pytest.fail) as journal:
        journal.save("spark-1", "supervisor.tar.gz", whole[:cut])


def test_no_secret_is_anywhere_in_a_journal(environ, tmp_path):
    """Whatever brought it there: an event, a log, a plan, the inventory itself."""
    secret = "s3cr3t/with \"quotes\" & 'more'"
    inventory = tmp_path / "home.yaml"
    inventory.write_text(f"env: {{KEY: {json.dumps(secret)}}}\n")
    with opened(environ) as journal:
        journal.hide([secret])
        journal.keep_sources(inventory=str(inventory))
        journal.describe(argv=["up", secret])
        journal.write_plan(f"export KEY={secret}")
        journal(Event(NINE, "note", f"<{secret}>", node=secret, data={"a": [{"b": (secret, 1)}], secret: 1}))
        journal.save("spark-1", "container.log", f"{secret!r} {json.dumps(secret)}".encode())
    written = contents(journal.folder)

    assert b"s3cr3t" not in written
    assert written.count(b"***") == 9


def test_secrets_told_later_are_hidden_as_well_as_those_told_first(environ):
    """The token is known only after the nodes were looked at."""
    with opened(environ) as journal:
        journal.hide(["first-value"])
        journal.hide(["second-value"])
        journal(Event(NINE, "note", "first-value second-value"))

    assert load_run(environ, journal.id).events[0].text == "*** ***"
    assert journal.hidden("first-value") == "***"


# Neither digits nor the stars of the mask: a secret that is part of "***" cannot be told from it.
SECRETS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=1), min_size=1, max_size=4
)


@given(SECRETS, st.data())
def test_no_secret_survives_the_mask(secrets, data):
    """Also where one secret is part of another, or two overlap."""
    text = "".join(data.draw(st.lists(st.one_of(st.text(max_size=3), st.sampled_from(secrets)))))

    assert not any(secret in mask(secrets)(text) for secret in secrets)
    assert not any(secret.encode() in mask_bytes(secrets)(text.encode()) for secret in secrets)


@given(SECRETS)
def test_no_secret_survives_in_an_event_or_an_error(secrets):
    """However deep in the data, and in every line of an error."""
    said = " ".join(secrets)
    error = ManyError((StepFailedError(said, at=said, found=said, wanted=said, hint=said),))
    hide = mask(secrets)
    hide_in_error(error, hide)
    event = masked(Event(0, "note", said, said, said, {"deep": [{"er": (said,)}]}), hide)
    told = [event.text, event.step, event.node, _deepest(event.data), error.message, *_texts(error)]

    assert not any(secret in text for secret in secrets for text in told)


def _deepest(value):
    while not isinstance(value, str):
        value = list(value.values() if isinstance(value, dict) else value)[0]  # noqa: RUF015
    return value


def _texts(error):
    inner = error.errors[0]
    return [inner.message, inner.at, inner.found, inner.wanted, inner.hint]


def test_without_secrets_nothing_is_masked():
    """An empty value is no secret: it would match everywhere."""
    assert mask([""])("text") == "text"
    assert mask_bytes([])(b"text") == b"text"


def test_a_masking_sink_passes_masked_events_on():
    """The screen gets the same treatment as the journal."""
    seen = []
    masking(seen.append, mask(["hunter2"]))(Event(0, "note", "hunter2"))

    assert seen[0].text == "***"


def test_a_full_disk_costs_one_warning_and_not_the_run(environ):
    """And what could be written can be read."""
    Path(environ["XDG_STATE_HOME"]).mkdir()
    warnings = []
    with full_disk(environ["XDG_STATE_HOME"]), opened(environ, warn=warnings.append) as journal:
        for number in range(400):
            journal(Event(NINE + number, "note", "x" * 300))
        journal.save("spark-1", "container.log", b"x" * 100_000)
        events = load_run(environ, journal.id).events

        assert len(warnings) == 1
        assert "No space left on device" in warnings[0]
        assert 10 < len(events) < 400
        assert all(event.text == "x" * 300 for event in events)


def test_events_go_on_when_there_is_room_again(environ):
    """The end of a run says how it went: it must not be lost to a moment's shortage."""
    Path(environ["XDG_STATE_HOME"]).mkdir()
    with full_disk(environ["XDG_STATE_HOME"]), opened(environ, warn=lambda _: None) as journal:
        ballast = journal.folder / "ballast"
        journal(Event(NINE, "note", "first"))
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        for _ in range(40):
            journal(Event(NINE, "note", "y" * 300))
        ballast.unlink()
        journal(Event(NINE + 9, "finished", data={"exit_code": 0}))
        run = load_run(environ, journal.id)

        assert (run.events[0].text, run.outcome) == ("first", "done")


def test_a_place_that_cannot_be_written_costs_one_warning(tmp_path):
    """A read-only home, or a file where the folder should be."""
    (tmp_path / "file").write_text("")
    warnings = []
    with opened({"XDG_STATE_HOME": str(tmp_path / "file")}, warn=warnings.append) as journal:
        journal(Event(NINE, "note", "x"))
        journal.write_plan("x")
        journal.save("spark-1", "log", b"x")

    assert len(warnings) == 1
    assert warnings[0].startswith("the journal of this run is incomplete: ")


def test_a_source_that_went_away_costs_one_warning(environ, tmp_path):
    """The inventory was read a moment ago; that it is gone now is no reason to stop."""
    warnings = []
    with opened(environ, warn=warnings.append) as journal:
        journal.keep_sources(inventory=str(tmp_path / "gone.yaml"))

    assert len(warnings) == 1


def test_a_torn_last_line_is_no_event(environ):
    """Power went away in the middle of a line."""
    with opened(environ) as journal:
        journal(Event(NINE, "note", "whole"))
    with (journal.folder / "events.jsonl").open("ab") as file:
        file.write(b'{"schema": "spark-deploy/event/v1", "at": 1796')

    assert [event.text for event in load_run(environ, journal.id).events] == ["whole"]


@pytest.mark.parametrize("line", [b"[]", b"null", b"7", b'"x"', b"\xff\xfe", b"{}", b'{"schema":"x"}'])
def test_a_line_that_is_no_event_is_skipped(environ, line):
    """A journal is read as far as it can be."""
    with opened(environ) as journal:
        journal(Event(NINE, "note", "whole"))
    with (journal.folder / "events.jsonl").open("ab") as file:
        file.write(line + b"\n")

    assert len(load_run(environ, journal.id).events) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"at": "x"}'])
def test_a_torn_run_file_still_lists_the_run(environ, text):
    """It was killed while it began."""
    journal = opened(environ)
    (journal.folder / "run.json").write_text(text)

    assert [run.id for run in list_runs(environ)] == [journal.id]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (Event(NINE, "finished", data={"exit_code": 0}), "done"),
        (Event(NINE, "error", "x", data={"exit_code": 5}), "unreachable"),
        (Event(NINE, "error", "x", data={"exit_code": 130}), "interrupted"),
        (Event(NINE, "error", "x", data={"exit_code": 77}), "exit code 77"),
        (Event(NINE, "step-started", "x"), "unfinished"),
    ],
)
def test_the_outcome_is_what_the_last_word_said(environ, last, outcome):
    """A run without a last word is running, or was killed: `unfinished` either way."""
    with opened(environ) as journal:
        journal(last)

    assert load_run(environ, journal.id).outcome == outcome


def test_only_the_newest_runs_are_kept(environ):
    """A no-op `up` in a timer must not fill the disk; folders that are not runs are left alone."""
    runs_folder(environ).mkdir(parents=True)
    (runs_folder(environ) / "mine").mkdir()
    ids = [opened(environ, at=NINE + number).id for number in range(KEPT_RUNS + 3)]

    assert [run.id for run in list_runs(environ)] == ids[:2:-1]
    assert (runs_folder(environ) / "mine").is_dir()


def test_a_run_is_found_by_a_prefix_that_fits_it_alone(environ):
    """Nobody types 22 characters; `last` is the newest."""
    first, second = opened(environ), opened(environ, at=NINE + 60)

    assert load_run(environ, "20261130T2100").id == first.id
    assert load_run(environ, "last").id == second.id


@pytest.mark.parametrize(
    ("prefix", "message"),
    [("2026", "2 runs have an id"), ("1999", "no run has an id"), ("", "no run has an id")],
)
def test_a_prefix_that_fits_several_runs_or_none_is_refused(environ, prefix, message):
    """With what to do next."""
    opened(environ)
    opened(environ, at=NINE + 60)
    with pytest.raises(UsageError, match=message) as refused:
        load_run(environ, prefix)

    assert refused.value.hint


def test_the_last_run_of_none_is_refused(environ):
    """No journal yet is no bug."""
    with pytest.raises(UsageError, match="there are no runs yet"):
        load_run(environ, "last")
