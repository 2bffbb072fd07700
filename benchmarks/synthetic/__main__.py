"""python -m benchmarks.synthetic DIRECTORY --train N --dev N --test N [--seed N]"""

import argparse
from pathlib import Path

from benchmarks.synthetic.synthetic_corpus import write_corpus

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("directory", type=Path)
for split in ("train", "dev", "test"):
    parser.add_argument(f"--{split}", type=int, required=True, help="documents")
parser.add_argument("--seed", type=int, default=1)
write_corpus(**vars(parser.parse_args()))
