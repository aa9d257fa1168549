"""Every recipe of the library, with the settings whose arithmetic differs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from friendly_sam import (
    ASAM,
    GSAM,
    MSAM,
    SAM,
    WSAM,
    DiagonalFisher,
    FisherSAM,
    FriendlySAM,
    LookSAM,
    ParameterScaled,
    SharpnessAware,
    VaSSO,
)

Recipe = Callable[..., SharpnessAware]
"""From a base optimizer, a radius and options, the optimizer."""

RECIPES: dict[str, Recipe] = {
    "SAM": SAM,
    "ASAM": ASAM,
    "FisherSAM": FisherSAM,
    "F-SAM": FriendlySAM,
    "F-SAM authors": partial(FriendlySAM, variant="authors"),
    "F-SAM debiased": partial(FriendlySAM, variant="debiased"),
    "F-SAM projection": partial(FriendlySAM, sigma="projection"),
    "F-ASAM": partial(FriendlySAM, geometry=ParameterScaled()),
    "F-FisherSAM": partial(FriendlySAM, geometry=DiagonalFisher()),
    "VaSSO": VaSSO,
    "MSAM": MSAM,
    "GSAM": GSAM,
    "WSAM": WSAM,
    "LookSAM": LookSAM,
}
