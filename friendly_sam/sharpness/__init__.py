"""How sharp a minimum is: Hessian spectrum, loss around the weights, gradient decomposition.

Everything works on any model, loss and data through `Objective`, needs torch only, and leaves
weights, gradients, modes and statistics as they were.
"""

from friendly_sam.sharpness.decomposition import Decomposition, decompose, decompose_step
from friendly_sam.sharpness.density import Density, spectral_density
from friendly_sam.sharpness.directions import (
    filter_normalised,
    noise_direction,
    random_directions,
    step_along,
)
from friendly_sam.sharpness.hessian import Eigenpairs, Trace, hessian_trace, top_eigenpairs
from friendly_sam.sharpness.landscape import Line, Plane, between, line, plane
from friendly_sam.sharpness.measures import Rise, loss_rises, m_sharpness, worst_rise
from friendly_sam.sharpness.objective import NotDeterministicError, Objective

__all__ = [
    "Decomposition",
    "Density",
    "Eigenpairs",
    "Line",
    "NotDeterministicError",
    "Objective",
    "Plane",
    "Rise",
    "Trace",
    "between",
    "decompose",
    "decompose_step",
    "filter_normalised",
    "hessian_trace",
    "line",
    "loss_rises",
    "m_sharpness",
    "noise_direction",
    "plane",
    "random_directions",
    "spectral_density",
    "step_along",
    "top_eigenpairs",
    "worst_rise",
]
