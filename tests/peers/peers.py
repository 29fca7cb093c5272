"""Times other libraries on the cases of oplus-bench, on a machine with an NVIDIA GPU, PyTorch and Triton. run.sh prepares and calls it."""

import argparse
import json
import re
import sys

import torch
import triton

import timing
from attention import attention, decode
from matrix import delta, linear, ssd
from scans import monoid, rows, scan
from selective import s6

GROUPS = {f.__name__: f for f in (scan, rows, monoid, s6, attention, decode, ssd, linear, delta)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all of them when none is named")
    parser.add_argument("--case", default="", metavar="REGEX", help="only cases whose names match")
    parser.add_argument("--peer", default="", metavar="REGEX", help="only peers whose names match")
    parser.add_argument("--compile-only", action="store_true", help="call each case once, so that Triton's cache has its kernels; may run side by side")
    args = parser.parse_args()
    unknown = set(args.groups) - set(GROUPS)
    if unknown:
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    timing.Options.case, timing.Options.peer = re.compile(args.case), re.compile(args.peer)
    timing.Options.compile_only = args.compile_only
    (timing.compile_without_choosing if args.compile_only else timing.choose_sooner)()
    torch.manual_seed(0)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}), flush=True)
    for group in args.groups or GROUPS:
        try:
            GROUPS[group]()
        except Exception as e:  # Other groups are timed all the same.
            print(json.dumps({"group": group, "error": f"{type(e).__name__}: {str(e)[:500]}"}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
