"""The wire: messages, their encoding, the gRPC transport, and pacing."""
