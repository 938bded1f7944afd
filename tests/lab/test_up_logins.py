"""Other ways in than the default one: as root, and through a jump host named in an included file."""

from __future__ import annotations

from .promises import assert_as_before, completion


def test_root_serves_where_it_can_be_reached_and_leaves_nothing(lab, inventory, spark_deploy):
    """
    The second case of login; state and caches lie in root's home then. The API listens everywhere.
    """
    inventory(suffix="-root", api={"bind": "0.0.0.0"})
    before = lab.logins("a", "root")

    up = spark_deploy("up")
    answer = completion(lab)
    logins = lab.logins("a", "root") - before
    down = spark_deploy("down")

    assert (up.returncode, logins, down.returncode) == (0, 1, 0)
    assert up.stdout == "serving: stub at http://10.99.1.10:8000/v1, reachable from here\n"
    assert answer.endswith("data: [DONE]\n\n200")
    assert_as_before(lab)


def test_a_jump_host_from_an_included_file_is_used(lab, inventory, spark_deploy):
    """
    `ProxyJump` stands in ~/.ssh/conf.d, which paramiko's own parser never reads.
    """
    inventory(suffix="-jump", api={"bind": "0.0.0.0"})
    before = {key: lab.logins(key) for key in ("a", "b", "jump")}

    with lab.only_by_jump("a"), lab.only_by_jump("b"):
        up = spark_deploy("up")
        logins = {key: lab.logins(key) - before[key] for key in before}
        down = spark_deploy("down")

    assert (up.returncode, down.returncode) == (0, 0)
    assert up.stdout == (
        "serving: stub at http://10.99.1.10:8000/v1 on spark-a (not reachable from here: a firewall?)\n"
        "  from here: ssh -N -L 8000:127.0.0.1:8000 spark-a-jump\n"
    )
    assert (logins["a"], logins["b"]) == (1, 1)
    assert logins["jump"] <= 2
    assert_as_before(lab)
