"""The promises of the core that can be checked on any device, for `fsam selftest`.

- `outcome`: one check: ok, FAILED, not applicable, not tried here
- `problem`: a small network and batches with the same numbers on every device
- `plain`: the methods as their papers write them, in float64 on the CPU
- `exact`: restore, resume, special cases, and the formulas
- `precision`: GradScaler, autocast, weights in half precision
- `cuda`: what needs CUDA: waits, graph capture, memory, several devices
- `speed`: a short table of the cost of a step
- `record`: all of it, as one text

May import the rooms below it, `bench` included, but not `cli`.
"""
