"""Friendly Sharpness-Aware Minimization and its family, for PyTorch, over any base optimizer.

A method is a point on four axes: a direction and a geometry give the perturbation
ε = ρ T² d / ||T d||, a descent says what the base optimizer gets, a policy on which steps all this
happens. `SharpnessAware` puts them together; `SAM`, `FriendlySAM` and the other recipes are the
usual combinations.
"""

from friendly_sam.batchnorm import frozen_statistics
from friendly_sam.descents import Descent, PerturbedGradient, Reused, SurrogateGap, Weighted
from friendly_sam.directions import (
    Average,
    BatchNoise,
    Direction,
    Gradient,
    Residual,
)
from friendly_sam.geometries import DiagonalFisher, Euclidean, Geometry, ParameterScaled
from friendly_sam.one_pass import Momentum, Stale
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.perturbation import Perturbation
from friendly_sam.policies import Every, From, LargeGradients, Policy, Randomly
from friendly_sam.radius import RadiusSchedule
from friendly_sam.recipes import (
    ASAM,
    GSAM,
    MSAM,
    SAM,
    WSAM,
    FisherSAM,
    FriendlySAM,
    LookSAM,
    VaSSO,
)

__version__ = "0.2.0"

__all__ = [
    "ASAM",
    "GSAM",
    "MSAM",
    "SAM",
    "WSAM",
    "Average",
    "BatchNoise",
    "Descent",
    "DiagonalFisher",
    "Direction",
    "Euclidean",
    "Every",
    "FisherSAM",
    "FriendlySAM",
    "From",
    "Geometry",
    "Gradient",
    "LargeGradients",
    "LookSAM",
    "Momentum",
    "ParameterScaled",
    "Perturbation",
    "PerturbedGradient",
    "Policy",
    "RadiusSchedule",
    "Randomly",
    "Residual",
    "Reused",
    "SharpnessAware",
    "Stale",
    "SurrogateGap",
    "VaSSO",
    "Weighted",
    "frozen_statistics",
]
