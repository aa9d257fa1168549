"""The paper's theorems in numbers, with the library's own optimizer in float64.

`run` measures and leaves `theory.json`; `figures` draws what is in there.
"""

from friendly_sam.lab.paper.theory.figures import Figure, figures
from friendly_sam.lab.paper.theory.measure import SCALES, run

__all__ = ["SCALES", "Figure", "figures", "run"]
