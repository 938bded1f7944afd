"""The stub's OpenAI-compatible API server."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import re
import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import VLLM_VERSION
from .forms import ChatForm, Form, TextForm
from .words import say

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .wire import Line, Message

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{name}"}} {running:.1f}
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="{name}"}} {waiting:.1f}
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="{name}"}} {cache}
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="{name}"}} {prompt:.1f}
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="{name}"}} {generated:.1f}
# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{{engine="0",le="+Inf",model_name="{name}"}} {steps:.1f}
vllm:iteration_tokens_total_count{{engine="0",model_name="{name}"}} {steps:.1f}
vllm:iteration_tokens_total_sum{{engine="0",model_name="{name}"}} {generated:.1f}
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="{name}"}} {prompt:.1f}
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="{name}"}} 0.0
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="{name}"}} 0.0
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="length",model_name="{name}"}} {finished:.1f}
"""
TOKEN = 262  # the id of the only token that the stub says
TEMPLATE = 11  # tokens that the chat template puts around a message


@dataclass
class Api:
    """What the server knows; the engine's messages come in by pump()."""

    names: list[str]
    model: str
    max_model_len: int
    keys: list[str]
    engine: Line | None = None
    healthy: bool = True
    streams: dict[str, queue.Queue[bool | None]] = field(default_factory=dict)
    counts: Message = field(default_factory=lambda: {"running": 0, "waiting": 0, "steps": 0})
    prompt: int = 0
    generated: int = 0
    finished: int = 0

    def pump(self) -> None:
        """Until the engine is gone."""
        assert self.engine
        while message := self.engine.receive():
            self.counts = {name: message[name] for name in self.counts}
            self.generated += len(message["tokens"])
            self.finished += len(message["done"])
            for name in message["tokens"]:
                if stream := self.streams.get(name):
                    stream.put(name in message["done"])
        self.healthy = False
        for stream in list(self.streams.values()):
            stream.put(None)

    def generate(self, tokens: int, prompt: int) -> Iterator[bool]:
        """
        Yield once for each token: whether it is the last.

        Raises:
            EngineDeadError: there is no engine any more.
        """
        name, stream = uuid.uuid4().hex, queue.Queue[bool | None]()
        self.streams[name] = stream
        self.prompt += prompt
        last: bool | None = False
        try:
            self._tell({"add": name, "tokens": tokens})
            while last is False:
                last = stream.get()
                if last is None:
                    raise EngineDeadError
                yield last
        finally:
            del self.streams[name]
            if last is False:
                self._tell({"abort": name})

    def _tell(self, message: Message) -> None:
        try:
            if not self.healthy or self.engine is None:
                raise EngineDeadError
            self.engine.send(message)
        except OSError as error:
            raise EngineDeadError from error

    def metrics(self) -> str:
        cache = min(1.0, 0.01 * self.counts["running"])
        return METRICS.format(
            name=self.names[0],
            cache=cache,
            prompt=self.prompt,
            generated=self.generated,
            finished=self.finished,
            **self.counts,
        )


class EngineDeadError(Exception):
    pass


class RefusedError(Exception):
    """A request that vLLM answers with 400."""


def tokens_of(question: Message) -> list[int]:
    """The ids of a `prompt` or of `messages`: a word with the space before it is one token."""
    prompt = question.get("prompt", "")
    if not isinstance(prompt, str):
        return prompt
    told = [str(message.get("content", "")) for message in question.get("messages", ())]
    words = re.findall(r" ?\w+|\W", " ".join(told) if told else prompt)
    return [*[1] * (TEMPLATE if told else 0), *(1000 + zlib.crc32(word.encode()) % 30000 for word in words)]


class ApiServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, listener: socket.socket, api: Api) -> None:
        super().__init__(listener.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.api = api
        self.server_activate()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as asyncio does under vLLM: a token does not wait for the last one's ACK
    server: ApiServer

    def log_message(self, _: str, *arguments: Any) -> None:
        code = arguments[1] if len(arguments) > 1 else ""
        say(f'INFO:     {self.client_address[0]}:{self.client_address[1]} - "{self.requestline}" {code}')

    def do_GET(self) -> None:
        api = self.server.api
        if self.path in ("/health", "/ping"):
            self._answer(200 if api.healthy else 503, b"")
        elif self.path == "/version":
            self._json({"version": VLLM_VERSION})
        elif self.path == "/metrics":
            self._answer(200, api.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif not self._allowed():
            self._json({"error": "Unauthorized"}, 401)
        elif self.path == "/v1/models":
            self._json({"object": "list", "data": [self._model(name) for name in api.names]})
        else:
            self._error("Not Found", "NotFoundError", 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self._allowed():
            self._json({"error": "Unauthorized"}, 401)
            return
        try:
            question = json.loads(raw)
        except ValueError as error:
            self._error(f"Invalid JSON: {error}", "BadRequestError", 400)
            return
        form = {"/v1/completions": TextForm, "/v1/chat/completions": ChatForm}.get(self.path)
        if self.path == "/tokenize":
            ids, longest = tokens_of(question), self.server.api.max_model_len
            self._json({"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": None})
        elif form is None:
            self._error("Not Found", "NotFoundError", 404)
        elif question.get("model") not in self.server.api.names:
            self._error(f"The model `{question.get('model')}` does not exist.", "NotFoundError", 404)
        else:
            self._complete(question, form(question["model"]))

    def _allowed(self) -> bool:
        keys = self.server.api.keys
        given = self.headers.get("authorization", "")
        return not keys or not self.path.startswith("/v1") or given in [f"Bearer {key}" for key in keys]

    def _model(self, name: str) -> Message:
        api = self.server.api
        details = {"root": api.model, "parent": None, "max_model_len": api.max_model_len}
        return {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", **details}

    def _complete(self, question: Message, form: Form) -> None:
        try:
            wanted = Wanted.read(question, self.server.api.max_model_len)
        except RefusedError as error:
            self._error(str(error), "BadRequestError", 400)
            return
        if question.get("stream"):
            self._stream(form, wanted)
            return
        try:
            for _ in self.server.api.generate(wanted.count, len(wanted.prompt)):
                pass
        except EngineDeadError:
            self._error(DEAD, "InternalServerError", 500)
            return
        self._json(form.whole(" tok" * wanted.count, wanted.usage_of(wanted.count)))

    def _stream(self, form: Form, wanted: Wanted) -> None:
        """A stream that breaks is still a 200: an error event, then [DONE]."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            try:
                for event in form.first():
                    self._event({**event, **wanted.continuous_usage(0)})
                said = self.server.api.generate(wanted.count, len(wanted.prompt))
                for number, last in enumerate(said, 1):
                    piece = form.piece(" tok", "length" if last else None)
                    if wanted.ids:
                        piece["choices"][0]["token_ids"] = [TOKEN]
                    self._event({**piece, **wanted.continuous_usage(number)})
                if wanted.usage:
                    self._event(form.usage(wanted.usage_of(wanted.count)))
            except EngineDeadError:
                self._event(
                    {"error": {"message": DEAD, "type": "InternalServerError", "param": None, "code": 500}}
                )
            self._chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: Message) -> None:
        self._chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, answer: Message, code: int = 200) -> None:
        self._answer(code, json.dumps(answer, separators=(",", ":")).encode())

    def _error(self, message: str, kind: str, code: int) -> None:
        self._json({"error": {"message": message, "type": kind, "param": None, "code": code}}, code)

    def _answer(self, code: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass(frozen=True)
class Wanted:
    """What a request asks for; the stub's model never ends by itself, so ignore_eos and min_tokens change nothing."""

    prompt: list[int]
    count: int
    usage: bool
    continuous: bool
    ids: bool

    @classmethod
    def read(cls, question: Message, longest: int) -> Wanted:
        """Raises RefusedError, in vLLM's words."""
        prompt = tokens_of(question)
        count = int(question.get("max_tokens") or question.get("max_completion_tokens") or 16)
        if question.get("cache_salt", "x") in ("", None):
            raise RefusedError("Parameter 'cache_salt' must be a non-empty string if provided.")
        if int(question.get("min_tokens") or 0) > count:
            raise RefusedError(f"min_tokens must be less than or equal to max_tokens={count}")
        if len(prompt) >= longest:
            text = f"This model's maximum context length is {longest} tokens."
            raise RefusedError(f"{text} However, your request has {len(prompt)} input tokens.")
        options = question.get("stream_options") or {}
        usage = bool(options.get("include_usage"))
        continuous = usage and bool(options.get("continuous_usage_stats"))
        ids = bool(question.get("return_token_ids"))
        return cls(prompt, min(count, longest - len(prompt)), usage, continuous, ids)

    def usage_of(self, count: int) -> Message:
        prompt = len(self.prompt)
        return {"prompt_tokens": prompt, "total_tokens": prompt + count, "completion_tokens": count}

    def continuous_usage(self, count: int) -> Message:
        return {"usage": self.usage_of(count)} if self.continuous else {}
