"""Friendly Sharpness-Aware Minimization and its family, for PyTorch, over any base optimizer.

One formula with two axes, ε = ρ T² d / ||T d||: a direction d says which way to climb, a geometry
T what the ball looks like. `SharpnessAware` puts them together over a base optimizer; `SAM`,
`ASAM`, `FisherSAM` and `FriendlySAM` are the usual combinations.
"""

from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.directions import BatchNoise, Direction, Gradient, Residual
from friendly_sam.geometries import DiagonalFisher, Euclidean, Geometry, ParameterScaled
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.radius import RadiusSchedule
from friendly_sam.recipes import ASAM, SAM, FisherSAM, FriendlySAM

__version__ = "0.1.0"

__all__ = [
    "ASAM",
    "SAM",
    "BatchNoise",
    "DiagonalFisher",
    "Direction",
    "Euclidean",
    "FisherSAM",
    "FriendlySAM",
    "Geometry",
    "Gradient",
    "ParameterScaled",
    "RadiusSchedule",
    "Residual",
    "SharpnessAware",
    "frozen_statistics",
]
