"""One page in one file about a finished run: what was found, how it came about, and a place to correct it."""

from sptnet.report.write import write_report

__all__ = ["write_report"]
