"""The command line: each command parses its arguments, calls the library, and prints the result.

`app` lists the commands, `*_commands` define them, `*_tables` turn results into tables and
sentences. What computes something lives in the rooms below.
"""
