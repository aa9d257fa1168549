"""A model, data and trainers for the tests of the Hugging Face Trainer."""

import os

import torch
from family import assert_same, batch, network, weights
from leaving import leave
from torch import nn
from torch.nn import functional as F
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback, TrainingArguments

from friendly_sam.integrations.transformers import SharpnessAwareTrainer

BATCHES, SIZE = 6, 16
IGNORED = ("ignore:.*pin_memory.*:UserWarning", "ignore::FutureWarning:torch")


class Net(nn.Module):
    """What `Trainer` wants of a model: labels in, a dict with the loss out."""

    def __init__(self, dtype=torch.float64, **options):
        super().__init__()
        torch.manual_seed(0)
        self.net = network(dtype, **options)

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class InOrder(SharpnessAwareTrainer):
    """Without shuffling, so that a loop of one's own can see the same batches."""

    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


class Record(TrainerCallback):
    """What was logged."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.logs.append(logs)


def rows(batches=BATCHES, dtype=torch.float64):
    pairs = [batch(seed, SIZE, dtype) for seed in range(batches)]
    return [{"x": a, "labels": b} for x, y in pairs for a, b in zip(x, y, strict=True)]


def trainer(folder, kind=InOrder, model=None, *, sharp=None, dtype=torch.float64, **options):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": SIZE,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "weight_decay": 0.01,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return kind(
        model=Net(dtype) if model is None else model,
        args=TrainingArguments(**{**settings, **options}),
        train_dataset=rows(dtype=dtype),
        **(sharp or {}),
    )


def by_hand(reference, *, clip=0.0, autocast=None, micro=1, dtype=torch.float64):
    """The training of `reference` (a trainer that never ran) in a loop of one's own."""
    optimizer = reference.create_optimizer()
    steps = int(reference.args.num_train_epochs) * BATCHES
    scheduler = reference.create_scheduler(num_training_steps=steps)
    model, losses, norms = reference.model.train(), [], []

    def backward(seed):
        x, y = batch(seed, SIZE, dtype)
        total = 0.0
        for a, b in zip(x.chunk(micro), y.chunk(micro), strict=True):
            with torch.autocast("cpu", autocast, enabled=autocast is not None):
                loss = model(a, b)["loss"].float() if autocast else model(a, b)["loss"]
            (loss / micro).backward()
            total += loss.item() / micro
        return total

    for step in range(steps):
        optimizer.zero_grad()
        one_pass = optimizer.direction.starts_from != "gradient"
        if not optimizer.ascent_due:
            losses.append(backward(step % BATCHES))
            optimizer.skip()
        else:
            first = None if one_pass else backward(step % BATCHES)
            with optimizer.perturbed():
                second = backward(step % BATCHES)
            losses.append(second if first is None else first)
        gradients = [p.grad for p in model.parameters()]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        scheduler.step()
    return optimizer, losses, norms


def everything(model, optimizer):
    """Weights, buffers, the base's state and what the method remembers."""
    state = getattr(optimizer, "optimizer", optimizer).state_dict()["state"]
    kept = [torch.as_tensor(value) for each in state.values() for value in each.values()]
    return [*model.state_dict().values(), *kept]


def ddp_rank(rank, folder, expected):
    """One of two processes: it sees its half of each batch and must end where one process did."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["TEST_PORT"], GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    torch.set_num_threads(1)
    for micro in (1, 2):
        # Accelerate deals batches out in turns, so a step of both is one of the joined batches.
        run = trainer(
            folder,
            sharp={"rho": 0.1},
            per_device_train_batch_size=SIZE // 2 // micro,
            gradient_accumulation_steps=micro,
            ddp_backend="gloo",
        )
        run.train()
        assert run.accelerator.num_processes == 2
        mine = weights(run.model)
        for a, b in zip(mine, torch.load(expected), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)
    torch.save(mine, f"{folder}/rank{rank}.pt")
    torch.distributed.barrier()
    assert_same(mine, torch.load(f"{folder}/rank{1 - rank}.pt"))
    torch.distributed.destroy_process_group()
    leave()
