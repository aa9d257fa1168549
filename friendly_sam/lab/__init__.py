"""The lab: train networks with any method of `friendly_sam`, keep records, compare runs.

Data flows one way, a module an arrow:

    config -> data -> models -> methods -> engine -> records -> report

A run is one value (`config.RunConfig`), its results are one folder (`records`), and a
report reads such folders and nothing else. The command is `fsam` (`cli`).
"""
