"""What a result looks like: on the terminal, as CSV, as Markdown, as a page."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from orchestrator.bench.summary import row
from orchestrator.model.bench import Gate, Goodput, Level, Spread
from orchestrator.model.event import Event
from orchestrator.ui.bench import bench_screen
from orchestrator.ui.growing import Growing
from orchestrator.ui.report import files
from orchestrator.ui.report.chart import Scale, show_chart
from orchestrator.ui.report.csv import show_csv
from orchestrator.ui.report.curves import curves
from orchestrator.ui.report.markdown import show_markdown
from orchestrator.ui.report.page import show_page
from orchestrator.ui.report.strips import show_itl, show_timeline
from orchestrator.ui.report.text import show_result
from tests.unit.bench_results import NINE, hostile_result, invalid_result, result

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The tags of a page, each closed by its own end, and its text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def small(found, **about):
    return replace(found, levels=found.levels[:1], **about)


@pytest.mark.parametrize("width", [120, 80])
def test_the_answer_fits_the_terminal(golden, width):
    """Columns are left out rather than broken; sentences are folded."""
    golden(f"bench/answer-{width}.txt", show_result(invalid_result(), "/runs/1/bench", width) + "\n")


@pytest.mark.parametrize("width", [60, 79, 80, 99, 100, 120])
def test_no_line_is_wider_than_the_terminal(width):
    """The table as well as what is told under it."""
    assert max(map(len, show_result(result(), "/r", width).splitlines())) <= width


def test_an_invalid_level_shows_no_figure_anywhere():
    """87.0 tok/s from the prefix cache looks good."""
    found = invalid_result()

    shown = [show_result(found, "/r"), show_markdown(found), *Page(show_page(found)).words]
    assert not [text for text in shown if "87.0" in text]


def test_a_warning_of_several_levels_is_told_once():
    """Every level of a sweep through SSH has it."""
    gate = Gate("through-ssh", ok=False, text="measured through SSH", warns=True)
    levels = [
        replace(level, repeats=tuple(replace(one, gates=(gate,)) for one in level.repeats))
        for level in result().levels
    ]
    found = replace(result(), levels=tuple(levels))

    for text in (show_result(found, "/r"), show_markdown(found), show_page(found)):
        assert text.count("measured through SSH") == 1
        assert "C = 1, 2, 4, 8, 16" in text


def test_it_is_said_in_a_sentence_how_fast_it_is():
    """What nobody judged asks for a baseline; a level without a valid repeat is in no such sentence."""
    alone = replace(small(result()), verdict=None)
    invalid = replace(small(invalid_result()), levels=invalid_result().levels[3:4])

    assert "One request alone waits 0.4" in show_result(alone, "/r")
    assert "give a baseline" in show_result(alone, "/r", 1000)
    assert "give a baseline" not in show_result(result(), "/r", 1000)
    assert "waits" not in show_result(invalid, "/r")


def test_goodput_is_shown_where_it_was_asked_for():
    """`--slo` asks for it."""
    found = small(result())
    (level,) = found.levels
    repeats = tuple(replace(repeat, goodput=Goodput(0.1, 0.25)) for repeat in level.repeats)
    found = replace(found, levels=(replace(level, repeats=repeats),))

    assert "goodput" not in show_result(result(), "/r")
    assert "25 %" in show_result(found, "/r", 80)


def test_a_rate_names_its_level():
    """An open loop has no concurrency."""
    (level,) = small(result()).levels
    found = small(result(), verdict=None)
    found = replace(found, levels=(replace(level, level=Level(rate=0.5), limit=None),))

    assert "0.5/s" in show_result(found, "/r")
    assert "requests per second" in show_page(found)


def test_what_the_user_of_an_open_loop_waits_for_is_shown_from_the_schedule():
    """A client that sends late would else hide the queue; in a closed loop there is no schedule."""
    (level,) = small(result()).levels
    late = replace(level.repeats[0], response_s=Spread(n=12, mean=77.7))
    found = replace(level, level=Level(rate=0.5), repeats=(late,), limit=None)
    shown = show_result(replace(result(), verdict=None, levels=(found,)), "/r")

    assert ("response s" in shown, "77.7" in shown) == (True, True), shown
    assert "response s" not in show_result(result(), "/r")


def test_an_interrupted_sweep_says_so_everywhere():
    """A table of two levels looks finished."""
    found = small(result(), finished=False)

    assert all(
        "interrupted" in text for text in (show_result(found, "/r"), show_markdown(found), show_page(found))
    )


def test_without_any_level_there_is_still_a_report():
    """What was asked, and of what."""
    assert set(files(replace(result(), levels=(), verdict=None, cold=None))) == {
        "result.csv",
        "report.md",
        "report.html",
    }


def test_no_escape_sequence_reaches_a_terminal():
    """The server names its model."""
    assert "\x1b" not in show_result(hostile_result(), "/r") + show_markdown(hostile_result())


def test_the_csv_of_the_first_level(golden):
    """One row a repeat, stable names."""
    golden("bench/result.csv", show_csv(small(result())))


def test_a_row_says_whether_its_repeat_is_valid():
    """A spreadsheet shows no gates."""
    rows = list(csv.DictReader(io.StringIO(show_csv(invalid_result()))))

    assert [(row["level"], row["repeat"]) for row in rows if row["valid"] == "0"] == [("8", "1")]
    assert len(rows) == 15


def test_a_spreadsheet_takes_no_text_for_a_formula():
    """The server names its model."""
    deployment = replace(result().deployment, model="=HYPERLINK(1)")

    assert "'=HYPERLINK(1)" in show_csv(small(result(), deployment=deployment))


def test_the_markdown_report(golden):
    """Table, definitions, identity, the command to measure again."""
    golden("bench/report.md", show_markdown(invalid_result()))


def test_names_do_not_format_the_markdown():
    """A pipe in a model's name is no new column."""
    lines = show_markdown(hostile_result()).splitlines()

    assert lines[0] == "# </title><script>alert(1)</script>\"'&|`: throughput and latency".replace(
        "<", "\\<"
    ).replace(">", "\\>").replace("|", "\\|").replace("`", "\\`")


def test_a_page_is_closed_and_needs_nothing_else():
    """No script, no address to load from: it can be mailed, and opened in ten years."""
    text = show_page(result())
    page = Page(text)

    assert page.open == []
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert not re.search(r"url\(|src=|@import|https?://(?!127\.0\.0\.1:8000)", text)


def test_names_are_text_on_the_page():
    """Whoever names a model runs no script in the browser of who reads the report."""
    page = Page(show_page(hostile_result()))

    assert "script" not in page.tags
    assert "".join(page.words).count("alert(1)") >= 6
    assert "\x1b" not in show_page(hostile_result())


@pytest.mark.parametrize("found", [result(), invalid_result(), small(result()), hostile_result()])
def test_every_drawing_is_well_formed_and_named(found):
    """Its title is what a screen reader says."""
    drawings = [*map(show_chart, curves(found)), show_itl(found.levels), *map(show_timeline, found.levels)]

    titles = [ET.fromstring(drawing).findtext("title") for drawing in drawings]  # noqa: S314
    assert len(titles) == 4 + len(found.levels)
    assert all(titles)


def test_nothing_is_drawn_outside_of_its_place():
    """The hard limit, six times higher than the rest, is cut off, and a note says where it went."""
    throughput = ET.fromstring(show_chart(curves(result())[0]))  # noqa: S314
    inner = throughput.find("svg")
    outside = [path for path in throughput.findall("path") if "s3" in path.get("class")]

    assert {child.get("class") for child in inner} >= {"line s0", "line s1", "line s2", "line s3"}
    assert [path.get("class") for path in outside] == ["line s3"]  # its sample in the legend
    assert "The hard limit leaves the chart: 874.0 tok/s at C = 16." in "".join(throughput.itertext())


def test_the_chart_of_throughput(golden):
    """Axes from 0, the memory model and the baseline beside what was measured."""
    drawing = ET.fromstring(show_chart(curves(result())[0]))  # noqa: S314
    ET.indent(drawing)

    golden("bench/throughput.svg", ET.tostring(drawing, encoding="unicode") + "\n")


def test_two_tokens_at_one_time_have_a_place_on_a_log_scale():
    """Their ITL is 0."""
    level = result().levels[0]
    repeat = replace(level.repeats[0], itl_ms=replace(level.repeats[0].itl_ms, p50=0.0))

    assert show_itl([replace(level, repeats=(repeat,))])


@pytest.mark.parametrize(("low", "high"), [(0, 7), (0, 0.02), (0, 1234), (0, 1e-9)])
def test_a_scale_has_a_few_round_ticks(low, high):
    """Enough to read a value off, few enough for a phone."""
    assert 3 <= len(Scale(low, high, 0, 100).ticks()) <= 6


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def sweep():
    """The events of a sweep as `run/sweep.py` tells them, up to the middle of its last level."""
    levels = invalid_result().levels

    def event(kind, step="", text="", **data):
        return Event(NINE, kind, text, step, data=data)

    yield event("note", text="expected: 12 min for all levels")
    for level in levels[:4]:
        yield event("step-started", level.level.name, f"concurrency {level.level.name}: 12 requests x 3")
        yield event("step-done", level.level.name, "26 tok/s", row=row(level), elapsed_s=36.1, left_s=300)
    yield event("warning", text="concurrency 8 is INVALID: \x1b[2Jprefix hits")
    yield event("step-started", "16", "concurrency 16: 64 requests x 3")
    yield event(
        "progress",
        "16",
        phase="repeat 2 of 3",
        done=31,
        total=64,
        in_flight=16,
        tok_s=138.2,
        elapsed_s=80.2,
        left_s=190,
    )


@pytest.mark.parametrize("width", [120, 80])
def test_the_table_grows(golden, width):
    """One line a level, and under it what runs."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, force_terminal=True, legacy_windows=False
    )
    screen = Growing(console, lambda: 0.0)
    for event in sweep():
        screen(event)
    screen.rest()
    console.file.seek(0)
    console.file.truncate()
    console.print(screen)

    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    golden(f"bench/live-{width}.txt", "\n".join(re.sub(r"^[⠀-⣿]", "*", line) for line in lines) + "\n")


def test_a_level_that_is_repeated_gets_its_line_anew():
    """An undecided level is measured once more."""
    screen = Growing(Console(file=io.StringIO(), width=100), lambda: 0.0)
    level = result().levels[0]
    for ok in (12, 16):
        screen(
            Event(
                NINE,
                "step-done",
                "",
                "1",
                data={"row": {**row(level), "ok": ok}, "elapsed_s": 1, "left_s": 0},
            )
        )
    screen.rest()

    assert [str(line).split()[-1] for line in screen.table()] == ["ok/failed", "16/0"]


@pytest.mark.parametrize("output", ["live", "plain", "json"])
def test_a_sweep_is_told_in_every_output(output):
    """And no escape sequence of a server is."""
    stderr, stdout = Terminal() if output == "live" else io.StringIO(), io.StringIO()
    with bench_screen(output, stderr, stdout, {"TERM": "xterm", "NO_COLOR": "1"}) as sink:
        for event in sweep():
            sink(event)
        sink(Event(NINE, "finished", "the answer", data={"exit_code": 0}))

    assert "the answer" in stdout.getvalue()
    assert "INVALID" in stderr.getvalue() + stdout.getvalue()
    assert "\x1b[2Jprefix" not in stderr.getvalue() + stdout.getvalue()


def test_an_error_leaves_the_levels_on_the_screen():
    """What was measured before the server died is worth seeing."""
    stderr = Terminal()
    with bench_screen("live", stderr, io.StringIO(), {"TERM": "xterm", "NO_COLOR": "1"}) as sink:
        for event in sweep():
            sink(event)
        sink(Event(NINE, "error", "the server was lost", data={"exit_code": 5}))

    assert "69.2" in stderr.getvalue().rsplit("\x1b[2K", 1)[-1]
