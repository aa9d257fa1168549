"""`fsam bench`: what the methods cost, measured at run time beside everything they compete with.

- `timing`: contenders take turns; medians, quartiles, ratios
- `shapes`: the parameters of the networks
- `peers`: the algorithms of other code, and other packages where they are installed
- `floor`: the same bytes, merely streamed
- `arithmetic`: ascent and restore, gradients given
- `step`: a whole training step
- `memory`: peak memory beyond the base optimizer, in processes of their own
- `epoch`: an epoch of the lab against a bare loop
- `scaling`: cost against parameters, tensors, processes and steps
- `device`: operations, launches, waits and memory of a step on fake accelerators
- `targets`: what the figures are held against
- `report`: JSON, tables, page and figures

May import every room but `cli`.
"""
