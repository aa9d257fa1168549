"""The paper: its experiments, claims, printed numbers, theorems, and the report on them.

May import every room but `bench` and `cli`.
"""
