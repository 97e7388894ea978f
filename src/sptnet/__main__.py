"""Run the command line as `python -m sptnet`."""

from sptnet.cli import main

main()
