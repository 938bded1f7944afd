"""
Broken inventories and recipes: a good file, and what is done to it.

The answers, word by word, are in tests/golden/broken/: one section per case, the changed lines and the message.
"""

from __future__ import annotations

INVENTORY = """\
name: home
recipe: tiny
head:
  ssh: spark-1
  fabric:
    interface: enp1s0f1np1
    ip: 192.168.200.1
    hcas: [rocep1s0f1, roceP2p1s0f1]
workers:
- ssh: spark-2
  fabric:
    interface: enp1s0f1np1
    ip: 192.168.200.2
    hcas: [rocep1s0f1, roceP2p1s0f1]
api:
  bind: 127.0.0.1
  port: 8000
transport: rdma
"""

RECIPE = """\
model: org/tiny
image: example/vllm:1.0
vllm:
  max-model-len: 512
ray:
  num-cpus: 4
env:
  OMP_NUM_THREADS: 4
secrets: [VLLM_API_KEY]
offline: true
start_limit_s: 3600
"""

Edits = tuple[tuple[str, str], ...]


def one(old: str, new: str) -> Edits:
    return ((old, new),)


def whole(text: str) -> Edits:
    return one("", text)


def vllm(line: str) -> Edits:
    return one("  max-model-len: 512\n", f"  {line}\n")


def env(line: str) -> Edits:
    return one("  OMP_NUM_THREADS: 4\n", f"  {line}\n")


BROKEN_INVENTORIES: dict[str, Edits] = {
    # the file
    "empty file": whole(""),
    "only comments": whole("# nothing yet\n\n"),
    "a list": whole("- name: home\n"),
    "a single value": whole("home\n"),
    "tab as indentation": one("  ssh: spark-1", "\tssh: spark-1"),
    "tab after the key": one("  ssh: spark-1", "  ssh: spark-1\n\tname: x"),
    "unclosed bracket": one(
        "ip: 192.168.200.1\n    hcas: [rocep1s0f1, roceP2p1s0f1]", "ip: 192.168.200.1\n    hcas: [rocep1s0f1"
    ),
    "colon missing": one("name: home\nrecipe: tiny", "name: home\nrecipe tiny"),
    "wrong indentation": one("  ssh: spark-1\n", "   ssh: spark-1\n"),
    "two documents": one("transport: rdma\n", "transport: rdma\n---\nname: other\n"),
    "key twice": one("recipe: tiny", "recipe: tiny\nname: other"),
    "three keys twice": (
        ("recipe: tiny", "recipe: tiny\nrecipe: big"),
        ("  port: 8000", "  port: 8000\n  port: 8001"),
        ("transport: rdma", "transport: rdma\ntransport: tcp"),
    ),
    "undefined alias": one("recipe: tiny", "recipe: *missing"),
    "python tag": one("recipe: tiny", "recipe: !!python/object/apply:os.system [reboot]"),
    "control character": one("recipe: tiny", "recipe: ti\x07ny"),
    "alias of itself": one("head:\n", "head: &head\n  again: *head\n"),
    "a mapping as key": one("recipe: tiny", "{a: b}: tiny"),
    "yes is ambiguous": one("recipe: tiny", "recipe: yes"),
    # the shape
    "unknown key": one("transport: rdma", "transports: rdma"),
    "unknown key in a node": one("- ssh: spark-2", "- ssh: spark-2\n  hostname: spark-2"),
    "unknown key in fabric": one(
        "    interface: enp1s0f1np1\n    ip: 192.168.200.1", "    iface: enp1s0f1np1\n    ip: 192.168.200.1"
    ),
    "unknown key like no other": one("transport: rdma", "transport: rdma\nxyzzy: 1"),
    "no name": one("name: home\n", ""),
    "no head": one(
        "head:\n  ssh: spark-1\n  fabric:\n    interface: enp1s0f1np1\n    ip: 192.168.200.1\n    hcas: [rocep1s0f1, roceP2p1s0f1]\n",
        "",
    ),
    "no ssh": one("- ssh: spark-2\n  fabric", "- fabric"),
    "no bind": one("  bind: 127.0.0.1\n", ""),
    "no api": one("api:\n  bind: 127.0.0.1\n  port: 8000\n", ""),
    "no workers": one(
        "workers:\n- ssh: spark-2\n  fabric:\n    interface: enp1s0f1np1\n    ip: 192.168.200.2\n    hcas: [rocep1s0f1, roceP2p1s0f1]\n",
        "workers: []\n",
    ),
    "workers as mapping": one("- ssh: spark-2\n  fabric", "  ssh: spark-2\n  fabric"),
    "head as list": one("head:\n  ssh: spark-1\n  fabric", "head:\n- ssh: spark-1\n  fabric"),
    "port as text": one("port: 8000", 'port: "8000"'),
    "port as fraction": one("port: 8000", "port: 8000.5"),
    "port below 1024": one("port: 8000", "port: 80"),
    "port too high": one("port: 8000", "port: 65536"),
    "name as number": one("name: home", "name: 7"),
    "recipe empty": one("recipe: tiny", "recipe:"),
    "everything at once": (
        ("name: home", "name: Home Office"),
        ("recipe: tiny", "recipie: tiny"),
        ("  ssh: spark-1", "  ssh: -oProxyCommand=reboot"),
        ("  port: 8000", "  port: true"),
        ("transport: rdma", "transport: roce"),
    ),
    # the values
    "name in capitals": one("name: home", "name: Home"),
    "interface too long": one(
        "interface: enp1s0f1np1\n    ip: 192.168.200.1", "interface: enp1s0f1np1.12345\n    ip: 192.168.200.1"
    ),
    "address is a name": one("ip: 192.168.200.1", "ip: spark-1"),
    "address is IPv6": one("ip: 192.168.200.1", "ip: fd00::1"),
    "address of the network": one("ip: 192.168.200.1", "ip: 192.168.200.0"),
    "address on loopback": one("ip: 192.168.200.1", "ip: 127.0.0.1"),
    "link-local address": one("ip: 192.168.200.1", "ip: 169.254.7.1"),
    "ssh port out of range": one("ssh: spark-1", "ssh: op@spark-1:70000"),
    "ssh with a space": one("ssh: spark-1", "ssh: spark-1 reboot"),
    "bind is a name": one("bind: 127.0.0.1", "bind: localhost"),
    "hcas as text": one(
        "ip: 192.168.200.1\n    hcas: [rocep1s0f1, roceP2p1s0f1]",
        "ip: 192.168.200.1\n    hcas: rocep1s0f1,roceP2p1s0f1",
    ),
    "relative path": one("transport: rdma", "paths: {huggingface: huggingface}"),
    "path with a comma": one("transport: rdma", "paths: {huggingface: '/data/a,target=/etc'}"),
    "path that climbs": one("transport: rdma", "paths: {state: ~/../root}"),
    "secrets_from both": one("transport: rdma", "secrets_from: {file: a, command: [b]}"),
    # the meaning
    "duplicate address": one("ip: 192.168.200.2", "ip: 192.168.200.1"),
    "duplicate name": (("  ssh: spark-1", "  ssh: spark-1\n  name: spark-2"),),
    "duplicate login": (("- ssh: spark-2", "- ssh: spark-1\n  name: other"),),
    "address outside the peers' subnet": one("ip: 192.168.200.2", "ip: 192.168.201.2"),
    "another prefix": one("ip: 192.168.200.2", "ip: 192.168.200.2/30"),
    "rdma without hcas": one("ip: 192.168.200.2\n    hcas: [rocep1s0f1, roceP2p1s0f1]", "ip: 192.168.200.2"),
    "rdma with no hcas": one(
        "ip: 192.168.200.2\n    hcas: [rocep1s0f1, roceP2p1s0f1]", "ip: 192.168.200.2\n    hcas: []"
    ),
    "hca twice": one(
        "ip: 192.168.200.2\n    hcas: [rocep1s0f1, roceP2p1s0f1]",
        "ip: 192.168.200.2\n    hcas: [rocep1s0f1, rocep1s0f1]",
    ),
    "no name to be had": one("ssh: spark-2", "ssh: op@10.0.0.2"),
    "api on Ray's port": one("port: 8000", "port: 6379"),
}

BROKEN_RECIPES: dict[str, Edits] = {
    "empty file": whole("\n"),
    "unknown key": one("offline: true", "ofline: true"),
    "no model": one("model: org/tiny\n", ""),
    "no image": one("image: example/vllm:1.0\n", ""),
    "executor mp": one("offline: true", "executor: mp"),
    "offline as text": one("offline: true", "offline: 'true'"),
    "start limit of zero": one("start_limit_s: 3600", "start_limit_s: 0"),
    "start limit with a unit": one("start_limit_s: 3600", "start_limit_s: 1h"),
    "vllm as list": one("vllm:\n  max-model-len: 512", "vllm: [--max-model-len, 512]"),
    "vllm empty": one("vllm:\n  max-model-len: 512", "vllm:"),
    "model from home": one("model: org/tiny", "model: ~/models/tiny"),
    "model as an option": one("model: org/tiny", "model: --help"),
    "model is a system folder": one("model: org/tiny", "model: /usr/"),
    "model is a Hub snapshot": one("model: org/tiny", "model: /hub/models--org--tiny/snapshots/0123abc"),
    "image as an option": one("image: example/vllm:1.0", "image: --privileged"),
    "image in capitals": one("image: example/vllm:1.0", "image: Example/vLLM:1.0"),
    "image with a short digest": one("image: example/vllm:1.0", "image: example/vllm@sha256:abc"),
    # options that the tool owns
    "vllm host": vllm("host: 0.0.0.0"),
    "vllm port": vllm("port: 8001"),
    "vllm api key": vllm("api-key: hunter2"),
    "vllm api key with underscore": vllm("api_key: hunter2"),
    "vllm config": vllm("config: /etc/vllm.yaml"),
    "vllm executor": vllm("distributed-executor-backend: mp"),
    "vllm executor with underscores": vllm("distributed_executor_backend: mp"),
    "vllm nnodes": vllm("nnodes: 2"),
    "vllm nnodes, short": vllm("n: 2"),
    "vllm node rank, short with dash": vllm("-r: 1"),
    "vllm master address": vllm("master-addr: 10.0.0.1"),
    "vllm master port": vllm("master-port: 29501"),
    "vllm headless": vllm("headless: true"),
    "vllm no-headless": vllm("no-headless: true"),
    "vllm host, abbreviated": vllm("hos: 0.0.0.0"),
    "vllm data parallel": vllm("data-parallel-size: 2"),
    "vllm data parallel, short": vllm("dp: 2"),
    "vllm TLS": vllm("ssl-keyfile: /etc/key.pem"),
    "ray head": one("  num-cpus: 4", "  head: true"),
    "ray address": one("  num-cpus: 4", "  address: 10.0.0.1:6379"),
    "ray dashboard": one("  num-cpus: 4", "  include_dashboard: true"),
    # options that are written wrongly
    "tensor size, short": vllm("tp: 2"),
    "pipeline size, short with dash": vllm("-pp: 2"),
    "tensor size, abbreviated": vllm("tensor-parallel: 2"),
    "tensor size as text": vllm("tensor-parallel-size: two"),
    "tensor size of zero": vllm("tensor-parallel-size: 0"),
    "option with dashes": vllm("--max-model-len: 512"),
    "option with a space": vllm("max-model-len 512: true"),
    "option twice by an underscore": vllm("max-model-len: 512\n  max_model_len: 1024"),
    "option without a value": vllm("max-model-len:"),
    "option on two lines": vllm('chat-template: "a\\nb"'),
    "option with a NUL": vllm('chat-template: "a\\0b"'),
    "option with a line separator": vllm('chat-template: "a\\u2028b"'),
    "option that is not a number": vllm("gpu-memory-utilization: .nan"),
    "infinity in a mapping": vllm("override-generation-config: {temperature: .inf}"),
    "empty list": vllm("served-model-name: []"),
    "list item like an option": vllm("served-model-name: [a, --host=0.0.0.0]"),
    "served name as number": vllm("served-model-name: 7"),
    "flag without opposite": vllm("disable-log-stats: false"),
    "ray flag without opposite": one("  num-cpus: 4", "  no-redirect-output: false"),
    "ray list": one("  num-cpus: 4", "  worker-port-list: [10002, 10003]"),
    # the environment
    "env that the tool owns": env("NCCL_SOCKET_IFNAME: eth0"),
    "env of the fabric address": env("VLLM_HOST_IP: 10.1.230.180"),
    "env of the GID": env('NCCL_IB_GID_INDEX: ""'),
    "env of the tool": env("SPARK_DEPLOY_TOKEN: abc"),
    "env of Ray's health check": env("RAY_health_check_period_ms: 1000"),
    "env with a secret": env("HF_TOKEN: hf_hunter2"),
    "env with a line break": env('A: "b\\nLD_PRELOAD=/x"'),
    "env as list": env("A: [1, 2]"),
    "env empty": env("A:"),
    "env with a strange name": env("A-B: 1"),
    "env with an = in the name": env('"A=B": 1'),
    "secrets with values": one("secrets: [VLLM_API_KEY]", "secrets: [VLLM_API_KEY=hunter2]"),
    "secrets as mapping": one("secrets: [VLLM_API_KEY]", "secrets: {VLLM_API_KEY: hunter2}"),
    "secret in env, too": (
        ("  OMP_NUM_THREADS: 4", "  MY_WORD: 1"),
        ("secrets: [VLLM_API_KEY]", "secrets: [MY_WORD]"),
    ),
    "secret twice": one("secrets: [VLLM_API_KEY]", "secrets: [VLLM_API_KEY, VLLM_API_KEY]"),
    "secret of the tool": one("secrets: [VLLM_API_KEY]", "secrets: [RAY_AUTH_TOKEN]"),
    "link lost after the time-out": one("offline: true", "supervision: {link_lost_s: 60}"),
    "many at once": (
        ("  max-model-len: 512", "  host: 0.0.0.0\n  max-model-len:"),
        ("  OMP_NUM_THREADS: 4", "  MASTER_ADDR: 10.0.0.1"),
    ),
}

# a good recipe each, that does not fit the two nodes
BROKEN_PAIRS: dict[str, Edits] = {
    "tensor size 4": vllm("tensor-parallel-size: 4"),
    "tensor size 1 with underscores": vllm("tensor_parallel_size: 1"),
    "tensor 2 and pipeline 2": vllm("pipeline-parallel-size: 2\n  tensor-parallel-size: 2"),
    "pipeline size 3": vllm("pipeline-parallel-size: 3"),
    "RDMA switched off": env("NCCL_IB_DISABLE: true"),
    "NCCL on sockets": env("NCCL_NET: Socket"),
}


def broken(good: str, edits: Edits) -> str:
    for old, new in edits:
        if not old:
            return new
        assert good.count(old) == 1, f"{old!r} is {good.count(old)} times in there"
        good = good.replace(old, new)
    return good
