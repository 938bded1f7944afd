"""
Causes we know by their line, most specific first.

Five of the six lessons of the reference deployment are among them (docs/lessons.md); the fourth, traffic
off the fabric, leaves no line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """*pattern*'s groups fill the text of *cause* and *hint*; no cause where the line itself says it."""

    pattern: re.Pattern[str]
    cause: str
    hint: str


def _known(pattern: str, cause: str, hint: str) -> Known:
    return Known(re.compile(pattern), cause, hint)


KNOWN = (
    _known(  # lesson 1
        r"model type `(?P<kind>[^`]+)` but Transformers does not recognize this architecture",
        "the image is too old for this model: its Transformers does not know the architecture {kind}",
        "take an image with a newer Transformers (recipe: image), then `docker pull` it on every node",
    ),
    _known(  # lesson 6
        r"Model architectures \[(?P<names>[^\]]*)\] (?:are not supported for now|failed to be inspected)",
        "this vLLM has no support for the model's architecture {names}",
        "take an image with a vLLM that lists it (recipe: image), then `docker pull` it on every node",
    ),
    _known(  # lesson 3
        r"No available node types can fulfill resource request .*node:(?P<ip>[0-9.]+)",
        "vLLM asks Ray for a node at {ip}, and Ray knows none: VLLM_HOST_IP and Ray's address differ",
        "the fabric addresses of the inventory must be those that the nodes hold (`ip -brief address`)",
    ),
    _known(  # lesson 5
        r"Memory on the node \(IP: (?P<ip>[^,)]+)[^)]*\) was (?P<used>[^(]+?) \("
        r"|killed due to the node running low on memory",
        "Ray's memory monitor killed a process (memory of {ip}: {used}): it counts the GPU's share of unified memory",
        "RAY_memory_monitor_refresh_ms must be 0 in the environment of `ray start` on every node",
    ),
    _known(
        r"Unable to find address for: (?P<name>\S+)",
        "Gloo found no address on the interface {name}",
        "fabric.interface in the inventory must be the interface that holds fabric.ip",
    ),
    _known(  # lesson 2
        r"NCCL (?:WARN|error).*(?P<what>unhandled system error|remote process exited|Connect to .* failed.*)",
        "NCCL could not connect the nodes: {what}",
        "compare interface, HCAs and MTU of both nodes; NCCL_IB_GID_INDEX must not be set",
    ),
    _known(
        r"Free memory on device \S+ \((?P<free>[^)]*)\) on startup is less than desired GPU memory utilization",
        "not enough free memory for gpu-memory-utilization: {free}",
        "lower gpu-memory-utilization in the recipe, or see what else holds memory on the node",
    ),
    _known(
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache",
        "raise gpu-memory-utilization a little, or lower max-model-len or max-num-seqs",
    ),
    _known(
        r"SafetensorError: (?P<what>.+)|(?P<other>incomplete metadata, file not fully covered)",
        "a weight file of the model is broken, as after a download that was cut: {what}{other}",
        "download the model again on every node, whole: `hf download --force-download MODEL`, or copy its folder anew",
    ),
    _known(r"CUDA out of memory", "the GPU's memory ran out", "lower gpu-memory-utilization or max-num-seqs"),
    _known(
        r"Address already in use",
        "a port is taken on the node",
        "`sudo ss -lntup` on the node shows by whom; or choose another port in the inventory",
    ),
    _known(  # Python's words; PyTorch warns of `errno: 99` in a good start, too
        r"\[Errno 99\] (?:Cannot assign requested address|error while attempting to bind on address)",
        "a process wants to listen at an address that the node does not hold",
        "api.bind must be 127.0.0.1, 0.0.0.0 or an address of the head; `ip -brief address` there shows them",
    ),
    _known(
        r"vllm: error: unrecognized arguments: (?P<arguments>.+)",
        "this vLLM does not know the option {arguments}",
        "correct `vllm:` in the recipe, or take another image",
    ),
    _known(
        r"vllm serve: error: (?P<what>.+)|vllm: error: (?P<other>.+)",
        "vLLM refuses its options: {what}{other}",
        "correct `vllm:` in the recipe",
    ),
    _known(
        r"could not select device driver .*\[\[gpu\]\]",
        "Docker cannot hand the GPU to a container: it has no NVIDIA runtime",
        "on the node: sudo apt install nvidia-container-toolkit, sudo systemctl restart docker; or `gpus: cdi`",
    ),
    _known(
        r"unresolvable CDI devices (?P<device>\S+)",
        "Docker knows no CDI device {device}",
        "on the node: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; or `gpus: all`",
    ),
    _known(
        r"ray: (?:command )?not found|No such file or directory: 'ray'",
        "the image has no Ray",
        "take an image with Ray (current NGC and stock vLLM images have none), or add one layer with `pip install ray`",
    ),
    _known(
        r"No working C\+\+ compiler found|InvalidCxxCompiler",
        "the image has no C++ compiler, and torch.compile needs one",
        "take an image with g++, or set env: TORCHDYNAMO_DISABLE: 1 in the recipe",
    ),
)


# What our own supervisor and scripts say, and what to do about it: not searched for in logs, where it may be old.
HINTS = (
    _known(
        r"transport is NET/Socket",
        "",
        "RDMA needs /dev/infiniband on the node, memlock unlimited and fabric.hcas as `ibdev2netdev` shows them; "
        "to serve over TCP all the same, far slower: `transport: tcp` in the inventory",
    ),
    _known(
        r"did not join (?:Ray|the Ray cluster|[\d.]+:\d+)",
        "",
        "a firewall on the fabric? Between the fabric addresses every TCP port must be open, ports.ray first: "
        "`sudo ufw status` and `sudo nft list ruleset` on the nodes",
    ),
    _known(
        r"(?i)permission denied.*docker",
        "",
        "on the node: sudo usermod --append --groups docker $USER   # then log in again",
    ),
    _known(  # as after an `up` whose inventory logged in as root, with the same home
        r"/\.(?:cache/)?spark-deploy\b.*Permission denied",
        "",
        "the folder is another user's; on the node: sudo chown --recursive $USER ~/.spark-deploy ~/.cache/spark-deploy",
    ),
    _known(
        r"Cannot connect to the Docker daemon|Docker does not answer",
        "",
        "on the node: sudo systemctl start docker",
    ),
)
