"""A stand-in for Ray 2.60 and vLLM 0.32: same commands, same lines, same processes, no model. Standard library only."""

RAY_VERSION = "2.60.0"
VLLM_VERSION = "0.32.0"
