"""skorch: an optimizer function instead of a class. `python examples/skorch_classifier.py`.

Needs skorch (pip install skorch).
"""

import argparse

import torch
from digits import BATCH, EPOCHS, RHO, network, noisy_digits
from torch import nn

from friendly_sam import FriendlySAM


def train(rho: float, epochs: int, seed: int = 0) -> float:
    """Return the test accuracy; a radius of 0 is SGD itself."""
    from skorch import NeuralNetClassifier

    module = network(seed, batchnorm=False)

    def optimizer(parameters, lr):
        base = torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=5e-4)
        return FriendlySAM(base, rho=rho, model=module)

    data, test = noisy_digits(seed=seed)
    arrays = [tensor.numpy() for tensor in data.tensors]
    torch.manual_seed(seed)
    net = NeuralNetClassifier(
        module, criterion=nn.CrossEntropyLoss, optimizer=optimizer,
        lr=0.05, max_epochs=epochs, batch_size=BATCH, iterator_train__shuffle=True,
        train_split=None, verbose=0,
    )  # fmt: skip
    net.fit(*arrays)
    images, labels = (tensor.numpy() for tensor in test.tensors)
    return 100 * float((net.predict(images) == labels).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, rho in (("SGD", 0.0), (f"F-SAM, rho {RHO}", RHO)):
        print(f"{name}: {train(rho, options.epochs):.1f} % of the test digits right")
