"""A few steps of training of a twin in PyTorch."""


def train(twin, inputs, labels, *, steps: int, rate: float, share: float):
    """Train all parameters by Adam, and assert that the loss falls.

    Args:
        twin:   A twin that can be trained.
        inputs: Its inputs.
        labels: A class for each of them.
        steps:  Number of steps.
        rate:   Learning rate of each parameter, to which `share` of its mean magnitude is added.
        share:  This share.
    """
    import torch

    optimizer, losses = torch.optim.Adam([{"params": [each], "lr": rate + share * each.abs().mean().item()}
                                          for each in twin.parameters()]), []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(twin(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
