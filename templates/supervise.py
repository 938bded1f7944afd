"""
One node's share of a served model, and nothing half-alive beside it.

Main process of the container on every node, the same files everywhere, standard library only. It waits for the
fabric address and for its peers, starts `ray start`, on the head also `vllm serve`, watches them, and on any
failure on any node ends the session on all nodes, keeps the evidence, and starts again, a limited number of
times. It never exits because of its children. supervisor/ beside it is what it is made of.
"""

import sys

sys.dont_write_bytecode = True  # the release folder holds what was rendered, and nothing else

from supervisor.main import main  # noqa: E402

if __name__ == "__main__":
    main()
