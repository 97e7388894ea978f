"""`python -m sptnet` is the same as `sptnet`."""

from sptnet.cli import main

main()
