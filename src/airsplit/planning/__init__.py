"""Planning: the option and the share of the band of each device, with a proven bound.

An option is a row of costs, such as a split; `options` builds the rows, `problem` holds them with
the devices, and every method maps a Problem to a Proposal. Pure numpy and scipy. The costs of
devices and channels are computed in `system`, training on a plan is in `training`.
"""
