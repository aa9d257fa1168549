"""An epoch of the lab against a bare loop of the same network on batches that lie ready.

    python benchmarks/loop.py --root FOLDER_OF_CIFAR10

Interleaved in one process on one thread, by CPU time: what else the machine does then matters
little. The bare loop has no records, no loss and accuracy, no shuffling and no augmentation. A
second bare loop is the control: its ratio to the first shows the noise.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

from friendly_sam import SharpnessAware
from friendly_sam.lab.checkpoint import Checkpoints
from friendly_sam.lab.config import DataConfig, EngineConfig, MethodConfig, ModelConfig, RunConfig
from friendly_sam.lab.distributed import world
from friendly_sam.lab.engine import Trainer
from friendly_sam.lab.methods import resolve


class Bare:
    """The loop that everybody writes, on batches that lie ready."""

    def __init__(self, config, here):
        trainer = Trainer(config, here)
        self.model, self.optimizer = trainer.model, trainer.optimizer
        self.batches = [(b.images.clone(), b.labels.clone()) for b in trainer.batches.epoch(0)]

    def epoch(self):
        for x, y in self.batches:

            def closure(x=x, y=y):
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                return loss

            if isinstance(self.optimizer, SharpnessAware):
                self.optimizer.step(closure)
            else:
                self.optimizer.zero_grad()
                closure()
                self.optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", help="a folder with CIFAR-10 as parquet; without it, digits")
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=21)
    arguments = parser.parse_args()
    data = DataConfig(train_size=arguments.images, test_size=100, batch_size=64)
    network = "mlp"
    if arguments.root:
        data = replace(
            data, name="cifar10", root=arguments.root, flip=True, crop_padding=4, batch_size=128
        )
        network = "resnet8"
    print(f"{data.name}, {network}, batch {data.batch_size}, {arguments.images} images an epoch")
    for method in ("base", "fsam"):
        config = resolve(
            RunConfig(
                data=data,
                model=ModelConfig(name=network),
                method=MethodConfig(name=method),
                engine=EngineConfig(threads=1),
                output=tempfile.mkdtemp(),
            )
        )
        torch.set_num_threads(1)
        with world(config.engine) as here:
            lab, checkpoints = Trainer(config, here), Checkpoints(Path(config.output))
            sides = {
                "bare": Bare(config, here).epoch,
                "lab": lambda lab=lab, kept=checkpoints: lab._train_epoch(0, kept, None),
                "control": Bare(config, here).epoch,
            }
            times = {name: [] for name in sides}
            for _ in range(arguments.rounds + 1):
                for name, epoch in sides.items():
                    start = time.process_time()
                    epoch()
                    times[name].append(time.process_time() - start)
        middle = {name: statistics.median(values[1:]) for name, values in times.items()}
        ratios = {name: middle["bare"] / middle[name] for name in ("lab", "control")}
        print(
            f"{method:5} bare {1e3 * middle['bare']:8.1f} ms an epoch, throughput of the lab "
            f"{ratios['lab']:.3f} of it, of the control {ratios['control']:.3f}"
        )


if __name__ == "__main__":
    main()
