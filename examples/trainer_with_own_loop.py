"""A trainer that owns its loop, made sharpness-aware by a subclass of three methods.

`Trainer` stands for the trainers of detection libraries: its `train()` calls `optimizer.step()`
itself, after unscaling and clipping, and lets subclasses replace what builds the optimizer, what
prepares a batch and what takes the step. `python examples/trainer_with_own_loop.py`.
"""

import argparse

import torch
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from friendly_sam import FriendlySAM

Batch = list[Tensor]


class Trainer:
    """A trainer as a library ships it: it knows nothing of SAM."""

    accumulate = 2
    """Batches per step."""

    def __init__(self, model: nn.Module, data: Dataset[tuple[Tensor, ...]]) -> None:
        self.model, self.loader = model, DataLoader(data, BATCH // self.accumulate, shuffle=True)
        self.optimizer = self.build_optimizer()
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return sgd(self.model)

    def preprocess_batch(self, batch: Batch) -> Batch:
        return batch

    def loss(self, batch: Batch) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.model(images), labels) / self.accumulate

    def optimizer_step(self) -> None:
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=10.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for number, batch in enumerate(self.loader, start=1):
                self.scaler.scale(self.loss(self.preprocess_batch(batch))).backward()
                if number % self.accumulate == 0:
                    self.optimizer_step()


class SharpnessAwareTrainer(Trainer):
    """The same trainer with Friendly SAM: the batches of a step are kept for its second pass."""

    def __init__(self, model: nn.Module, data: Dataset[tuple[Tensor, ...]], rho: float) -> None:
        self.rho, self.batches = rho, list[Batch]()
        super().__init__(model, data)

    def build_optimizer(self) -> FriendlySAM:
        return FriendlySAM(super().build_optimizer(), rho=self.rho, model=self.model)

    def preprocess_batch(self, batch: Batch) -> Batch:
        batch = super().preprocess_batch(batch)
        self.batches.append(batch)
        return batch

    def optimizer_step(self) -> None:
        if self.optimizer.ascent_due:
            with self.optimizer.perturbed(scaler=self.scaler):  # weights are w + ε inside
                for batch in self.batches:
                    self.scaler.scale(self.loss(batch)).backward()
        else:
            self.optimizer.skip(scaler=self.scaler)  # the EMA takes in unclipped gradients
        self.batches.clear()
        super().optimizer_step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, test = noisy_digits()
    for name, rho in (("SGD", 0.0), (f"F-SAM, rho {RHO}", RHO)):
        trainer = SharpnessAwareTrainer(network(), data, rho) if rho else Trainer(network(), data)
        trainer.train(options.epochs)
        print(f"{name}: {accuracy(trainer.model, test):.1f} % of the test digits right")
