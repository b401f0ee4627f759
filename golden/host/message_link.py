"""Routes the messages of a machine: INPUT messages go to the next machine, all others to the host."""

from collections.abc import Iterable

from concord.spec.host.messages import MessageKind


def routed(messages: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The messages for the host, and those for the machine behind: INPUT messages, which results become by PEER."""
    host, behind = [], []
    for message in messages:
        (behind if message[0] == MessageKind.INPUT else host).append(message)
    return host, behind
