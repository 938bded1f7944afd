"""Other ways in than the default one: as root, and through a jump host named in an included file."""

from __future__ import annotations

from .claims import assert_as_before, completion


def test_root_serves_and_leaves_nothing(lab, inventory, spark_deploy):
    """
    The second case of login; state and caches lie in root's home then.
    """
    inventory(suffix="-root")
    before = lab.logins("a", "root")

    up = spark_deploy("up")
    answer = completion(lab)
    logins = lab.logins("a", "root") - before
    down = spark_deploy("down")

    assert (up.returncode, logins, down.returncode) == (0, 1, 0)
    assert answer.endswith("data: [DONE]\n\n200")
    assert_as_before(lab)


def test_a_jump_host_from_an_included_file_is_used(lab, inventory, spark_deploy):
    """
    `ProxyJump` stands in ~/.ssh/conf.d, which paramiko's own parser never reads.
    """
    inventory(suffix="-jump")
    before = {key: lab.logins(key) for key in ("a", "b", "jump")}

    with lab.only_by_jump("a"), lab.only_by_jump("b"):
        up = spark_deploy("up")
        logins = {key: lab.logins(key) - before[key] for key in before}
        down = spark_deploy("down")

    assert (up.returncode, down.returncode) == (0, 0)
    assert (logins["a"], logins["b"]) == (1, 1)
    assert logins["jump"] <= 2
    assert_as_before(lab)
