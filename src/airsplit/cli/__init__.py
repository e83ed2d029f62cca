"""The command line: commands in `app`, what their arguments stand for in `sources`, tables in `render` and `*_tables`."""
