"""The source of a twin in the place of a machine: results of the file that was written."""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
from concord.golden.lib.float16 import is_nan
from concord.twin.source.frameworks import Framework


def installed(framework: Framework) -> bool:
    """Whether twins of a framework run here."""
    return find_spec(framework) is not None


class TwinSource:
    """A twin that is imported from its file.

    Args:
        path:      The source, as `nnp twin` has written it.
        framework: What it needs.
    """

    def __init__(self, path: Path, framework: Framework):
        spec = spec_from_file_location(path.stem, path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        self._twin, self._framework = module.Twin(), framework

    def infer(self, samples: np.ndarray) -> np.ndarray:
        """Outputs uint16[batch, outputs] of input patterns uint16[batch, ...]."""
        results = _RUN[self._framework](self._twin, np.ascontiguousarray(samples).view(np.float16))
        return np.ascontiguousarray(results.astype(np.float16)).view(np.uint16)


def differing(a: np.ndarray, b: np.ndarray) -> int:
    """Number of bits that differ; a NaN is equal to any NaN."""
    bits = np.where(is_nan(a) & is_nan(b), 0, a ^ b)
    return int(np.bitwise_count(bits).sum())


def _torch(twin, samples: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        return twin(torch.from_numpy(samples.copy())).numpy()


_RUN = {
    Framework.NUMPY: lambda twin, samples: twin(samples),
    Framework.TORCH: _torch,
    Framework.TENSORFLOW: lambda twin, samples: twin(samples).numpy(),
}
