"""The real thing: server and devices over a network.  Importing it needs grpc; nothing below it does."""
