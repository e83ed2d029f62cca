"""Models: loading, profiling and cutting any `nn.Module`.

`tracing` records the computation graph of a model, `zoo` has the built-in networks. Training is in
`training`.
"""
