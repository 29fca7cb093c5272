"""Brings the results of a run into docs/benchmarks.jsonl: the lines of its cases are replaced, other lines stay.

    python3 tests/peers/collect.py docs/benchmarks.jsonl OUT/ours.jsonl OUT/peers.jsonl --device "NVIDIA H200" --date 2026-11-28

Of several variants of a peer the fastest counts. A case that failed keeps its old line.
"""

import argparse
import json

# What memory limits: other cases have no share of the bandwidth in the tables.
LIMITED_BY_MEMORY = ("copy", "cumsum", "affine", "decay", "monoid", "decode")
ORDER = ("case", "impl", "peer", "ms", "bytes", "device", "date")


def read(paths):
    """The least time of each case and library."""
    best = {}
    for path in paths:
        for text in open(path):
            line = json.loads(text)
            key = line.get("case"), line.get("impl") or line.get("peer")
            if "ms" in line and (key not in best or line["ms"] < best[key]["ms"]):
                best[key] = line
    return best


def entry(line, args):
    """The line of the document for a line of a run."""
    line = {**line, "ms": round(line["ms"], 4), "device": args.device, "date": args.date}
    if "peer" in line or not line["case"].startswith(LIMITED_BY_MEMORY):
        line.pop("bytes", None)
    return {name: line[name] for name in ORDER if name in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", help="the file of results")
    parser.add_argument("results", nargs="+", help="files of a run")
    parser.add_argument("--device", required=True)
    parser.add_argument("--date", required=True)
    args = parser.parse_args()
    found = read(args.results)
    lines = []
    for text in open(args.document):
        line = json.loads(text)
        new = found.pop((line["case"], line.get("impl") or line.get("peer")), None)
        lines.append(entry(new, args) if new else line)
    lines.extend(entry(new, args) for new in found.values())
    with open(args.document, "w") as document:
        document.writelines(json.dumps(line) + "\n" for line in lines)
    print(f"{len(lines)} lines, {len(found)} of them new")


if __name__ == "__main__":
    main()
