"""Training: what devices and server do in a round, and the algorithms that say in which order.

Who does the work over a network is in `network`; what a round costs in virtual time is in `virtual_time`.
"""
