"""At which radius fine-tuning collapses: AdamW, SAM and F-SAM, several seeds.

    python benchmarks/collapse_radii.py ../shared/data/oxford-pets

EfficientNet-Lite0 is fine-tuned on 480 images of 96 pixels for three epochs in batches of 32; a
seed chooses the images, the new head and the order. Printed as Markdown for each mode of BatchNorm,
method and radius: the mean loss of the last epoch's batches, the accuracy on 600 test images, and
how many of the runs collapsed, which means that more than half of all answers are one class.
`--blocks 16` trains all layers. `--kept FILE` keeps each run as it ends and goes on from there.
"""

import argparse
import itertools
import json
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional as F

from friendly_sam import SAM, FriendlySAM
from friendly_sam.lab.data import Batches, load
from friendly_sam.lab.models.efficientnet_lite import PIXEL_MEAN, PIXEL_STD, efficientnet_lite0
from friendly_sam.lab.models.freezing import freeze_batch_norm
from friendly_sam.lab.statistics import summarize

METHODS = {"AdamW": None, "SAM": SAM, "F-SAM": FriendlySAM}


def network_for(blocks, classes, seed):
    torch.manual_seed(seed)
    network = efficientnet_lite0(classes=classes).to(memory_format=torch.channels_last)
    network.train_only(blocks)
    return network


@cache
def features(root, blocks, seed):
    """Return what the frozen blocks make of training and test images, the labels, the classes."""
    data = load("pets", root=root, image_size=96, in_memory=True, train_size=480, seed=seed)
    data = type(data)(**{**vars(data), "mean": (PIXEL_MEAN,) * 3, "std": (PIXEL_STD,) * 3})
    network = network_for(blocks, len(data.classes), seed)
    found = []
    for split in (data.train, data.test):
        batches = list(
            Batches(split, data, batch_size=32, train=False, channels_last=True).epoch(0)
        )
        found.append(torch.cat([network.features(batch.images) for batch in batches]))
        found.append(torch.cat([batch.labels for batch in batches]))
    return *found, len(data.classes)


def run(root, mode, method, rho, seed, *, blocks, lr, epochs):
    """Fine-tune once and return what became of it."""
    x, y, test_x, test_y, classes = features(root, blocks, seed)
    whole = network_for(blocks, classes, seed)
    if mode == "frozen":
        freeze_batch_norm(whole)
    network = whole.upper.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    if METHODS[method] is not None:
        optimizer = METHODS[method](optimizer, rho=rho, model=network)
    for _ in range(epochs):
        order = torch.randperm(len(x)).split(32)
        losses = [step(network, optimizer, x[rows], y[rows]) for rows in order]
    network.eval()
    with torch.no_grad():
        answers = torch.cat([network(piece).argmax(1) for piece in test_x.split(100)])
    return {
        "loss": sum(losses) / len(losses),
        "accuracy": 100 * (answers == test_y).float().mean().item(),
        "most": 100 * answers.bincount().max().item() / len(answers),
    }


def step(network, optimizer, x, y):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x.contiguous(memory_format=torch.channels_last)), y)
        loss.backward()
        return loss

    return optimizer.step(closure).item()


def wanted(chosen):
    """Yield mode, method, radius and seed of every run."""
    for mode, method in itertools.product(chosen.modes, chosen.methods):
        radii = [0.0] if METHODS[method] is None else chosen.radii
        for rho, seed in itertools.product(radii, range(chosen.seeds)):
            yield mode, method, rho, seed


def known(path):
    if path is None or not path.exists():
        return {}
    with path.open() as file:
        return {tuple(key): value for key, value in map(json.loads, file)}


def table(found):
    """Yield the rows, one for each mode, method and radius."""
    yield "| BatchNorm | method | radius | training loss | test accuracy, % | collapsed |"
    yield "|---|---|---:|---:|---:|---:|"
    for (mode, method, rho), runs in itertools.groupby(found.items(), key=lambda item: item[0][:3]):
        results = [result for _, result in runs]
        loss, accuracy = (summarize([r[name] for r in results]) for name in ("loss", "accuracy"))
        collapsed = sum(result["most"] > 50 for result in results)
        yield (
            f"| {mode} | {method} | {rho or ''} | {loss.mean:.2f} ± {loss.std:.2f} "
            f"| {accuracy.mean:.1f} ± {accuracy.std:.1f} | {collapsed} of {len(results)} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="a folder of images or parquet files")
    parser.add_argument("--modes", nargs="+", default=["frozen", "training"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--radii", type=float, nargs="+", default=[0.01, 0.02, 0.05])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--kept", type=Path, help="a file of results, one line each")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    how = {"blocks": chosen.blocks, "lr": chosen.lr, "epochs": chosen.epochs}
    done, found = known(chosen.kept), {}
    for key in wanted(chosen):
        place = (*key, *how.values())
        if place not in done:
            done[place] = run(chosen.root, *key, **how)
            if chosen.kept is not None:
                with chosen.kept.open("a") as file:
                    file.write(json.dumps([place, done[place]]) + "\n")
        found[key] = done[place]
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
