"""Loss and accuracy over many batches, summed on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from friendly_sam.lab.errors import RunError
from friendly_sam.lab.training.distributed import World


class Tally:
    """Loss and hits over many batches; reading them is the only time the host waits."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(2, device=device)
        """Sum of losses, number of right answers."""
        self.count = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count in a batch with its mean loss."""
        hits = (logits.detach().argmax(dim=1) == labels).sum()
        self.sums += torch.stack((loss.detach().float() * len(labels), hits.float()))
        self.count += len(labels)

    def check(self, where: str) -> None:
        """Stop a run whose loss is no longer a number."""
        if self.count and not torch.isfinite(self.sums[0]).item():
            raise RunError(
                f"the loss is {self.sums[0].item()} {where}; "
                "a smaller base.lr or method.rho may help"
            )

    def read(self, here: World) -> tuple[float, float]:
        """Return mean loss and accuracy in percent, over all processes."""
        totals = torch.cat((self.sums, self.sums.new_tensor([float(self.count)])))
        loss, hits, count = here.sum(totals).tolist()
        return loss / max(count, 1), 100 * hits / max(count, 1)
