"""Trains the reader that ships: `make reader`, or `python -m tools.reader`.

Two idle cores need one to two hours. A run that was stopped goes on from its last epoch with the same
command; the same data, seed and versions of the libraries give the same reader up to rounding.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
from pathlib import Path

_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "200000000",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""glibc would give memory back after each step, and page faults would then cost four fifths of the time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "files", nargs="*", type=Path, help="answers in the notation; by default the project's"
    )
    parser.add_argument("--out", type=Path, help="folder for the weights; by default the package's")
    parser.add_argument("--work", type=Path, default=Path(".reader"), help="folder for the checkpoint")
    parser.add_argument(
        "--annotation",
        type=Path,
        help="FaithScore's annotation file: which sub-sentences people call descriptive",
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--share", type=float, default=1.0, help="of the answers, drawn")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not _MEMORY.items() <= os.environ.items():
        os.execve(
            sys.executable, [sys.executable, "-m", "tools.reader", *sys.argv[1:]], {**os.environ, **_MEMORY}
        )

    import torch
    from tools.reader.descriptive import cross_validate, fit
    from tools.reader.notation import DATA, read_files
    from tools.reader.training import Schedule, examples, train

    from groundwatch.models.embeddings import encoder_folder
    from groundwatch.reading.model import ReaderModel
    from groundwatch.reading.weights import FOLDER, About, write
    from groundwatch_benchmarks.methods.faithscore.suite import read_annotations

    torch.set_num_threads(options.threads)
    schedule = Schedule(epochs=options.epochs)
    torch.manual_seed(schedule.seed)
    files = sorted(options.files or DATA.glob("[0-9]*.txt"))
    items = read_files(files)
    random.Random(schedule.seed).shuffle(items)
    items = items[: round(len(items) * options.share)]
    data = examples(items)
    print(f"{len(data)} answers", flush=True)
    options.work.mkdir(parents=True, exist_ok=True)
    model = ReaderModel(encoder_folder())
    train(model, data, schedule, options.work / "checkpoint.pt", lambda line: print(line, flush=True))
    if options.annotation:
        annotated = read_annotations(options.annotation)
        fit(model, annotated)
        print(f"descriptive or not, in folds by image: {cross_validate(model, annotated):.3f}", flush=True)
    about = About(
        sha256="",
        data=hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest(),
        answers=len(items),
        facts=sum(len(item.facts) for item in items),
        epochs=schedule.epochs,
        seed=schedule.seed,
    )
    print(write(model, encoder_folder(), options.out or FOLDER, about))


if __name__ == "__main__":
    main()
