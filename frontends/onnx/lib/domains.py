"""Domains of operators."""

#: Those that ONNX itself defines.
STANDARD = ("", "ai.onnx")
#: Those that QONNX's operators have had; a file may describe them as functions.
QONNX = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")


def qualified(domain: str, kind: str) -> str:
    """The name of an operator with its domain, which is left out for those of ONNX itself."""
    return kind if domain in STANDARD else f"{domain}.{kind}"
