"""Host keys: nothing is done with a node whose key is not the known one, and `trust` is the way out."""

from __future__ import annotations

from .promises import assert_as_before, errors


def test_an_unknown_host_key_is_refused_with_the_command_that_trusts_it(lab, inventory, admin_home):
    """
    Promise 8: host keys are verified; the fingerprint is shown to be compared, not just accepted.
    """
    inventory()
    admin_home.trust("a")
    fingerprint = admin_home.fingerprint("b")

    done = admin_home.spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        5,
        "Error: the host key of spark-b is not known\n"
        "  at     spark-b (10.99.1.11:22)\n"
        f"  found  ssh-ed25519 {fingerprint}\n"
        f"  wanted a line for 10.99.1.11 in {admin_home.known_hosts}, /etc/ssh/ssh_known_hosts, "
        "/etc/ssh/ssh_known_hosts2\n"
        "  hint   compare with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on its console, then: "
        f"spark-deploy trust spark-b --fingerprint {fingerprint}\n",
    )
    assert_as_before(lab)


def test_a_changed_host_key_is_refused_with_a_warning(lab, inventory, admin_home):
    """
    Re-installed, or somebody sits in between: that is for a human to tell.
    """
    inventory()
    admin_home.mistake_host_key("b")
    fingerprint = admin_home.fingerprint("b")

    done = admin_home.spark_deploy("up")

    assert done.returncode == 5
    assert errors(done).startswith(
        "Error: the host key of spark-b has CHANGED\n"
        "  at     spark-b (10.99.1.11:22)\n"
        f"  found  ssh-ed25519 {fingerprint}\n"
        "  wanted ssh-ed25519 SHA256:"
    )
    assert f"only then: spark-deploy trust spark-b --fingerprint {fingerprint}\n" in errors(done)
    assert_as_before(lab)


def test_the_jump_host_s_key_is_verified_too(lab, inventory, admin_home):
    """
    Whoever sits on the jump host reads all that goes through it.
    """
    inventory(suffix="-jump")
    admin_home.trust("a", "b")

    unknown = admin_home.spark_deploy("up")
    admin_home.trust("a", "b", "jump")
    admin_home.mistake_host_key("jump")
    changed = admin_home.spark_deploy("up")

    assert (unknown.returncode, changed.returncode) == (5, 5)
    assert "Error: the host key of jump is not known\n" in errors(unknown)
    assert f"spark-deploy trust jump --fingerprint {admin_home.fingerprint('jump')}" in errors(unknown)
    assert "Error: the host key of jump has CHANGED\n" in errors(changed)
    assert_as_before(lab)


def test_trust_with_the_right_fingerprint_opens_the_way(lab, inventory, admin_home):
    """
    The very command of the error message; after it the node is asked as any other.
    """
    inventory()
    admin_home.trust("a")

    trusted = admin_home.spark_deploy("trust", "spark-b", "--fingerprint", admin_home.fingerprint("b"))
    planned = admin_home.spark_deploy("plan")

    assert trusted.returncode == 0
    assert (planned.returncode, planned.stdout.splitlines()[0]) == (
        0,
        "nothing runs: no container of this deployment",
    )


def test_trust_with_another_fingerprint_writes_nothing(lab, inventory, admin_home):
    """
    A fingerprint that was read off the wrong console is no consent.
    """
    inventory()
    admin_home.trust("a")
    before = admin_home.known_hosts.read_text()

    refused = admin_home.spark_deploy("trust", "spark-b", "--fingerprint", admin_home.fingerprint("jump"))

    assert refused.returncode == 5
    assert admin_home.known_hosts.read_text() == before
