"""The folder of a run: written while it trains, read by everything that follows.

May import `models` and what lies below it.
"""
