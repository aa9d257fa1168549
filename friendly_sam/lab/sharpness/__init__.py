"""How sharp the minima of recorded runs are: spectrum, landscape, and the page on both.

May import `report`, `training` and what lies below them.
"""
