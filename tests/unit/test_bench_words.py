"""The diagnosis: what it says, and above all what it does not say."""

from dataclasses import replace

import pytest

from orchestrator.bench.words import diagnose
from orchestrator.load.baseline import shipped_baselines
from orchestrator.model.bench import Cold, NodeLoad, ServerDelta
from tests.unit.benched import DEPLOYMENT, INVALID, SHAPE, level, repeat, result

CONTEXT = [baseline for baseline in shipped_baselines() if baseline.context]
# What two all-reduces in each of 48 layers need per token: 3072 values of 16 bits, sent and received by each of two.
NEEDED = 48 * 2 * 3072 * 2 * 2


def words(*levels, **others):
    return "\n".join(diagnose(result(*levels, **others), CONTEXT))


def alone(aggregate=26, decode=27, ttft_s=0.48, **others):
    return level(1, repeat(aggregate, decode, ttft_s, **others))


def test_the_words_for_the_reference_curve(golden):
    """
    Half of the time of a request alone is not memory; at 16 memory bounds; two rows of context with their caveats.
    """
    golden("bench/words.txt", words() + "\n")


def test_the_servers_own_clock_tells_where_the_time_goes():
    """The difference to the client's is the API and the network."""
    inside = words(alone(server=ServerDelta(itl_mean_ms=36.9)))
    outside = words(alone(server=ServerDelta(itl_mean_ms=20.0)))

    assert (
        "36.9 ms per token by the server's clock, 37.0 ms by the client's, so it is in the engine." in inside
    )
    assert (
        "20.0 ms per token by the server's clock, 37.0 ms by the client's, so it is partly outside" in outside
    )


def test_a_log_line_tells_what_the_first_request_waited_for():
    """Else the reasons are only possible ones."""
    known = words(alone(), cold=Cold(12, 23, why="CUDA graphs were captured"))

    assert "by the log, CUDA graphs were captured." in known
    assert "JIT" not in known


def test_a_first_request_like_the_others_is_not_mentioned():
    """0.9 s is no cold start."""
    assert "very first" not in words(alone(), cold=Cold(0.9, 12))


def test_measured_speculation_is_not_recommended():
    """It is there already; what it yields was counted."""
    text = words(alone(server=ServerDelta(drafts=100, draft_tokens=300, accepted_tokens=130)))

    assert "more accepted drafts (2.3 tokens per step now)" in text
    assert "speculation (12 to 45 %)" not in text


def test_queue_and_cache_are_told_where_they_hold_requests_up():
    """At the highest level, where it matters."""
    text = words(
        alone(), level(16, repeat(144, 10, 3.2, server=ServerDelta(queue_mean_s=1.5, kv_usage_max=0.95)))
    )

    assert "1.50 s of the 3.20 s to the first token are the server's queue" in text
    assert "the KV cache was 95 % full" in text


def test_throttling_is_told_by_node():
    """A hot node slows both."""
    nodes = (NodeLoad("spark-1"), NodeLoad("spark-2", throttled=("sw_thermal_slowdown",)))

    assert "spark-2 throttled its GPU (sw_thermal_slowdown)" in words(alone(nodes=nodes))


@pytest.mark.parametrize(
    ("rdma", "netdev", "said"),
    [(NEEDED, 0, "1.0 times what all-reduces of this shape need"), (0, NEEDED, "over TCP sockets, not RDMA")],
)
def test_the_bytes_on_the_wire_tell_which_way_the_nodes_talk(rdma, netdev, said):
    """12 requests of 512 and 300 tokens."""
    tokens = 12 * 812
    nodes = tuple(
        NodeLoad(name, rdma_bytes=rdma * tokens, netdev_bytes=netdev * tokens) for name in DEPLOYMENT.nodes
    )

    assert said in words(alone(nodes=nodes))


def test_more_than_the_model_is_explained_and_not_clipped():
    """Requests share experts, and it says how many would do."""
    text = words(alone(), level(16, repeat(200, 13, 3.2)))

    assert "(125 % of it): requests share experts, about 79 of them per layer are read." in text


def test_more_than_the_model_of_one_assumed_node_may_be_two_nodes():
    """A pair that is measured by its URL does not say that it is one."""
    unknown = replace(DEPLOYMENT, nodes=(), tensor_parallel=None)
    text = words(level(16, repeat(300, 22, 3.2)), deployment=unknown)

    assert "more than the one node that is assumed" in text
    assert "no gap is left" not in text


def test_more_than_the_hard_limit_is_put_down_to_what_was_assumed():
    """
    No deployment reads fewer experts than one token needs: no advice follows from a model that is wrong.
    """
    unknown = replace(DEPLOYMENT, nodes=(), tensor_parallel=None)
    text = words(alone(90, 95), level(16, repeat(144, 10, 3.2)), deployment=unknown)

    assert "which cannot be: bytes per weight, bandwidth or nodes are other than assumed." in text
    assert "Assumed: 1 node (how many there are is not known) with 273 GB/s" in text
    assert "To be faster" not in text


def test_a_toy_far_from_the_limit_gets_no_advice():
    """740 kB on a CPU are bound by something else; nothing of memory or of other machines is said."""
    toy = replace(SHAPE, parameters=3e5, active=3e5, experts=0, experts_per_token=0, layers=2)
    held = replace(alone().limit, bytes_per_step=6e5, efficiency=1e-5, decode_efficiency=1e-5)
    text = words(replace(alone(), limit=held), shape=toy, cold=None)

    assert text.count("\n") == 0
    assert text.endswith("something else bounds this deployment, and the model says no more about it.")


def test_without_a_shape_it_says_what_is_missing():
    """And still tells what was measured."""
    text = words(replace(alone(), limit=None), shape=None)

    assert text.startswith("How near the memory limit that is cannot be said: the size of Qwen/Qwen3.5-122B")
    assert "the very first request waited 12.0 s" in text


def test_another_model_is_no_context_where_nothing_tells_what_bounds_this_one():
    """The same model is, with its caveats."""
    text = words(replace(alone(), limit=None), shape=None)

    assert ("the same model on" in text, "gpt-oss" in text) == (True, False)


def test_the_baselines_first_request_is_told_beside_this_one():
    """Not judged: whether a server was warm already is not known."""
    reference = next(baseline for baseline in shipped_baselines() if baseline.name == "reference")
    text = "\n".join(diagnose(result(alone(), cold=Cold(30, 41)), (), reference))

    assert "waited 30.0 s for its first token (12.0 s in reference), later ones 0.48 s" in text


def test_the_first_request_is_held_against_what_was_measured_at_its_concurrency():
    """Where no level had one request alone, the concurrency is named."""
    text = words(level(16, repeat(144, 10, 3.2)), cold=Cold(12, 23))

    assert "later ones, 16 at once, 3.20 s" in text


def test_of_an_invalid_sweep_nothing_is_said():
    """No claim without a measurement."""
    assert words(alone(gates=(INVALID,))) == (
        "Without a valid level of --levels nothing is said of what bounds the deployment."
    )


def test_another_model_on_one_node_has_no_context():
    """277 tok/s of another model on other machines say nothing."""
    other = replace(DEPLOYMENT, root="meta/other", model="other", nodes=("spark-1",), tensor_parallel=1)

    assert "For context" not in words(alone(), deployment=other)
