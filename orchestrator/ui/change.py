"""What an `up` would change, for the question before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planning.situation import Standing
from orchestrator.planning.steps import TOKEN
from orchestrator.ui.show import show_release_diff

if TYPE_CHECKING:
    from orchestrator.run.up import Prepared


def difference(prepared: Prepared) -> str:
    """Give what would change, in words and as a diff; "" where nothing that is alive would be stopped."""
    now = prepared.situation
    if now.standing not in (Standing.OTHER, Standing.SECRETS):
        return ""
    secrets = [f"secret {name} changed" for name in prepared.changed_secrets if name != TOKEN]
    back = "it is started again" if now.previous else "nothing is left running: it cannot be started again"
    first = f"What runs is stopped first: memory and port are its own. Should the new one fail, {back}."
    return "\n".join(
        [show_release_diff(prepared.old_files, prepared.release), *secrets, f"{now.why}. {first}"]
    ).strip()
