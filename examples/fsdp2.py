"""FSDP2: sharded parameters, and a checkpoint by torch.distributed.checkpoint.

    torchrun --nproc-per-node 2 examples/fsdp2.py

The norm of the perturbation is that of all shards together, so the result is that of the
unsharded model. The EMA is sharded like the parameters.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

from friendly_sam import FriendlySAM


class Training:
    """A sharded model with its optimizer and data."""

    def __init__(self, rho: float) -> None:
        self.data, self.test = noisy_digits()
        self.model = network()
        for layer in self.model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = FriendlySAM(sgd(self.model), rho=rho, model=self.model)

    def run(self, epochs: range) -> None:
        """Train; an epoch's order depends on its number alone."""
        sampler = DistributedSampler(self.data)
        loader = DataLoader(self.data, BATCH // dist.get_world_size(), sampler=sampler)
        for epoch in epochs:
            sampler.set_epoch(epoch)
            for x, y in loader:

                def closure(x=x, y=y):
                    loss = F.cross_entropy(self.model(x), y)
                    loss.backward()
                    return loss

                self.optimizer.step(closure)

    def state(self) -> dict:
        """Return what a checkpoint holds: weights, momentum, EMAs, counters."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load(self, folder: str) -> None:
        """Go on from a checkpoint."""
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

    def weights(self) -> list[torch.Tensor]:
        """Return the whole weights, gathered from the shards."""
        return [p.full_tensor().detach().clone() for p in self.model.parameters()]


def main(epochs: int, folder: str) -> None:
    say = print if dist.get_rank() == 0 else lambda *_: None
    for name, rho in (("SGD", 0.0), (f"F-SAM, rho {RHO}", RHO)):
        training = Training(rho)
        training.run(range(epochs // 2))
        dcp.save(training.state(), checkpoint_id=f"{folder}/{rho}")
        training.run(range(epochs // 2, epochs))
        resumed = Training(rho)
        resumed.load(f"{folder}/{rho}")
        resumed.run(range(epochs // 2, epochs))
        same = all(map(torch.equal, training.weights(), resumed.weights()))
        result = accuracy(training.model, training.test)
        say(f"{name}, {dist.get_world_size()} shards: {result:.1f} % right; resumed run:",
            "the same, bit for bit" if same else "DIFFERENT")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folders)
    main(epochs, folders[0])
    dist.destroy_process_group()
