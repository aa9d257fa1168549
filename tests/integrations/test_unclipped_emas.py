"""Promise 12: the EMA takes in gradients that are not clipped, also on the steps without ascent.

With `when=Every(2)` and clipping, which the Hugging Face Trainer does by default, it took in the
clipped gradient on every second step (issue 14, point 5).
"""

import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("lightning.pytorch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import lightning_problem
import trainer_problem
from family import batch
from torch.nn import functional as F

from friendly_sam import Every, FriendlySAM

IGNORED = (*lightning_problem.IGNORED, *trainer_problem.IGNORED)
pytestmark = [pytest.mark.filterwarnings(each) for each in IGNORED]
CLIP, STEPS = 1e-3, 6
STILL = 1e-12
"""A learning rate so small that every gradient is one at the first weights."""


def still(base, model, **options):
    for group in base.param_groups:
        group.update(lr=STILL, weight_decay=0.0)
    return FriendlySAM(base, model=model, when=Every(2), **options)


def assert_holds_raw_gradients(optimizer, net, parameters):
    ema = [torch.zeros_like(parameter) for parameter in parameters]
    for seed in range(STEPS):
        x, y = batch(seed % lightning_problem.BATCHES, lightning_problem.SIZE)
        gradients = torch.autograd.grad(F.cross_entropy(net(x), y), parameters)
        ema = [m.lerp(g, 1 - 0.9) for m, g in zip(ema, gradients, strict=True)]
    kept = optimizer.memory.tensors("ema")
    for parameter, m in zip(parameters, ema, strict=True):
        torch.testing.assert_close(kept[parameter], m, rtol=1e-6, atol=1e-9)


def test_the_ema_under_lightning_holds_gradients_that_are_not_clipped(tmp_path):
    class Still(lightning_problem.Mixed):
        def configure_optimizers(self):
            return still(torch.optim.SGD(self.parameters(), lr=STILL), self)

    model = Still(batchnorm=False)
    fit = lightning_problem.trainer(tmp_path, epochs=1, gradient_clip_val=CLIP)
    fit.fit(model, lightning_problem.loader())
    assert_holds_raw_gradients(fit.optimizers[0], model.net, list(model.parameters()))


@pytest.mark.parametrize("micro", [1, 2])
def test_the_ema_under_the_trainer_holds_gradients_that_are_not_clipped(tmp_path, micro):
    run = trainer_problem.trainer(
        tmp_path,
        sharp={"method": still},
        max_grad_norm=CLIP,
        num_train_epochs=1,
        per_device_train_batch_size=trainer_problem.SIZE // micro,
        gradient_accumulation_steps=micro,
        optim="sgd",
        learning_rate=STILL,
    )
    run.train()
    optimizer = run.optimizer.optimizer
    assert_holds_raw_gradients(optimizer, run.model.net, list(run.model.parameters()))
