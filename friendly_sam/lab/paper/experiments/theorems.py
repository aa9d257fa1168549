"""The theorems: measured by `friendly_sam.lab.paper.theory`, not by training runs."""

from __future__ import annotations

from friendly_sam.lab.paper.experiment import Experiment

_SAME = "A problem whose constants are known, so that both sides of each bound can be computed."

theory = Experiment(
    name="theory",
    title="Theorem 1, lemma 1 and theorem 2, measured",
    claim="The EMA stays within O(γ^(1/3)) of the full gradient (theorem 1); with σ = 1 "
    "the direction is orthogonal to the full gradient in expectation (lemma 1); with "
    "ρ0/√t the gradient norm falls like log T/√T (theorem 2).",
    cells=lambda scale: [],
    mapping=dict.fromkeys(("paper", "small", "mini"), _SAME),
    drawing="theory",
)
