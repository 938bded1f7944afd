"""What a server takes and gives: vLLM 0.17 to 0.33, and plain OpenAI-compatible servers. Found by asking."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.bench.stream import Wanted, read
from orchestrator.client.prompts import Corpus, as_asked, asked, estimated_corpus, prose, text_corpus
from orchestrator.client.server import api_path
from orchestrator.errors import UsageError
from orchestrator.model.bench import Received

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.client.api import Answer, Api, Model
    from orchestrator.model.bench import Load, Request

GENERATE_LIMIT_S = 600  # the first request may compile kernels, or wait behind others
TOKENS = 2  # of a probe: enough for two events, so that continuous usage shows
PATHS = {"completions": "/completions", "chat": "/chat/completions"}
# What a server may refuse, in the order in which it is tried: usage before the finer word of it.
OPTIONAL = ("token_prompts", "ignore_eos", "min_tokens", "cache_salt", "usage", "continuous_usage")


@dataclass(frozen=True)
class Capabilities:
    """look() assumes most of it, probe() finds it out."""

    model: str
    root: str = ""
    engine: str = ""
    version: str = ""
    max_model_len: int | None = None
    endpoint: Literal["completions", "chat"] = "completions"  # what is asked, if need be not what was wanted
    tokenize: bool = True
    token_prompts: bool = True  # a prompt may be a list of token ids
    ignore_eos: bool = True
    min_tokens: bool = True  # vLLM refuses it together with speculative decoding
    cache_salt: bool = True
    usage: bool = True
    continuous_usage: bool = True
    token_ids: bool = False  # return_token_ids: asked for only where there is no continuous usage
    corpus: Corpus = field(default_factory=Corpus)
    fallbacks: tuple[str, ...] = ()  # what is missing, and what is done instead: a sentence each

    @property
    def path(self) -> str:
        return PATHS[self.endpoint]

    @property
    def exact(self) -> bool:
        """Whether an answer has as many tokens as wanted; it may else end at its own end."""
        return self.ignore_eos or self.min_tokens


def look(api: Api, model: str, load: Load) -> Capabilities:
    """
    What can be known without a single generated token: the first one is the cold request's. *model* "": the only one.

    Raises:
        UsageError: the model is not served, the key is wrong, it holds no so long prompt and answer.
        UnreachableError: no answer.
    """
    served = _served(api, model)
    _refuse_too_long(served, load)
    known = Capabilities(
        served.id,
        served.root,
        served.owner,
        api.version(),
        served.max_model_len,
        endpoint=load.endpoint,
        token_prompts=load.endpoint == "completions",
    )
    return _with_corpus(api, known, load)


def probe(api: Api, known: Capabilities, load: Load) -> Capabilities:
    """
    Find out with requests of two tokens which fields the server takes, and what its streams carry.

    Raises:
        UsageError: it answers neither on the wanted endpoint nor on the other.
        UnreachableError: no answer.
    """
    ask = _Probe(api, load)
    found = _on_endpoint(ask, known)
    answer = ask(found)
    if answer.status != http.client.OK:
        found = _without_what_is_refused(ask, found)
        answer = ask(found)
        _refuse_broken(api, answer)
    if found.token_prompts != known.token_prompts:
        found = _with_corpus(api, found, load)
    found = _with_what_streams(ask, found, answer)
    return replace(found, fallbacks=tuple(_fallbacks(found, load)))


@dataclass(frozen=True)
class _Probe:
    """Asks for two tokens, with the fields that the load would have."""

    api: Api
    load: Load

    def __call__(self, known: Capabilities) -> Answer:
        text = "Once upon a time"
        prompt: dict[str, Any] = as_asked(text) if known.endpoint == "chat" else {"prompt": text}
        if known.token_prompts:
            prompt = {"prompt": known.corpus.ids[:4]}
        fields = asked(known, replace(self.load, output_tokens=TOKENS), "spark-deploy")
        path = api_path(self.api.server, known.path)
        return self.api.ask("POST", path, {**fields, **prompt}, GENERATE_LIMIT_S)


def _only(known: Capabilities, names: Iterable[str]) -> Capabilities:
    flags: dict[str, Any] = {name: name in names for name in OPTIONAL}
    return replace(known, **flags)


def _served(api: Api, wanted: str) -> Model:
    models = api.models()
    names = tuple(model.id for model in models)
    if wanted in names:
        return models[names.index(wanted)]
    if not wanted and len(models) == 1:
        return models[0]
    which = "the server has several models: which one?" if names else "the server has no model"
    raise UsageError(
        f"the model {wanted} is not served" if wanted else which,
        at=api.server.url,
        found=", ".join(names) or "no model at all",
        wanted=wanted or None,
        hint=f"--model {names[0]}" if names else None,
    )


def _refuse_too_long(served: Model, load: Load) -> None:
    wanted = load.prompt_tokens + load.output_tokens
    if served.max_model_len is not None and wanted > served.max_model_len:
        raise UsageError(
            f"{load.prompt_tokens} tokens in and {load.output_tokens} out are more than {served.id} holds",
            found=f"{wanted} tokens",
            wanted=f"at most {served.max_model_len} (its max-model-len)",
            hint="--input-tokens, --output-tokens",
        )


def _with_corpus(api: Api, known: Capabilities, load: Load) -> Capabilities:
    """Tokenize the bundled text once; where no token ids can be sent, calibrate texts."""

    def tokens(text: str) -> tuple[int, ...]:
        plain = {"prompt": text, "add_special_tokens": not known.token_prompts}
        return api.tokenize(known.model, as_asked(text) if known.endpoint == "chat" else plain)

    ids = tokens(prose())
    if len(ids) <= len(tokens("a")):  # no tokens at all, or not those of what was sent
        corpus = estimated_corpus(load.prompt_tokens)
        return replace(known, tokenize=False, token_prompts=False, corpus=corpus)
    if known.token_prompts:
        return replace(known, corpus=Corpus(ids))
    return replace(known, corpus=text_corpus(load.prompt_tokens, lambda text: len(tokens(text))))


def _on_endpoint(ask: _Probe, known: Capabilities) -> Capabilities:
    """The same, on the other endpoint where the wanted one is not there."""
    answer = ask(_only(known, ()))
    if answer.status not in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
        _refuse_broken(ask.api, answer)
        return known
    other: Literal["completions", "chat"] = "chat" if known.endpoint == "completions" else "completions"
    changed = replace(known, endpoint=other, token_prompts=False)
    _refuse_broken(ask.api, ask(_only(changed, ())))
    return _with_corpus(ask.api, changed, ask.load)


def _refuse_broken(api: Api, answer: Answer) -> None:
    """Raise UsageError: not even a plain request is answered."""
    api.refuse_key(answer)
    if answer.status == http.client.OK:
        return
    template = "chat template" in answer.said
    raise UsageError(
        "this model has no chat template" if template else "the server does not generate",
        at=api.server.url,
        found=f"{answer.status} {answer.said}",
        hint="without --chat" if template else None,
    )


def _without_what_is_refused(ask: _Probe, known: Capabilities) -> Capabilities:
    """Add one field after the other, and keep those with which it still answers."""
    kept: list[str] = []
    for name in OPTIONAL:
        if getattr(known, name) and ask(_only(known, [*kept, name])).status == http.client.OK:
            kept.append(name)
    return _only(known, kept)


def _with_what_streams(ask: _Probe, known: Capabilities, answer: Answer) -> Capabilities:
    """What was taken is not always done: look at what came."""
    came = _streamed(answer)
    usage = came.attribution in ("usage", "even") or came.prompt_tokens > 0
    found = replace(known, usage=usage, continuous_usage=came.attribution == "usage")
    if found.continuous_usage:
        return found
    with_ids = _streamed(ask(replace(found, token_ids=True)))
    return replace(found, token_ids=with_ids.attribution == "token_ids")


def _streamed(answer: Answer) -> Request:
    received = Received(0, 0, answer.status, ((0, answer.body),), 0, "complete")
    return read(received, Wanted(TOKENS), 0)


def ending_early(known: Capabilities) -> Capabilities:
    """The same server, after it was seen to take ignore_eos and min_tokens, and to end an answer all the same."""
    told = "the server takes ignore_eos and min_tokens, but does not keep to them: answers end early"
    return replace(known, ignore_eos=False, min_tokens=False, fallbacks=(*known.fallbacks, told))


def _fallbacks(found: Capabilities, load: Load) -> Iterator[str]:
    if found.endpoint != load.endpoint:
        yield f"the server has no /v1{PATHS[load.endpoint]}: /v1{found.path} is asked"
    if not found.tokenize:
        yield "the server has no /tokenize: prompts are texts, and their length is an estimate"
    elif not found.corpus.exact:
        yield "prompts are texts that come only near to the wanted number of tokens"
    if not found.exact:
        yield "the server takes neither ignore_eos nor min_tokens: answers may end early"
    if not found.cache_salt:
        yield "the server takes no cache_salt: only the prompts' own beginnings keep its prefix cache out"
    if not found.usage:
        yield "the server's streams carry no usage: what came is counted"
    if not found.continuous_usage:
        how = "each is taken for one"
        if found.usage or found.token_ids:
            how = f"they are {'counted by return_token_ids' if found.token_ids else 'spread evenly over all'}"
        yield f"the server does not say how many tokens a chunk carries: {how}"
