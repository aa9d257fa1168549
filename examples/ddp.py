r"""DistributedDataParallel, with one perturbation for all processes or one for each.

    torchrun --nproc-per-node 2 examples/ddp.py

On several machines the same command runs on each, with the address of the first:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
        examples/ddp.py

Global (the default): the ascent gradient is averaged over processes, so training is that of one
process on the joined batch. Local (`sync_ascent=False`): each process is perturbed along the
gradient of its own part of the batch and keeps its own EMA (m-sharpness); one all-reduce is saved.
A checkpoint holds the EMA of the process that writes it: with local ascent, save one for each
process.

"""

import argparse

import torch
import torch.distributed as dist
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from friendly_sam import FriendlySAM


def train(rho: float, epochs: int, local: bool = False) -> float:
    """Return the test accuracy; a radius of 0 is SGD itself."""
    data, test = noisy_digits()
    model = DistributedDataParallel(network())
    optimizer = FriendlySAM(sgd(model), rho=rho, model=model, sync_ascent=not local)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH // dist.get_world_size(), sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:

            def closure(x=x, y=y):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
        scheduler.step()
    return accuracy(model.module, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "nccl" and a device per process on GPUs
    for name, rho, local in (
        ("SGD", 0.0, False),
        (f"F-SAM, rho {RHO}, global perturbation", RHO, False),
        (f"F-SAM, rho {RHO}, local perturbation", RHO, True),
    ):
        result = train(rho, epochs, local)
        if dist.get_rank() == 0:
            print(f"{name}, {dist.get_world_size()} processes: {result:.1f} % right")
    dist.destroy_process_group()
