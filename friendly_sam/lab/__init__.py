"""The lab: train networks with any method of `friendly_sam`, keep records, compare runs.

Data flows one way, and each arrow is one room:

    config -> data -> models -> training -> records -> report

A run is one value (`config`), its results are one folder (`records`), and a report reads such
folders and nothing else. `runner` does many runs, `sharpness` looks at what they found, `paper` is
everything about the paper, `bench` measures cost, and `cli` is the command `fsam`. A room imports
only what lies below it, in the order of `tests/lab/test_rooms.py`.
"""
