"""
A vLLM platform for the lab: CPU ranks that Ray places by GPU, one a node, talking over the network.

It must be a platform plugin: a general plugin is loaded too late in a Ray actor (vLLM 0.32).
"""


def register() -> str:
    return "vllm_lab_platform.platform.LabCpuPlatform"
