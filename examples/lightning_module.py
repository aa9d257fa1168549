"""Lightning, automatic and manual optimization. `python examples/lightning_module.py`.

Needs the extras lab and lightning.
"""

import argparse
import logging
import warnings

import lightning.pytorch as pl
import torch
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.nn import functional as F
from torch.utils.data import DataLoader

from friendly_sam import FriendlySAM
from friendly_sam.integrations.lightning import SharpnessAwareMixin


class Classifier(SharpnessAwareMixin, pl.LightningModule):
    """Automatic optimization: the mix-in and `configure_optimizers` are all that changes."""

    def __init__(self, rho: float, epochs: int) -> None:
        super().__init__()
        self.net = network()
        self.rho, self.epochs = rho, epochs

    def training_step(self, batch, batch_idx):
        """Return the loss; the mix-in calls this at w and at w + eps and logs the first."""
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        """Wrap the base optimizer; `model=self` is for BatchNorm."""
        optimizer = FriendlySAM(sgd(self), rho=self.rho, model=self)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)]


class ManualClassifier(Classifier):
    """Manual optimization: hand `step` a closure; a bare `step()` would have no second gradient."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        """Step once; the closure is called at w and at w + eps."""

        def closure():
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.manual_backward(loss)
            return loss

        self.log("loss", self.optimizers().step(closure), on_epoch=True)

    def on_train_epoch_end(self):
        """Schedulers are the module's own business under manual optimization."""
        self.lr_schedulers().step()


def train(kind: type[Classifier], rho: float, epochs: int, **options) -> tuple[float, Classifier]:
    """Return the test accuracy and the module."""
    data, test = noisy_digits()
    module = kind(rho, epochs)
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": epochs,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **options,
    }
    pl.Trainer(**settings).fit(module, DataLoader(data, BATCH, shuffle=True))
    return accuracy(module.net, test), module


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers")
    for name, kind, rho, options in (
        ("SGD", Classifier, 0.0, {}),
        (f"F-SAM, rho {RHO}", Classifier, RHO, {}),
        (f"F-SAM, rho {RHO}, manual", ManualClassifier, RHO, {}),
        (f"F-SAM, rho {RHO}, bf16, clipped", Classifier, RHO,
         {"precision": "bf16-mixed", "gradient_clip_val": 5.0}),
    ):  # fmt: skip
        result, _ = train(kind, rho, epochs, **options)
        print(f"{name}: {result:.1f} % of the test digits right")
