"""Mixed precision with a GradScaler, clipping and a scheduler, in a loop of one's own.

`python examples/mixed_precision.py` (fp16 on a GPU as on a CPU; `--dtype bfloat16` needs no
scaler, and the disabled one then changes nothing).
"""

import argparse

import torch
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.nn import functional as F
from torch.utils.data import DataLoader

from friendly_sam import FriendlySAM


def train(rho: float, epochs: int, dtype: torch.dtype = torch.float16) -> float:
    """Return the test accuracy; a radius of 0 is SGD itself."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data, test = noisy_digits()
    model = network().to(device)
    optimizer = FriendlySAM(sgd(model), rho=rho, model=model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    for _ in range(epochs):
        for x, y in DataLoader(data, BATCH, shuffle=True):
            x, y = x.to(device), y.to(device)

            def backward(x=x, y=y):
                with torch.autocast(device, dtype):
                    loss = F.cross_entropy(model(x), y)
                scaler.scale(loss).backward()

            backward()  # the gradient at w
            if optimizer.ascent_due:
                with optimizer.perturbed(scaler=scaler):  # the weights are w + eps inside
                    backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # the descent gradient only
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        scheduler.step()
    return accuracy(model.cpu(), test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, rho in (("SGD", 0.0), (f"F-SAM, rho {RHO}", RHO)):
        result = train(rho, options.epochs, getattr(torch, options.dtype))
        print(f"{name}, {options.dtype}: {result:.1f} % of the test digits right")
