"""The GcsClient of Ray 2.60, as far as `get_all_node_info` goes."""

from __future__ import annotations

from dataclasses import dataclass

from lab_stub.wire import NO_TOKEN, Message, UnauthenticatedError, ask, auth_required, token

from .exceptions import AuthenticationError, RpcError


class NodeID(bytes):
    def __repr__(self) -> str:
        return f"NodeID({self.hex()})"


@dataclass(frozen=True)
class GcsNodeInfo:
    node_id: bytes
    state: int  # 0 = alive
    node_manager_address: str
    resources_total: dict[str, float]


class GcsClient:
    def __init__(self, address: str) -> None:
        if auth_required() and not token():
            raise AuthenticationError(NO_TOKEN)
        self.address = address
        self._ask()

    def get_all_node_info(self, timeout: float | None = None) -> dict[NodeID, GcsNodeInfo]:
        return {NodeID.fromhex(node["id"]): _info(node) for node in self._ask(timeout)["nodes"]}

    def _ask(self, timeout: float | None = None) -> Message:
        try:
            return ask(self.address, {"op": "nodes"}, timeout or 5)
        except UnauthenticatedError as error:
            raise AuthenticationError(str(error)) from error
        except OSError as error:
            raise RpcError(
                f"Timed out while waiting for GCS to become available at {self.address}"
            ) from error


def _info(node: Message) -> GcsNodeInfo:
    return GcsNodeInfo(bytes.fromhex(node["id"]), node["state"], node["ip"], node["resources"])
