"""The command line: a command parses its arguments, calls one function of the library, and renders the result."""
