"""Options of `vllm serve` and `ray start` that a recipe may not set, and why."""

from __future__ import annotations

_API = "it comes from `api` in the inventory"
_NODES = "it follows from the nodes in the inventory"
_ONE_REPLICA = "the nodes serve one replica; data parallel ranks are not spread by this tool"
_PLAIN_HTTP = "supervisor and `up` speak plain HTTP to it on the head; put TLS into a proxy before it"
VLLM_OWNED: dict[str, str] = {
    "host": _API,
    "port": _API,
    "uds": _API,
    "grpc": "the tool speaks HTTP to the API",
    "api-key": "it would stand in `ps` and in the log; put VLLM_API_KEY into `secrets`",
    "hf-token": "it would stand in `ps` and in the log; put HF_TOKEN into `secrets`",
    "config": "vLLM's config file silently drops `false` (0.32); write its options here",
    "model": "it is the recipe's `model`",
    "distributed-executor-backend": "it is the recipe's `executor`",
    **dict.fromkeys(("nnodes", "node-rank", "master-addr", "master-port", "headless"), _NODES),
    **dict.fromkeys(
        (
            "data-parallel-size",
            "data-parallel-size-local",
            "data-parallel-rank",
            "data-parallel-start-rank",
            "data-parallel-address",
            "data-parallel-rpc-port",
            "data-parallel-backend",
            "data-parallel-hybrid-lb",
            "data-parallel-external-lb",
            "data-parallel-multi-port-external-lb",
            "data-parallel-supervisor-port",
            "enable-elastic-ep",
        ),
        _ONE_REPLICA,
    ),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs"), _PLAIN_HTTP),
}
RAY_OWNED: dict[str, str] = {
    **dict.fromkeys(("head", "address", "node-ip-address"), _NODES),
    "port": "it is `ports.ray` in the inventory",
    "block": "the supervisor watches this process",
    "include-dashboard": "the dashboard's job API runs any command; it stays off",
    "disable-usage-stats": "usage statistics are always off",
    **dict.fromkeys(
        ("redis-username", "redis-password"), "Ray's token guards the cluster; a password here shows in `ps`"
    ),
    "temp-dir": "the supervisor saves evidence from Ray's own folder and empties it",
    "autoscaling-config": "the nodes are those of the inventory",
}

# vLLM 0.32's short forms. They are refused, so that a recipe has one spelling for one thing.
SHORT_FORMS = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dp": "data-parallel-size",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dph": "data-parallel-hybrid-lb",
    "dpe": "data-parallel-external-lb",
    "dpm": "data-parallel-multi-port-external-lb",
    "ep": "enable-expert-parallel",
    "asc": "api-server-count",
    "n": "nnodes",
    "r": "node-rank",
    "q": "quantization",
    "sc": "speculative-config",
    "dc": "diffusion-config",
    "cc": "compilation-config",
    "ac": "attention-config",
    "O": "optimization-level",
}
SIZES = ("tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size")
