"""How sharp a minimum is: Hessian spectrum, loss around the weights, gradient decomposition.

Everything works on any model, loss and data through `Objective`, needs torch only, and leaves
weights, gradients, modes and statistics as they were.
"""

from friendly_sam.sharpness.density import Density, spectral_density
from friendly_sam.sharpness.hessian import Eigenpairs, Trace, hessian_trace, top_eigenpairs
from friendly_sam.sharpness.objective import NotDeterministicError, Objective

__all__ = [
    "Density",
    "Eigenpairs",
    "NotDeterministicError",
    "Objective",
    "Trace",
    "hessian_trace",
    "spectral_density",
    "top_eigenpairs",
]
