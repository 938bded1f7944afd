"""Text from a node cannot touch the operator's terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ui.printable import columns, duration, one_line, printable, visible

NASTY = st.text(st.one_of(st.characters(), st.sampled_from("\x1b[]\r\n\x07\x9b\x9d;?0m1;K\\")))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("\x1b[1;31mERROR\x1b[0m out of memory", "ERROR out of memory"),
        ("\x1b]0;owned\x07done", "done"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hclear", "clear"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x1b(Bcharset", "charset"),
        ("loading 10%\rloading 20%\rloading 30%\r", "loading 30%"),
        ("windows\r\nline", "windows\nline"),
        ("bell\x07 backspace\x08", "bell backspace"),
        ("abc\u202etxt.exe", "abctxt.exe"),
        ("tab\there", "tab here"),
        ("Größe 模型 ✓", "Größe 模型 ✓"),
        ("\udcff", ""),
    ],
)
def test_what_a_terminal_would_act_on_is_gone(told, shown):
    """A model's name or a log line is data, whatever bytes it holds."""
    assert printable(told) == shown


@given(NASTY)
def test_no_control_character_survives(text):
    """Only line breaks stay: no escape, no override of the writing direction, no lone surrogate."""
    kinds = {unicodedata.category(c) for c in printable(text) if c != "\n"}

    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(NASTY)
def test_one_line_is_one_line(text):
    """A log line must not be able to forge the line after it."""
    assert len(one_line(text).splitlines()) <= 1


def test_lines_joined_into_one_stay_told_apart():
    """An error with its found and hint lines fits one plain line."""
    assert (
        one_line("gave up\n  found exit 1\n\n  hint read the log\n")
        == "gave up | found exit 1 | hint read the log"
    )


def test_a_file_shown_byte_for_byte_spells_its_control_characters_out():
    """The dry run hides nothing: what the terminal would swallow is written as text."""
    assert visible("a\x1b[31m\u202eb\n\tc\r") == "a\\x1b[31m\\u202eb\n\tc\\r"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-0.2, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3780, "1 h 3 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, words):
    """Seconds matter in the first minute, not in the second hour."""
    assert duration(seconds) == words


def test_cells_stand_under_each_other():
    """An empty cell is a dash, so that columns can be counted with awk."""
    assert columns([("NODE", "X"), ("spark-1", ""), ("b\x1b[1m", "yes")]) == [
        "NODE     X",
        "spark-1  -",
        "b        yes",
    ]
