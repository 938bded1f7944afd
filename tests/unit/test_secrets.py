"""Secrets come from where the inventory says, and differences are named without values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import Exit, FileError
from orchestrator.model.inventory import SecretSource
from orchestrator.planning.steps import TOKEN
from orchestrator.run.secrets import changed_secrets, resolve_secrets, secrets_file, with_token
from tests.unit.examples import INVENTORY, RECIPE

if TYPE_CHECKING:
    from pathlib import Path

KEYED = replace(RECIPE, secrets=("VLLM_API_KEY",))


def test_the_environment_gives_what_the_recipe_names_and_no_more() -> None:
    environ = {"VLLM_API_KEY": "s3cret", "AWS_SECRET": "other"}

    assert resolve_secrets(INVENTORY, KEYED, environ) == {"VLLM_API_KEY": "s3cret"}


def test_a_missing_secret_is_an_error_that_names_it() -> None:
    with pytest.raises(FileError, match="the secret VLLM_API_KEY has no value") as raised:
        resolve_secrets(INVENTORY, KEYED, {})

    assert raised.value.exit_code is Exit.FILE


def test_a_value_of_several_lines_is_refused_before_any_connection() -> None:
    """Found while the files are written, it would cost the pair that runs its stop and start."""
    with pytest.raises(FileError, match="the secret VLLM_API_KEY spans lines"):
        resolve_secrets(INVENTORY, KEYED, {"VLLM_API_KEY": "a\nb"})


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secrets.env"
    path.write_text("VLLM_API_KEY=x\n")
    path.chmod(0o644)

    with pytest.raises(FileError, match="can be read by others"):
        resolve_secrets(replace(INVENTORY, secrets_from=SecretSource("file", str(path))), KEYED, {})


def test_a_private_file_gives_its_values(tmp_path: Path) -> None:
    path = tmp_path / "secrets.env"
    path.write_text("# mine\n\nVLLM_API_KEY=a=b\n")
    path.chmod(0o600)

    source = SecretSource("file", str(path))
    assert resolve_secrets(replace(INVENTORY, secrets_from=source), KEYED, {}) == {"VLLM_API_KEY": "a=b"}


def test_a_command_gives_its_output() -> None:
    source = SecretSource("command", command=("printf", "VLLM_API_KEY=fromcommand\n"))

    assert resolve_secrets(replace(INVENTORY, secrets_from=source), KEYED, {}) == {
        "VLLM_API_KEY": "fromcommand"
    }


def test_the_token_of_a_running_pair_is_kept() -> None:
    """Another laptop must not start the pair anew only because it knows no token."""
    found = {"spark-1": f"{TOKEN}=abc\n".encode(), "spark-2": f"{TOKEN}=abc\n".encode()}

    assert with_token({}, found) == {TOKEN: "abc"}


def test_nodes_that_disagree_get_a_new_token() -> None:
    values = with_token({}, {"spark-1": f"{TOKEN}=abc\n".encode(), "spark-2": None})

    assert len(values[TOKEN]) == 64


def test_a_changed_secret_is_named() -> None:
    found = {"spark-1": secrets_file({"A": "1", "B": "2"}, ("A", "B"))}

    assert changed_secrets({"A": "1", "B": "3"}, found) == ("B",)
