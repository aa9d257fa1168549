"""One training run: loop, step, ascent batches, evaluation, processes, checkpoints.

May import `records` and what lies below it.
"""
