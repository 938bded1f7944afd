"""What a single value must look like. Each check raises pydantic's error with our `wanted` and `hint`."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from collections.abc import Callable

NODE_NAME = r"[a-z0-9][a-z0-9-]{0,62}"
_SYSTEM_FOLDER = re.compile(
    r"/(?:bin|boot|dev|etc|home|lib|lib64|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)/*"
    r"|/(?:proc|sys|dev|spark-deploy)/.*"
)
# A comma or a quote would end a field of `docker run --mount` (CSV), a colon one of `--volume`.
_PATH_REFUSED = re.compile(r"""[\x00-\x1f\x7f-\x9f\u2028\u2029,:"\\]""")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
    r"|sha256:[0-9a-f]{64}",
    re.ASCII,
)
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_SSH = re.compile(
    r"(?:[A-Za-z0-9_][\w.+-]*\$?@)?(?:[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\])(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)


def refuse(wanted: str, hint: str = "") -> PydanticCustomError:
    """Give the error for a value of the right type and the wrong content."""
    return PydanticCustomError("wanted", "{wanted}", {"wanted": wanted, "hint": hint})


def _checked(check: Callable[[Any], None]) -> AfterValidator:
    def run(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(run)


def _match(pattern: str, wanted: str) -> AfterValidator:
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> None:
        if not compiled.fullmatch(value):
            raise refuse(wanted)

    return _checked(check)


def _ssh(value: str) -> None:
    match = _SSH.fullmatch(value)
    if not match or not 0 < int(match["port"] or 22) < 65536:
        raise refuse("HOST, user@HOST, user@HOST:port, or a Host of ~/.ssh/config")


def _bind(value: str) -> None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise refuse(
            "an address of the head, such as 127.0.0.1",
            "0.0.0.0 for all; vLLM's API key does not guard every path",
        ) from None


def fabric_interface(ip: str) -> ipaddress.IPv4Interface:
    """Give a fabric address with its prefix, /24 where none is written. Raises ValueError: it is none."""
    return ipaddress.IPv4Interface(ip if "/" in ip else f"{ip}/24")


def _fabric_ip(value: str) -> None:
    try:
        interface = fabric_interface(value)
    except ValueError:
        raise refuse(
            "an IPv4 address, such as 192.168.200.1 (a prefix other than /24: 192.168.200.1/30)"
        ) from None
    address, network = interface.ip, interface.network
    if address.is_loopback or address.is_multicast or address.is_unspecified:
        raise refuse("an address that the other nodes can reach over the fabric")
    if address.is_link_local:
        raise refuse(
            "a static address",
            "link-local addresses change at a reboot; give the port one of its own (netplan)",
        )
    if network.prefixlen < 31 and address in (network.network_address, network.broadcast_address):
        raise refuse(f"a host address in {network}")


def _node_path(value: str) -> None:
    """Refuse what is not one folder on a node, absolute or below `~/`."""
    if not value.startswith(("/", "~/")) or value in ("/", "~/"):
        raise refuse("an absolute path, or one that begins with ~/")
    if _PATH_REFUSED.search(value):
        raise refuse("a path without commas, colons, double quotes, backslashes and control characters")
    if any(part in ("", ".", "..") for part in value.rstrip("/").split("/")[1:]):
        raise refuse("a path without empty, . and .. parts")


def _model(value: str) -> None:
    if not value.startswith("/"):
        if not _HUB.fullmatch(value) or ".." in value or "--" in value:
            raise refuse("a Hub id such as Qwen/Qwen3.5-122B-A10B-FP8, or an absolute path on every node")
        return
    _node_path(value)
    if _SYSTEM_FOLDER.fullmatch(value):
        raise refuse(
            "a folder of its own",
            "it is mounted at the same path in the container, over what the image has there",
        )
    if "/snapshots/" in value:
        raise refuse(
            "a Hub id, or a plain folder",
            "a Hub snapshot is a folder of links to ../../blobs; write the Hub id",
        )


def _image(value: str) -> None:
    if not _IMAGE.fullmatch(value):
        raise refuse("name:tag, name@sha256:<64 hex digits>, or an image id sha256:<64 hex digits>")


def _port(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1024 <= value <= 65535:
        raise refuse("a whole number from 1024 to 65535")


def _argument(value: str) -> None:
    if not value or "\0" in value:
        raise refuse("a word of the command")


Text = Annotated[str, Field(strict=True)]
DeploymentName = Annotated[
    Text, _match(r"[a-z0-9][a-z0-9-]{0,39}", "1 to 40 of a-z, 0-9 and -, no - in front")
]
NodeName = Annotated[Text, _match(NODE_NAME, "1 to 63 of a-z, 0-9 and -, no - in front")]
InterfaceName = Annotated[
    Text,
    _match(r"[A-Za-z0-9][\w.-]{0,14}", "an interface name of at most 15 characters, such as enp1s0f1np1"),
]
HcaName = Annotated[Text, _match(r"[A-Za-z0-9][\w.-]{0,63}", "the name of an HCA, such as rocep1s0f1")]
SecretName = Annotated[
    Text, _match(r"[A-Za-z_]\w{0,127}", "the name of an environment variable, without a value")
]
RecipeReference = Annotated[
    Text, _match(r"[\w~./][\w ~./@%+=-]{0,250}", "the name of a recipe, or the path of its file")
]
SshTarget = Annotated[Text, _checked(_ssh)]
BindAddress = Annotated[Text, _checked(_bind)]
FabricAddress = Annotated[Text, _checked(_fabric_ip)]
NodeFolder = Annotated[Text, _checked(_node_path)]
ModelReference = Annotated[Text, _checked(_model)]
ImageReference = Annotated[Text, _checked(_image)]
CommandWord = Annotated[Text, _checked(_argument)]
Port = Annotated[Any, _checked(_port)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
