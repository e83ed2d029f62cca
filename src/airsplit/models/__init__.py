"""Models: loading, profiling and cutting any `nn.Module`.

`tracing` records what a model does, `zoo` has the built-in networks. Training is in `training`.
"""
