"""inventories/recipes/*.yaml into a Recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.errors import FileError, one_or_many
from orchestrator.load import options
from orchestrator.load.document import read_document
from orchestrator.load.problems import in_file_order, validated
from orchestrator.load.schema import RecipeSchema, SupervisionSchema
from orchestrator.model.recipe import Recipe, Supervision

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.load.document import Document


def load_recipe(path: Path) -> Recipe:
    """
    Give the recipe in *path*; its name is the file's.

    Raises:
        FileError: one thing is wrong with it; `at` is its file and line.
        ManyError: several are.
    """
    document = read_document(path, "recipe")
    schema = validated(RecipeSchema, document)
    vllm, vllm_errors = options.vllm_options(document)
    ray, ray_errors = options.ray_options(document)
    env, env_errors = options.env_variables(document)
    supervision = Supervision(**_seconds(schema.supervision))
    problems = [
        *vllm_errors,
        *ray_errors,
        *env_errors,
        *options.secret_problems(document),
        *options.served_name_problems(document, vllm),
        *_lost_too_late(document, supervision),
    ]
    if problems:
        raise one_or_many(in_file_order(problems))
    return Recipe(
        name=path.stem,
        model=schema.model.rstrip("/"),
        image=schema.image,
        vllm=vllm,
        ray=ray,
        env=env,
        secrets=tuple(schema.secrets),
        offline=schema.offline,
        start_limit_s=_whole(schema.start_limit_s),
        supervision=supervision,
        executor=schema.executor,
        source=str(path),
    )


def _lost_too_late(document: Document, supervision: Supervision) -> Iterator[FileError]:
    """A link is shown as lost before the session ends for it."""
    if supervision.link_lost_s >= supervision.peer_timeout_s:
        yield FileError(
            f"supervision.link_lost_s is {supervision.link_lost_s:g}",
            at=document.at(("supervision", "link_lost_s")),
            wanted=f"less than peer_timeout_s ({supervision.peer_timeout_s:g})",
        )


def _seconds(schema: SupervisionSchema) -> dict[str, Any]:
    return {name: _whole(value) for name, value in schema.model_dump(exclude_none=True).items()}


def _whole(value: float) -> float:
    """Give 60 for 60.0: a default and the same number written down are the same bytes."""
    return int(value) if float(value).is_integer() else value
