"""The stub's `vllm` command: arguments as strict as the real ones, an EngineCore child, an API server."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import VLLM_VERSION
from .api import Api, ApiServer
from .faults import Faults
from .wire import Line
from .words import fail, say, vllm_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .wire import Message

OPTIONS = Path(__file__).with_name("serve_options.txt")
NUMBER_OF_VALUES = {"one": None, "many": "+", "any": "*", "maybe": "?"}
TRACE = """\
Traceback (most recent call last):
  File "/usr/local/bin/vllm", line 6, in <module>
    sys.exit(main())
             ^^^^^^
  File "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/cli/main.py", line 120, in main
    args.dispatch_function(args)
  File "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/cli/serve.py", line 156, in cmd
    uvloop.run(run_server(args))"""
ENGINE_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)
TOO_NEW = {
    "vllm": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Model architectures ['Qwen3_5MoeForConditionalGeneration'] are not supported for now. Supported "
        "architectures: dict_keys(['AfmoeForCausalLM', 'ApertusForCausalLM', 'Qwen2ForCausalLM']) [type=value_error, "
        "input_value=ArgsKwargs((), {'model': 'M'}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    ),
    "transformers": (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, The checkpoint you are trying to load has model type `qwen3_5_moe` but Transformers does not "
        "recognize this architecture. This could be because of an issue with the checkpoint, or because your version of "
        "Transformers is out of date.\n\n"
        "You can update Transformers with the command `pip install --upgrade transformers`. [type=value_error, "
        "input_value=ArgsKwargs((), {'model': 'M'}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    ),
}


def main(argv: Sequence[str]) -> int:
    if list(argv) in (["--version"], ["-v"]):
        say(VLLM_VERSION)
        return 0
    if argv[:1] != ["serve"]:
        fail(
            f"usage: vllm [-h] [-v] {{chat,complete,serve,bench}} ...\nvllm: error: unknown command {argv[:1]}",
            2,
        )
    return _serve(parse(argv[1:]))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """As `vllm serve` 0.32 does: an option it does not know ends the program with code 2."""
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model_tag", nargs="?")
    for line in OPTIONS.read_text().splitlines():
        if not line.startswith("#"):
            option, values = line.split()
            kind = {"action": "store_true"} if values == "flag" else {"nargs": NUMBER_OF_VALUES[values]}
            parser.add_argument(option, **kind)  # type: ignore[arg-type]
    options, unknown = parser.parse_known_args([_dashed(word) for word in argv])
    # JSON arguments can be given in pieces: --hf-overrides.key value
    known = parser._option_string_actions
    wrong = [
        word
        for word in unknown
        if not (word.startswith("--") and word.split(".")[0] in known and "." in word)
    ]
    if any(word.startswith("-") for word in wrong) or (wrong and len(wrong) == len(unknown)):
        parser.error(f"unrecognized arguments: {' '.join(wrong)}")
    return options


def _dashed(word: str) -> str:
    """--max_model_len is --max-model-len to vLLM."""
    match = re.match(r"--[A-Za-z_0-9-]+", word)
    return match.group().replace("_", "-") + word[match.end() :] if match else word


def _number(text: str | None, default: int) -> int:
    """A number as vLLM reads it: 1k = 1000, 1K = 1024."""
    factors = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
    if not text or text == "auto":
        return default
    return int(float(text[:-1]) * factors[text[-1]]) if text[-1] in factors else int(text)


def _serve(options: argparse.Namespace) -> int:
    model = options.model_tag or options.model or "Qwen/Qwen3-0.6B"
    host, port = options.host or "0.0.0.0", int(options.port or 8000)
    say(vllm_line("APIServer", f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {VLLM_VERSION}"))
    say(vllm_line("APIServer", f"  █▄█▀ █     █     █     █  model   {model}"))
    given = {name: value for name, value in vars(options).items() if value and name != "api_key"}
    say(vllm_line("APIServer", f"non-default args: {given}", source="api_utils.py:286"))
    listener = _bind(host, port)
    if cause := TOO_NEW.get(Faults().vllm_arch_error):
        fail(f"{TRACE}\n{cause}")
    say(vllm_line("APIServer", "Resolved architecture: Qwen2ForCausalLM", source="model.py:733"))
    job = {
        "model": model,
        "world": int(options.tensor_parallel_size or options.tp or 1)
        * int(options.pipeline_parallel_size or options.pp or 1),
        "eager": bool(options.enforce_eager),
        "max_num_seqs": _number(options.max_num_seqs, 256),
    }
    names = options.served_model_name or [model]
    keys = options.api_key or ([os.environ["VLLM_API_KEY"]] if os.environ.get("VLLM_API_KEY") else [])
    api = Api(names, model, _number(options.max_model_len, 4096), keys if isinstance(keys, list) else [keys])
    return _run(api, job, listener, host, port)


def _bind(host: str, port: int) -> socket.socket:
    """Bound but not listening until the engine is ready: until then clients are refused, as with the real one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        fail(f"{TRACE}\n    sock.bind(addr)\nOSError: [Errno {error.errno}] {error.strerror}")
    return listener


def _run(api: Api, job: Message, listener: socket.socket, host: str, port: int) -> int:
    ours, theirs = socket.socketpair()
    command = ["VLLM::EngineCore", "-m", "lab_stub.engine", json.dumps(job), str(theirs.fileno())]
    engine = subprocess.Popen(
        command, executable=sys.executable or "/usr/bin/python3", pass_fds=[theirs.fileno()]
    )
    theirs.close()

    def leave(*_: object) -> NoReturn:
        engine.kill()
        say("INFO:     Shutting down\nINFO:     Finished server process")
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    line = Line(ours)
    if line.receive() is None:
        engine.wait()
        fail(f"{TRACE}\n{ENGINE_FAILED}")
    api.engine = line
    _announce(host, port)
    with ApiServer(listener, api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say("INFO:     Application startup complete.")
        api.pump()
        return _after_engine(engine)


def _announce(host: str, port: int) -> None:
    say(vllm_line("APIServer", "Supported tasks: ['generate']", source="entry.py:136"))
    say(vllm_line("APIServer", f"Starting vLLM server on http://{host}:{port}", source="entry.py:140"))
    say(vllm_line("APIServer", "Available routes are:", source="launcher.py:186"))
    for route, methods in (
        ("/health", "GET"),
        ("/metrics", "GET"),
        ("/v1/models", "GET"),
        ("/v1/completions", "POST"),
    ):
        say(vllm_line("APIServer", f"Route: {route}, Methods: {methods}", source="launcher.py:195"))
    say(f"INFO:     Started server process [{os.getpid()}]\nINFO:     Waiting for application startup.")


def _after_engine(engine: subprocess.Popen[bytes]) -> int:
    """The engine is gone: streams get their error, /health says 503, and then the program ends with 0, as the real one."""
    cause = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    for text in ("AsyncLLM output_handler failed.", "Traceback (most recent call last):", cause):
        say(vllm_line("APIServer", text, "ERROR", "async_llm.py:906"))
    time.sleep(1)
    say(
        "INFO:     Shutting down\nINFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete."
    )
    say(f"INFO:     Finished server process [{os.getpid()}]")
    engine.kill()
    engine.wait()
    os._exit(0)
