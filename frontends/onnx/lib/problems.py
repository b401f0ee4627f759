"""Reasons why a node of a file cannot be computed."""

from dataclasses import dataclass
from pathlib import Path


class Refused(ValueError):
    """A node that the machine cannot compute.

    Args:
        reason: What is wrong, a clause.
        advice: What to do, a clause.
    """

    def __init__(self, reason: str, advice: str):
        super().__init__(f"{reason}; {advice}")
        self.reason, self.advice = reason, advice


class OpenSteps(ValueError):
    """A file leaves the number of time steps open, and is not computed like that; it may be for a given number."""


class Misplaced(Refused):
    """A node that the machine could compute if its input lay in another way; it may follow from an earlier refusal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A refused node.

    Attributes:
        node:   Name of the node in its file.
        kind:   ONNX operator.
        reason: What is wrong.
        advice: What to do.
    """

    node: str
    kind: str
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.node} ({self.kind}): {self.reason}; {self.advice}"


def refusal(path: Path, problems: list[Problem], nodes: int, hint: str = "", *, open_time: bool = False) -> ValueError:
    """One error that lists every node that cannot be computed.

    Args:
        path:     The file.
        problems: These nodes.
        nodes:    Number of nodes in the file.
        hint:     Sentence on what causes the problems.
        open_time: Whether the file leaves the number of time steps open.
    """
    count = "1 node" if len(problems) == 1 else f"{len(problems)} nodes"
    lines = "".join(f"\n  {problem}" for problem in problems)
    kind = OpenSteps if open_time else ValueError
    return kind(f"{path}: {count} of {nodes} cannot be computed{lines}{hint and f'{chr(10)}{hint}'}")
