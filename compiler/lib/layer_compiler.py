"""The interface of layer compilers; `compiler.layers.registry` lists one object for each class of layers."""

from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.tensors import Tensor
from concord.model.layers.layer import Layer
from concord.spec.config import Config
from concord.spec.memories import Mem


class LayerCompiler:
    """Compiles layers of one class into chains.

    Attributes:
        from_queue: Whether the chains can read the network's input directly from NetQ, where it can be read only once.
    """

    from_queue = False

    def problems(self, layer: Layer, config: Config) -> list[Reason]:
        """Each reason why a machine cannot run a layer."""
        raise NotImplementedError

    def reads(self, index: int) -> Mem | None:
        """The memory in which the tensor that enters at `index` must lie, or None if any memory will do."""
        return None

    def offsets(self, layer: Layer, config: Config) -> list[int] | None:
        """The first word of each entering tensor in the result, if that is their concatenation; otherwise None."""
        return None

    def emit(self, build: Build, layer: Layer, sources: list[Tensor], targets: tuple[Place, ...]):
        """Emit the chains of a layer that is not recurrent; they write the result to every target."""
        raise NotImplementedError

    def begin(self, build: Build, layer: Layer, source: Place):
        """Allocate the state of a recurrent layer, and emit the chains that set it before the first time step.

        Returns:
            The state, an argument of `step`; its attribute `hidden` is the place of the layer's result.
        """
        raise NotImplementedError

    def step(self, build: Build, layer: Layer, state, source: Place):
        """Emit the chains of one time step of a recurrent layer."""
        raise NotImplementedError
