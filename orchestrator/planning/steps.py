"""The plans: `up` and `down` as steps that can be shown, compared and carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.model.plan import Action, Complete, Plan, Script, Step, Upload, UploadSecrets, Watch
from orchestrator.planning import layout
from orchestrator.planning.render import render_script
from orchestrator.planning.situation import Situation, Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe
    from orchestrator.model.release import Release

TOKEN = "SPARK_DEPLOY_TOKEN"  # noqa: S105  # the name of the secret, not its value
# `docker rm --force` waits for the kernel to give the memory of a dead engine back: up to a minute on a
# loaded machine (platform notes, 2.2); a start returns as soon as the container runs.
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
    watch = _watch(inventory, recipe)
    scripts = _Scripts(inventory, release)
    left_behind = (scripts.break_lock(),) if break_lock else ()  # nothing is changed: no lock is needed
    if situation.standing is Standing.SERVING:
        return Plan("nothing to do: this release serves", (), lock=left_behind)
    if situation.standing is Standing.COMING:
        return Plan("this release is on its way: wait for it", watch, lock=left_behind)
    steps = (
        *scripts.stage(situation),
        *(() if situation.standing is Standing.ABSENT else (scripts.stop("stop what runs now"),)),
        scripts.prepare(),
        scripts.secrets(recipe),
        scripts.start(release.id12),
        *watch,
    )
    return Plan(
        f"serve release {release.id12} of {inventory.name}",
        steps,
        undone=_undone(situation),
        undo=_undo(scripts, recipe, situation),
        lock=scripts.lock(situation.found, break_lock=break_lock),
        unlock=(scripts.unlock(),),
    )


def plan_down(
    inventory: Inventory, *, break_lock: bool = False, nodes: tuple[Node, ...] | None = None
) -> Plan:
    """Leave nothing of the deployment but caches on *nodes*, by default all of them."""
    scripts = _Scripts(inventory, None, nodes)
    return Plan(
        f"take {inventory.name} down",
        (scripts.remove(),),
        lock=scripts.lock(lambda _: "any", break_lock=break_lock),
        unlock=(scripts.unlock(),),
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


def _undo(scripts: _Scripts, recipe: Recipe, situation: Situation) -> tuple[Step, ...]:
    """Back to the release that ran, if a whole one did, else to nothing."""
    if not situation.previous:
        return (scripts.remove(),)
    again = situation.previous == scripts.release.id12  # only a secret changed
    return (
        scripts.stop("stop the new release"),
        *(() if again else (scripts.discard(),)),
        scripts.prepare(),
        scripts.restore_secrets(),
        scripts.start(situation.previous),
        *(_watch(scripts.inventory, recipe, situation) if situation.previous_served else ()),
    )


class _Scripts:
    """The steps of one deployment; *release* is None where none is put up."""

    def __init__(
        self, inventory: Inventory, release: Release | None, nodes: tuple[Node, ...] | None = None
    ) -> None:
        self.inventory = inventory
        self._release = release
        self._nodes = inventory.nodes if nodes is None else nodes
        self._container = inventory.container

    @property
    def release(self) -> Release:
        if self._release is None:
            raise ValueError("this plan puts no release up")
        return self._release

    def lock(self, found: Callable[[str], str], *, break_lock: bool) -> tuple[Step, ...]:
        """First node, then the others: two runs at once never hold half of the nodes each."""

        def script(node: Node) -> Script:
            expected = found(node.name)
            return self._script("lock", node, FILE_LIMIT_S, container=self._container, expected=expected)

        title = "hold the lock"
        groups = [group for group in (self._nodes[:1], self._nodes[1:]) if group]
        steps = tuple(self._step("lock", title, script, group) for group in groups)
        return (self.break_lock(), *steps) if break_lock else steps

    def break_lock(self) -> Step:
        return self._step(
            "break-lock", "break the lock", lambda node: self._script("break-lock", node, FILE_LIMIT_S)
        )

    def unlock(self) -> Step:
        def script(node: Node) -> Script:
            return self._script("unlock", node, FILE_LIMIT_S, state=node.paths.state)

        return self._step("unlock", "let the lock go", script)

    def stop(self, title: str) -> Step:
        return self._step(
            "stop",
            title,
            lambda node: self._script("stop", node, DOCKER_LIMIT_S, deployment=self.inventory.name),
        )

    def stage(self, situation: Situation) -> tuple[Step, ...]:
        def upload(node: Node) -> Upload:
            folder = layout.release_folder(self.inventory, node, self.release)
            return Upload(folder, self.release.by_node[node.name])

        return (self._step("files", "put the release on the nodes", upload), self._prune(situation))

    def secrets(self, recipe: Recipe) -> Step:
        def secrets(node: Node) -> UploadSecrets:
            return UploadSecrets(layout.run_folder(self.inventory, node), (*recipe.secrets, TOKEN))

        return self._step("secrets", "put the secrets on the nodes", secrets)

    def restore_secrets(self) -> Step:
        def secrets(node: Node) -> UploadSecrets:
            return UploadSecrets(layout.run_folder(self.inventory, node), (TOKEN,), restore=True)

        return self._step("secrets", "put the old secrets back", secrets)

    def prepare(self) -> Step:
        return self._step(
            "prepare",
            "say what shall run",
            lambda node: self._script(
                "prepare", node, FILE_LIMIT_S, run_folder=layout.run_folder(self.inventory, node)
            ),
        )

    def start(self, id12: str) -> Step:
        def script(node: Node) -> Script:
            folder = layout.releases_folder(self.inventory, node) / id12
            return self._script("start", node, DOCKER_LIMIT_S, release_folder=folder)

        return self._step("start", f"start release {id12}", script)

    def discard(self) -> Step:
        def script(node: Node) -> Script:
            folder = layout.release_folder(self.inventory, node, self.release)
            return self._script("discard", node, FILE_LIMIT_S, release_folder=folder)

        return self._step("discard", "remove the new release's files", script)

    def _prune(self, situation: Situation) -> Step:
        keep = [self.release.id12, *([situation.previous] if situation.previous else [])]

        def script(node: Node) -> Script:
            return self._script(
                "prune", node, FILE_LIMIT_S, releases=layout.releases_folder(self.inventory, node), keep=keep
            )

        return self._step("prune", "remove older releases", script)

    def remove(self) -> Step:
        def script(node: Node) -> Script:
            return self._script(
                "remove",
                node,
                DOCKER_LIMIT_S,
                container=self._container,
                deployment=self.inventory.name,
                node_folder=layout.node_folder(self.inventory, node),
                run_folder=layout.run_folder(self.inventory, node),
            )

        return self._step("remove", "remove container and files", script)

    def _script(self, name: str, node: Node, limit_s: float, **values: object) -> Script:
        folder = layout.lock_folder(self.inventory, node)
        text = render_script(f"scripts/{name}.sh.j2", lock=folder, locks=node.paths.state / "locks", **values)
        return Script(text, limit_s)

    def _step(
        self,
        name: str,
        title: str,
        work: Callable[[Node], Script | Upload | UploadSecrets],
        nodes: tuple[Node, ...] | None = None,
    ) -> Step:
        chosen = self._nodes if nodes is None else nodes
        return Step(name, title, tuple(Action(node.name, title, work(node)) for node in chosen))
