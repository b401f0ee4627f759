"""What the compiler knows of a kind of layer; `compiler.layers.registry` lists one object for each class of layers."""

from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.tensors import Tensor
from concord.model.layers.layer import Layer
from concord.spec.config import Config
from concord.spec.memories import Mem


class LayerCompiler:
    """How layers of a class become chains.

    Attributes:
        from_queue: Whether its chains can take the network's input out of NetQ, which is read once.
    """

    from_queue = False

    def problems(self, layer: Layer, config: Config) -> list[str]:
        """A sentence for each thing that keeps a layer from a machine."""
        raise NotImplementedError

    def reads(self, index: int) -> Mem | None:
        """The memory in which the tensor that enters at `index` must lie, or None where any memory will do."""
        return None

    def offsets(self, layer: Layer, config: Config) -> list[int] | None:
        """The first word of each entering tensor, where the result is no more than these tensors side by side."""
        return None

    def emit(self, build: Build, layer: Layer, sources: list[Tensor], targets: tuple[Place, ...]):
        """The chains of a layer that is not recurrent; every target gets its result."""
        raise NotImplementedError

    def begin(self, build: Build, layer: Layer, source: Place):
        """Room for the state of a recurrent layer, and the chains that set it before the first time step.

        Returns:
            What `step` takes; its attribute `hidden` is the place of the layer's result.
        """
        raise NotImplementedError

    def step(self, build: Build, layer: Layer, state, source: Place):
        """The chains of one time step of a recurrent layer."""
        raise NotImplementedError
