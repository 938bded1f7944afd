"""What users type as the address of a server, and what is sent there."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from orchestrator.client.server import Server, api_path, headers, parse_url, ssl_context
from orchestrator.errors import FileError, UsageError

READ = {
    "http://spark-a:8000": ("spark-a", 8000, False, "/v1/completions", "spark-a:8000"),
    "http://spark-a:8000/": ("spark-a", 8000, False, "/v1/completions", "spark-a:8000"),
    "http://spark-a:8000/v1": ("spark-a", 8000, False, "/v1/completions", "spark-a:8000"),
    "http://spark-a:8000/v1/": ("spark-a", 8000, False, "/v1/completions", "spark-a:8000"),
    "https://api.example": ("api.example", 443, True, "/v1/completions", "api.example"),
    "https://api.example/llm/v1": ("api.example", 443, True, "/llm/v1/completions", "api.example"),
    "http://[fd00::1]:8000": ("fd00::1", 8000, False, "/v1/completions", "[fd00::1]:8000"),
    "http://127.0.0.1": ("127.0.0.1", 80, False, "/v1/completions", "127.0.0.1"),
}


@pytest.mark.parametrize("url", READ)
def test_a_url_is_read_however_it_is_written(url: str) -> None:
    """With /v1 and without: both are in everybody's notes."""
    server = parse_url(url)
    path = api_path(server, "/completions")

    assert (server.host, server.port, server.tls, path, headers(server)["host"]) == READ[url]


def test_the_url_is_kept_without_v1() -> None:
    """One name for one server, in reports and in comparisons."""
    assert parse_url("https://api.example/llm/v1/").url == "https://api.example/llm"


@pytest.mark.parametrize(
    "url",
    [
        *("", "spark-a", "spark-a:8000", "ftp://spark-a", "http://", "http://spark-a:port", "http://spark-a:99999"),
        *("http://[::1", "http://user:word@spark-a", "http://spark-a/?x=1", "http://spark a", "http://spärk"),
        *("http://spark-a:0", "http://spark-a/#v1", "http://spark-a\r\nx: y"),
        *("http://spark..a", f"http://{64 * 'a'}"),  # which no look-up takes
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    """Before anything is sent anywhere."""
    with pytest.raises(UsageError):
        parse_url(url)


def test_the_key_is_sent_as_a_bearer() -> None:
    """And nothing where there is none."""
    assert headers(parse_url("http://spark-a", "secret"))["authorization"] == "Bearer secret"
    assert "authorization" not in headers(parse_url("http://spark-a"))


def test_the_key_is_not_in_what_is_printed_of_a_server() -> None:
    """A traceback with its values is pasted into issues."""
    assert "secret" not in repr(parse_url("http://spark-a", "secret"))


def test_the_authorities_are_read_once() -> None:
    """20 ms of CPU time, once a second beside a timed level, would make its reads late."""
    server = parse_url("https://spark-a")

    assert ssl_context(server) is ssl_context(server)


def test_a_key_that_breaks_the_header_is_refused_and_not_shown() -> None:
    """A line break in it would be a header of its own."""
    with pytest.raises(UsageError) as refused:
        parse_url("http://spark-a", "secret\r\nx: y")

    assert "secret" not in str(refused.value)


def test_a_forward_is_dialled_under_the_name_of_the_server() -> None:
    """The Host header and the certificate's name stay those of the URL."""
    server = parse_url("http://spark-a:8000", connect=("127.0.0.1", 40001))

    assert (server.address, headers(server)["host"]) == (("127.0.0.1", 40001), "spark-a:8000")


def test_plain_http_has_no_tls() -> None:
    """None is what asyncio wants to hear."""
    assert ssl_context(parse_url("http://spark-a")) is None


def test_certificates_are_checked_unless_told_otherwise() -> None:
    """`--insecure` is for a self-signed certificate whose CA file is not at hand."""
    checked = ssl_context(parse_url("https://spark-a"))
    trusting = ssl_context(parse_url("https://spark-a", insecure=True))

    assert checked is not None
    assert trusting is not None
    assert (checked.verify_mode, trusting.verify_mode) == (ssl.CERT_REQUIRED, ssl.CERT_NONE)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_is_none_is_told_by_name(tmp_path: Path, content: str | None) -> None:
    """Missing or no PEM: a mistake in a file, not a server that is down."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(FileError, match=r"ca\.pem"):
        ssl_context(Server("https://spark-a", "spark-a", 443, tls=True, ca_file=str(file)))
