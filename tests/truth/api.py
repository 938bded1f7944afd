"""What is answered to what: the OpenAI API as vLLM has it, and /gt/… for the test."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

from .clock import now
from .events import Events
from .http import Call, answer
from .metrics import exposition
from .options import Fault
from .record import Record, summary
from .server import Connection, Server
from .stream import Stream

GENERATE = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.content = {"error": {"message": message, "type": kind, "param": param, "code": status}}


def route(server: Server, connection: Connection, call: Call, arrived: float) -> None:
    try:
        content = _answer_to(server, connection, call, arrived)
    except RefusedError as refused:
        _told(server, connection, refused.status, refused.content)
        return
    if content is not None:
        _told(server, connection, 200, content)


def _answer_to(server: Server, connection: Connection, call: Call, arrived: float) -> object | None:
    """None: it comes as a stream, or later."""
    options = server.engine.options
    if call.path.startswith("/gt/"):
        return _control(server, call.path, call.body)
    if not call.path.startswith(options.prefix):
        raise RefusedError(404, "Not Found", "NotFoundError")
    path = call.path.removeprefix(options.prefix)
    if (
        options.key
        and path.startswith("/v1")
        and call.headers.get("authorization") != f"Bearer {options.key}"
    ):
        raise RefusedError(401, "Unauthorized")
    if path not in GENERATE:
        return _asked(server, path, call)
    _generate(server, connection, path, call.body, arrived)
    return None


def _told(server: Server, connection: Connection, status: int, content: object) -> None:
    plain = isinstance(content, bytes)
    if status == 401:
        content = {"error": "Unauthorized"}  # vLLM's middleware says no more
    elif status >= 400 and server.engine.options.metrics == "old":
        content = {"object": "error", **content["error"]}  # before 0.10
    server.send(
        connection, answer(status, content, "text/plain; version=0.0.4" if plain else "application/json")
    )
    server.answered(connection)


def _asked(server: Server, path: str, call: Call) -> object:
    options = server.engine.options
    if path in {"/health", "/ping"}:
        return b""
    if path == "/v1/models":
        known = {"id": options.model, "object": "model", "created": 1700000000, "owned_by": "vllm"}
        return {
            "object": "list",
            "data": [known | {"root": options.root or options.model, "max_model_len": options.max_model_len}],
        }
    if path.strip("/") in options.without:
        raise RefusedError(404, "Not Found", "NotFoundError")
    if path == "/version":
        return {"version": options.version}
    if path == "/metrics":
        return exposition(server.engine).encode()
    if path == "/tokenize":
        return _tokenize(server, _body(call.body, server))
    if path == "/detokenize" and "tokenize" not in options.without:
        return {"prompt": server.engine.tokenizer.decode(_body(call.body, server)["tokens"])}
    raise RefusedError(404, "Not Found", "NotFoundError")


def _body(text: bytes, server: Server) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        raise RefusedError(400, "JSON decode error") from None
    options = server.engine.options
    if (model := body.get("model")) not in {None, options.model}:
        raise RefusedError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")
    if rejected := [name for name in options.reject if name in body]:
        raise RefusedError(400, f"Unrecognized request argument supplied: {', '.join(rejected)}")
    return body


def _tokenize(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    tokenizer, options = server.engine.tokenizer, server.engine.options
    if "messages" in body:
        ids = tokenizer.chat(body["messages"], answer=body.get("add_generation_prompt", True))
    else:
        ids = tokenizer.encode(body["prompt"], bos=options.bos and body.get("add_special_tokens", True))
    return {"count": len(ids), "max_model_len": options.max_model_len, "tokens": ids, "token_strs": None}


def _generate(server: Server, connection: Connection, path: str, text: bytes, arrived: float) -> None:
    engine, options = server.engine, server.engine.options
    if GENERATE[path] in options.without:
        raise RefusedError(404, "Not Found", "NotFoundError")
    body = _body(text, server)
    ids = _prompt(server, path, body)
    record = Record(path=path, number=len(engine.records), t_conn=connection.t_conn, t_recv=arrived)
    record.stream, record.connection, record.status = bool(body.get("stream")), connection.number, 200
    record.prompt_tokens, record.prompt_hash = len(ids), hash(tuple(ids))
    record.asked, record.n = _lengths(server, body)
    if len(ids) + record.asked > options.max_model_len:
        found = f"you requested {len(ids) + record.asked} tokens ({len(ids)} in the prompt, {record.asked} for the completion)"
        wanted = f"This model's maximum context length is {options.max_model_len} tokens. However, {found}."
        raise RefusedError(400, wanted)
    engine.records.append(record)
    engine.bodies.append(text)
    engine.count_prompt(ids, str(body.get("cache_salt", "")))
    _answer(server, connection, record, body, _fault(server, record))


def _answer(
    server: Server, connection: Connection, record: Record, body: dict[str, Any], fault: Fault | None
) -> None:
    options, asked = server.engine.options, body.get("stream_options") or {}
    if fault and fault.kind.startswith("http"):
        record.status, record.t_end = int(fault.kind.removeprefix("http")), now()
        kind = "InternalServerError" if record.status >= 500 else "BadRequestError"
        raise RefusedError(record.status, fault.message, kind)
    usage = bool(asked.get("include_usage")) and "usage" not in options.without
    usage = usage and not (fault and fault.kind == "no_usage")
    events = Events(
        options,
        record.number,
        chat=record.path.endswith("chat/completions"),
        usage=usage
        and bool(asked.get("continuous_usage_stats"))
        and "continuous_usage" not in options.without,
        ids=bool(body.get("return_token_ids")) and "return_token_ids" not in options.without,
        prompt_tokens=record.prompt_tokens,
    )
    connection.stream = Stream(server, connection, record, events, fault, usage=usage)
    connection.stream.begin()


def _prompt(server: Server, path: str, body: dict[str, Any]) -> list[int]:
    engine = server.engine
    if GENERATE[path] == "chat":
        return engine.tokenizer.chat(body.get("messages") or [])
    prompt = body.get("prompt", "")
    if "token_ids" in engine.options.without and not isinstance(prompt, str):
        raise RefusedError(400, "prompt must be a string")
    return engine.tokenizer.prompt(prompt, bos=engine.options.bos and body.get("add_special_tokens", True))


def _lengths(server: Server, body: dict[str, Any]) -> tuple[int, int]:
    """Tokens that were asked for, and those that the model will say."""
    options = server.engine.options
    asked = int(body.get("max_completion_tokens") or body.get("max_tokens") or options.default_max_tokens)
    heeded = {name: body.get(name) for name in ("ignore_eos", "min_tokens") if name not in options.without}
    if not options.eos_after or heeded.get("ignore_eos"):
        return asked, asked
    return asked, max(min(asked, options.eos_after), int(heeded.get("min_tokens") or 0))


def _fault(server: Server, record: Record) -> Fault | None:
    engine = server.engine
    if record.asked < engine.options.faults_from:
        return None
    fault = engine.options.fault(engine.faultable)
    engine.faultable += 1
    if fault is None:
        return None
    record.fault = fault.kind
    record.n += {"over": fault.by, "short": -fault.by, "miscount": -fault.by}.get(fault.kind, 0)
    return replace(fault)


def _control(server: Server, path: str, body: bytes) -> object:
    engine = server.engine
    if path == "/gt/config":
        return _configured(server, json.loads(body) if body else {})
    if path == "/gt/reset":
        engine.forget()
        server.timeline.late_s = server.timeline.late_s[:0]
        gc.collect()
        return {}
    if path == "/gt/requests":
        return [record.as_json() for record in engine.records]
    if path == "/gt/summary":
        seen = {"connections": engine.connections, "in_flight_max": engine.in_flight_max}
        return summary([record.as_json() for record in engine.records]) | seen
    if path == "/gt/bodies":
        return [json.loads(body) for body in engine.bodies]
    raise RefusedError(404, "Not Found", "NotFoundError")


def _configured(server: Server, values: dict[str, Any]) -> dict[str, Any]:
    """*refuse* is no option but an act: new connections are refused, or not any more."""
    refuse = values.pop("refuse", None)
    try:
        server.engine.options.change(values)
    except (ValueError, TypeError) as wrong:
        raise RefusedError(400, str(wrong)) from wrong
    if refuse is not None:
        (server.refuse if refuse else server.listen)()
    return server.engine.options.as_json()
