"""The page of a report in a real browser: Chromium, headless, from a file."""

import os
import shutil
import struct
import subprocess
from dataclasses import replace

import pytest

from orchestrator.ui.report.page import show_page
from tests.unit.bench_results import hostile_result, invalid_result, result

CHROMIUM = shutil.which("chromium")
LIMIT_S = 120
# A window is never narrower than 500 pixels, a frame is.
FRAME = """<!doctype html><title></title><iframe id="frame" width="{width}" height="900" style="border: 0" src="{page}">
</iframe><script>frame.onload = () => {{ document.title = frame.contentDocument.documentElement.scrollWidth }}</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: on Ubuntu its package is a snap")


@pytest.fixture
def browser(tmp_path):
    """Give (what it printed, what its console said) of a page; it has a profile of its own, and no network."""

    def run(text, *options):
        page = tmp_path / "report.html"
        page.write_text(text, encoding="utf-8")
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        words = [
            *(CHROMIUM, "--headless=new", "--disable-gpu", "--hide-scrollbars", *sandbox),
            *(
                "--enable-logging=stderr",
                "--v=0",
                "--proxy-server=127.0.0.1:9",
                f"--user-data-dir={tmp_path / 'profile'}",
            ),
            *(*options, page.as_uri()),
        ]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT_S, check=True, cwd=tmp_path
        )
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return run


@pytest.mark.parametrize(
    "found", [result(), invalid_result(), hostile_result()], ids=["valid", "INVALID", "hostile"]
)
def test_the_page_loads_without_a_complaint(browser, found):
    """Its figures are in the document that the browser made of it, and nothing ran that a server had named so."""
    document, console = browser(show_page(found), "--dump-dom")

    assert console == []
    assert document.count("<svg") == document.count("</svg>") >= 8
    assert "143.4" in document
    assert "<script" not in document


def test_a_complaint_would_be_seen(browser):
    """The page's own policy forbids scripts, and the console says so."""
    _, console = browser(show_page(result()).replace("</main>", "<script>1</script></main>"), "--dump-dom")

    assert console


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_the_page_is_never_wider_than_the_screen(browser, tmp_path, width):
    """On a phone tables scroll in their own boxes, and a long name breaks."""
    long = replace(hostile_result().deployment, model="Qwen" * 50, nodes=("spark" * 40,))
    (tmp_path / "inner.html").write_text(show_page(replace(hostile_result(), deployment=long)))

    document, _ = browser(
        FRAME.format(width=width, page="inner.html"), "--dump-dom", "--allow-file-access-from-files"
    )

    assert f"<title>{width}</title>" in document


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_can_be_pictured(browser, tmp_path, width):
    """At the width of a phone and of a desk."""
    browser(show_page(result()), "--screenshot=page.png", f"--window-size={width},900")

    picture = (tmp_path / "page.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (width, 900)
    assert len(picture) > 20_000  # an empty page has 4 kB


def test_the_page_can_be_printed(browser, tmp_path):
    """On a few sheets of A4: 595 x 842 points."""
    browser(show_page(result()), "--print-to-pdf=page.pdf", "--no-pdf-header-footer")

    paper = (tmp_path / "page.pdf").read_bytes()
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") <= 5
