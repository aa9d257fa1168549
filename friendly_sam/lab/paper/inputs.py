"""What runs need from elsewhere, looked for once: images, and networks with pretrained weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.data.load import open_data
from friendly_sam.lab.models.registry import MODELS, build


def look_for_inputs(runs: Iterable[RunConfig]) -> None:
    """Open every data set and pretrained network of runs; the first that is missing raises.

    Otherwise each run would find out for itself, and a hub without a connection be asked again and
    again.
    """
    wanted = list(runs)
    for name, root in dict.fromkeys((run.data.name, run.data.root) for run in wanted):
        open_data(name, None if root is None else Path(root))
    for network in dict.fromkeys(run.model.name for run in wanted):
        if network not in MODELS or MODELS[network].pixels is not None:
            build(network, classes=2, in_channels=3, image_size=224)
