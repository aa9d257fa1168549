"""An epoch of the lab on CIFAR-10 against a bare loop on batches that lie ready.

    python benchmarks/loop.py --root FOLDER_OF_CIFAR10

What `fsam bench epoch` does on enlarged digits, on real images.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from friendly_sam.lab.bench.epoch import MEASURED, compare, setting
from friendly_sam.lab.bench.tables import epoch
from friendly_sam.lab.report.tables import plain_table
from friendly_sam.lab.training.distributed import world


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", required=True, help="a folder with CIFAR-10 as parquet")
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = {"network": "resnet8", "images": options.images, "size": 32, "batch": 128, "threads": 1}
    rows = {}
    for title, method in MEASURED.items():
        with tempfile.TemporaryDirectory() as folder:
            config = setting(method, folder, **size)
            data = replace(config.data, name="cifar10", root=options.root)
            config = replace(config, data=data)
            with world(config.engine) as here:
                rows[title] = compare(config, here, options.rounds, 1, Path(folder))
    for name, note, table in epoch({**size, "rounds": options.rounds, "rows": rows}):
        print(f"{name}\n{note}\n\n{plain_table(table)}\n")


if __name__ == "__main__":
    main()
