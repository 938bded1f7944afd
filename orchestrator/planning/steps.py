"""The plans: `up` and `down` as steps that can be shown, compared and carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.plan import Action, Complete, Plan, Script, Step, Upload, UploadSecrets, Watch
from orchestrator.planning import layout
from orchestrator.planning.render import render_script
from orchestrator.planning.situation import Situation, Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.plan import Work
    from orchestrator.model.recipe import Recipe
    from orchestrator.model.release import Release

TOKEN = "SPARK_DEPLOY_TOKEN"  # noqa: S105  # the name of the secret, not its value
# `docker rm --force` waits for the kernel to give the memory of a dead engine back: up to a minute was seen on a
# loaded machine; a start returns as soon as the container runs.
DOCKER_LIMIT_S = 120
FILE_LIMIT_S = 30
COMPLETE_LIMIT_S = 120  # the first request may compile kernels: 12 s on the reference deployment
FRESH = Situation(Standing.ABSENT, "nothing runs")


def plan_up(
    inventory: Inventory,
    recipe: Recipe,
    release: Release,
    situation: Situation = FRESH,
    *,
    break_lock: bool = False,
) -> Plan:
    """
    Give the steps from *situation* to a verified serving pair, and the way back.

    A release that serves already needs no step; one on its way is only watched.
    """
    watch, make = _watch(inventory, recipe), _Steps(inventory, inventory.nodes)
    left_behind = (make.break_lock(),) if break_lock else ()  # nothing is changed: no lock is needed
    if situation.standing is Standing.SERVING:
        return Plan("nothing to do: this release serves", (), lock=left_behind)
    if situation.standing is Standing.COMING:
        return Plan("this release is on its way: wait for it", watch, lock=left_behind)
    steps = (
        make.upload(release),
        make.prune(release.id12, *([situation.previous] if situation.previous else [])),
        *(() if situation.standing is Standing.ABSENT else (make.stop("stop what runs now"),)),
        make.prepare(),
        make.secrets("put the secrets on the nodes", *recipe.secrets),
        make.start(release.id12),
        *watch,
    )
    return Plan(
        f"serve release {release.id12} of {inventory.name}",
        steps,
        undone=_undone(situation),
        undo=_undo(make, recipe, release, situation),
        lock=make.lock(situation.found, break_lock=break_lock),
        unlock=(make.unlock(),),
    )


def plan_down(
    inventory: Inventory, *, break_lock: bool = False, nodes: tuple[Node, ...] | None = None
) -> Plan:
    """Leave nothing of the deployment but caches on *nodes*, by default all of them."""
    make = _Steps(inventory, inventory.nodes if nodes is None else nodes)
    return Plan(
        f"take {inventory.name} down",
        (make.remove(),),
        lock=make.lock(lambda _: "any", break_lock=break_lock),
        unlock=(make.unlock(),),
    )


def _watch(inventory: Inventory, recipe: Recipe, before: Situation = FRESH) -> tuple[Step, ...]:
    """Wait until it serves; *before* is given where that is the release before this run."""
    head = inventory.head.name
    join_s, ready_s = recipe.supervision.join_limit_s, before.start_limit_s or recipe.start_limit_s
    joined, ready = Watch("joined", join_s), Watch("ready", ready_s)
    completion = Complete(COMPLETE_LIMIT_S, before.endpoint)
    return (
        Step(
            "join",
            "form the Ray cluster on the fabric",
            (Action(head, f"all nodes within {join_s:.0f} s", joined),),
        ),
        Step("ready", "load the model", (Action(head, f"ready within {ready_s:.0f} s", ready),)),
        Step("verify", "prove that it serves", (Action(head, "stream one completion", completion),)),
    )


def _undone(situation: Situation) -> str:
    if not situation.previous:
        return "nothing of this deployment is on them"
    return f"release {situation.previous} {'serves again' if situation.previous_served else 'is back, as it was'}"


def _undo(make: _Steps, recipe: Recipe, release: Release, situation: Situation) -> tuple[Step, ...]:
    """Back to the release that ran, if a whole one did, else to nothing."""
    if not situation.previous:
        return (make.remove(),)
    again = situation.previous == release.id12  # only a secret changed
    return (
        make.stop("stop the new release"),
        *(() if again else (make.discard(release.id12),)),
        make.prepare(),
        make.secrets("put the old secrets back", restore=True),
        make.start(situation.previous),
        *(_watch(make.inventory, recipe, situation) if situation.previous_served else ()),
    )


@dataclass(frozen=True)
class _Steps:
    """The steps of one deployment on *nodes*."""

    inventory: Inventory
    nodes: tuple[Node, ...]

    def lock(self, found: Callable[[str], str], *, break_lock: bool) -> tuple[Step, ...]:
        """First node, then the others: two runs at once never hold half of the nodes each."""

        def script(node: Node) -> Script:
            return self._script("lock", node, FILE_LIMIT_S, expected=found(node.name))

        groups = [group for group in (self.nodes[:1], self.nodes[1:]) if group]
        steps = tuple(_step("lock", "hold the lock", group, script) for group in groups)
        return (self.break_lock(), *steps) if break_lock else steps

    def break_lock(self) -> Step:
        return self._scripts("break-lock", "break the lock", FILE_LIMIT_S)

    def unlock(self) -> Step:
        return self._scripts("unlock", "let the lock go", FILE_LIMIT_S)

    def upload(self, release: Release) -> Step:
        def upload(node: Node) -> Upload:
            folder = layout.release_folder(self.inventory, node, release)
            return Upload(folder, release.by_node[node.name])

        return _step("files", "put the release on the nodes", self.nodes, upload)

    def prune(self, *keep: str) -> Step:
        return self._scripts("prune", "remove older releases", FILE_LIMIT_S, keep=keep)

    def stop(self, title: str) -> Step:
        return self._scripts("stop", title, DOCKER_LIMIT_S)

    def prepare(self) -> Step:
        return self._scripts("prepare", "say what shall run", FILE_LIMIT_S)

    def secrets(self, title: str, *names: str, restore: bool = False) -> Step:
        def upload(node: Node) -> UploadSecrets:
            return UploadSecrets(layout.run_folder(self.inventory, node), (*names, TOKEN), restore)

        return _step("secrets", title, self.nodes, upload)

    def start(self, id12: str) -> Step:
        return self._scripts("start", f"start release {id12}", DOCKER_LIMIT_S, release=id12)

    def discard(self, id12: str) -> Step:
        return self._scripts("discard", "remove the new release's files", FILE_LIMIT_S, release=id12)

    def remove(self) -> Step:
        return self._scripts("remove", "remove container and files", DOCKER_LIMIT_S)

    def _scripts(self, name: str, title: str, limit_s: float, **values: object) -> Step:
        return _step(name, title, self.nodes, lambda node: self._script(name, node, limit_s, **values))

    def _script(self, name: str, node: Node, limit_s: float, **values: object) -> Script:
        return Script(render_script(name, self.inventory, node, **values), limit_s)


def _step(name: str, title: str, nodes: tuple[Node, ...], work: Callable[[Node], Work]) -> Step:
    return Step(name, title, tuple(Action(node.name, title, work(node)) for node in nodes))
