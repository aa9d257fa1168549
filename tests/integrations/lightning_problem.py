"""A module, data and trainers for the Lightning tests; `spawn` imports this by name too."""

import logging
import os

import torch
from family import FAMILY, assert_same, batch, momentum, network, weights
from leaving import leave
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from friendly_sam.integrations.lightning import SharpnessAwareMixin

BATCHES, SIZE = 6, 16
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
IGNORED = (
    "ignore:.*does not have many workers:UserWarning",
    "ignore:.*tensorboardX:UserWarning",
    "ignore:.*is smaller than the logging interval:UserWarning",
    "ignore:.*GPU available but not used:UserWarning",
    "ignore:.*Checkpoint directory.*exists and is not empty:UserWarning",
    "ignore::DeprecationWarning:lightning",
    "ignore::FutureWarning:lightning",
    "ignore:.isinstance.treespec, LeafSpec:FutureWarning",
)


class Rows(Dataset):
    """`batch(0)`, `batch(1)`, ... one after another, so that a loader gives them back."""

    def __init__(self, batches=BATCHES, size=SIZE, dtype=torch.float64):
        pairs = [batch(seed, size, dtype) for seed in range(batches)]
        self.x = torch.cat([x for x, _ in pairs])
        self.y = torch.cat([y for _, y in pairs])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def loader(size=SIZE, dtype=torch.float64, batches=BATCHES, sampler=None):
    return DataLoader(Rows(batches, SIZE, dtype), batch_size=size, sampler=sampler)


class Plain(LightningModule):
    """The wrapper as it is, without the mix-in."""

    def __init__(self, method="F-SAM", dtype=torch.float64, batchnorm=True, **options):
        super().__init__()
        torch.manual_seed(0)
        self.net = network(dtype, batchnorm=batchnorm)
        self.method, self.options, self.seen = method, options, []

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.seen.append(loss.item())
        return loss

    def configure_optimizers(self):
        base = momentum(self.parameters())
        optimizer = FAMILY[self.method](base, **{"model": self, **self.options})
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Mixed(SharpnessAwareMixin, Plain):
    pass


class Record(Callback):
    """What Lightning tells callbacks."""

    def __init__(self):
        self.losses, self.norms = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())

    def on_before_optimizer_step(self, trainer, module, optimizer):
        gradients = [p.grad for p in module.parameters()]
        self.norms.append(torch.nn.utils.get_total_norm(gradients).item())


def trainer(folder, epochs=2, **options):
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": epochs,
        "default_root_dir": str(folder),
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Trainer(**{**settings, **options})


def by_hand(model, steps, *, clip=None, scaler=None, autocast=None, dtype=torch.float64):
    """The same training in a loop of one's own; returns optimizer and losses."""
    (optimizer,), (scheduler,) = model.configure_optimizers()
    model.train()
    losses = []
    for step in range(steps):
        x, y = batch(step % BATCHES, SIZE, dtype)

        def backward(x=x, y=y):
            with torch.autocast("cpu", autocast, enabled=autocast is not None, cache_enabled=False):
                loss = F.cross_entropy(model.net(x), y)
            (loss if scaler is None else scaler.scale(loss)).backward()
            return loss

        optimizer.zero_grad()
        losses.append(backward().item())
        if optimizer.ascent_due:
            with optimizer.perturbed(scaler=scaler):
                backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        scheduler["scheduler"].step()
    return optimizer, losses


class Local(Mixed):
    """Each process climbs along the gradient of its own half of the batch."""

    def configure_optimizers(self):
        self.options.update(model=self.trainer.strategy.model, sync_ascent=False)
        return super().configure_optimizers()


class LocalPlain(Local):
    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(optimizer_closure)  # what the core does with the closure


def ddp_rank(rank, folder, expected):
    """One of two processes: it sees its half of each batch and must end where one process did."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", GROUP_RANK="0",
        LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["TEST_PORT"],
        TORCHELASTIC_RUN_ID="test", GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    torch.set_num_threads(1)
    halves = [i for i in range(BATCHES * SIZE) if (i % SIZE < SIZE // 2) == (rank == 0)]

    def trained(kind, accumulate=1):
        model = kind(batchnorm=False)
        fit = trainer(
            folder,
            strategy="ddp",
            devices=2,
            use_distributed_sampler=False,
            accumulate_grad_batches=accumulate,
        )
        fit.fit(model, loader(SIZE // 2 // accumulate, sampler=halves))
        return weights(model)

    for model in (trained(Plain), trained(Mixed), trained(Mixed, accumulate=2)):
        for mine, one in zip(model, torch.load(expected), strict=True):
            torch.testing.assert_close(mine, one, rtol=0, atol=1e-12)
    local = trained(Local)
    assert_same(local, trained(LocalPlain))
    assert not torch.equal(local[0], model[0]), "the local perturbation is another one"
    leave()
