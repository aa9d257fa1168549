"""Networks by name: those of the paper, small relatives for a CPU, and pretrained ones.

May import `data` and what lies below it.
"""

from friendly_sam.lab.models.registry import MODELS, ModelInfo, build

__all__ = ["MODELS", "ModelInfo", "build"]
