"""The example's trainer, which steps by itself, does what a loop with closures does."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from friendly_sam import Every, FriendlySAM

pytest.importorskip("sklearn")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    yield importlib.import_module("trainer_with_own_loop")
    for name in ("trainer_with_own_loop", "digits"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("when", [Every(1), Every(3)])
def test_the_trainer_equals_a_loop_with_closures(example, when):
    data, _ = example.noisy_digits()
    few = torch.utils.data.Subset(data, range(256))
    trainer = example.SharpnessAwareTrainer(example.network(batchnorm=True), few, 0.4)
    trainer.optimizer.when = when
    model = example.network(batchnorm=True)
    optimizer = FriendlySAM(example.sgd(model), rho=0.4, model=model, when=when)
    torch.manual_seed(1)
    trainer.train(2)

    def clip():
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)

    torch.manual_seed(1)
    for _ in range(2):
        batches = list(trainer.loader)
        for pair in zip(batches[::2], batches[1::2]):

            def closure(pair=pair):
                for images, labels in pair:
                    loss = torch.nn.functional.cross_entropy(model(images), labels) / 2
                    loss.backward()

            optimizer.step(closure, before_step=clip)
    for ours, theirs in zip(trainer.model.state_dict().values(), model.state_dict().values()):
        assert torch.equal(ours, theirs)
