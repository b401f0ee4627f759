"""Where the messages of a machine go that stands in front of another one."""

from collections.abc import Iterable

from concord.spec.messages import MessageKind


def routed(messages: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The messages for the host, and those for the machine behind: INPUT messages, which results become by PEER."""
    host, behind = [], []
    for message in messages:
        (behind if message[0] == MessageKind.INPUT else host).append(message)
    return host, behind
