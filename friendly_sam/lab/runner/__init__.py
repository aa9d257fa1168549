"""Many runs: a pool of local processes, a cluster, and their progress.

May import `training` and what lies below it.
"""
