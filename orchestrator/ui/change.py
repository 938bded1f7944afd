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
    replaces = now.standing is Standing.OTHER or (now.standing is Standing.BROKEN and bool(now.previous))
    if not replaces:
        return ""
    secrets = [f"secret {name} changed" for name in prepared.changed_secrets if name != TOKEN]
    back = "It is stopped first: memory and port are its own. Should the new one fail, it is started again."
    return "\n".join(
        [show_release_diff(prepared.old_files, prepared.release), *secrets, f"{now.why}. {back}"]
    ).strip()
