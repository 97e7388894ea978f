"""Run campaigns from the command line."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: threads do not survive a fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main() -> int:
    """Run all campaigns, or some; returns 1 if a case failed."""
    from .campaigns import CAMPAIGNS
    from .runner import HEADER, run_all
    from .workshop import Workshop

    names = [kind.name for kind in CAMPAIGNS]
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all campaigns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=names, action="append", help="a campaign; may be repeated")
    parser.add_argument("--cases", type=int, help="most cases per campaign")
    parser.add_argument("--case", type=int, help="run the case of this number alone; needs --only")
    parser.add_argument("--out", type=Path, help="file for a JSON line per case")
    parser.add_argument("--keep", type=Path, help="new folder to work in, which is kept; a temporary one if not given")
    options = parser.parse_args()
    if options.case is not None and len(options.only or ()) != 1:
        parser.error("--case needs --only NAME")
    if options.keep and options.keep.is_dir() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty")
    chosen = [kind for kind in CAMPAIGNS if not options.only or kind.name in options.only]
    with tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True) as temporary:
        shop = Workshop(options.keep or Path(temporary))
        out = options.out.open("a", encoding="utf-8", buffering=1) if options.out else None
        record = None if out is None else (lambda line: out.write(line + "\n"))
        summaries = run_all(
            chosen, shop, options.seed, 60 * options.minutes, options.cases, options.case, record=record
        )
    print(f"\n{HEADER}", *(summary.row for summary in summaries), sep="\n")
    return int(any(summary.failures for summary in summaries))


if __name__ == "__main__":
    sys.exit(main())
