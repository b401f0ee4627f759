"""Training data that several tests share."""

import numpy as np
import pytest
from concord.datasets import dataset


@pytest.fixture
def seeded():
    """PyTorch on one thread, with random numbers that are the same for each test."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(5)


@pytest.fixture(scope="session")
def vowels(tmp_path_factory):
    """Training data in their original form, made from the shipped test set."""
    folder, samples = tmp_path_factory.mktemp("vowels"), dataset.load("japanese-vowels")
    lines = ["@data"]
    for x, length, label in zip(samples.inputs.view(np.float16), samples.lengths, samples.labels, strict=True):
        channels = [",".join(str(float(value)) for value in channel) for channel in x[:length].T]
        lines.append(":".join([*channels, str(label + 1)]))
    for name in "TRAIN", "TEST":
        (folder / f"JapaneseVowels_{name}.ts").write_text("\n".join(lines))
    return folder
