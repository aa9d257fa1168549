"""The paper's theorems in numbers, with the library's own optimizer in float64.

`run` measures and leaves `theory.json`; `figures` draws what is in there.
"""

from friendly_sam.lab.theory.figures import Figure, figures
from friendly_sam.lab.theory.measure import SCALES, run

__all__ = ["SCALES", "Figure", "figures", "run"]
