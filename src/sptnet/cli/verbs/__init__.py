"""One module per command; used by the command line only."""
