"""The samples that a user asks for."""


def sample_range(text: str | None, first: int, available: int, default: int) -> slice:
    """The range of samples that `--samples` and `--first` choose.

    Args:
        text:      A number, "all", or None for `default` samples, or for all if there are fewer.
        first:     Index of the first sample.
        available: Number of samples that there are.
        default:   Number of samples if `text` is None.

    Raises:
        ValueError: there are no such samples.
    """
    if not 0 <= first < available:
        raise ValueError(f"--first {first} is not one of the samples 0..{available - 1}")
    if text is None:
        return slice(first, min(first + default, available))
    if text == "all":
        return slice(first, available)
    if not text.isdecimal() or not 1 <= int(text) <= available - first:
        raise ValueError(f"--samples {text} is neither 'all' nor a number in 1..{available - first}")
    return slice(first, first + int(text))
