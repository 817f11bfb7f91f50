"""Folders of images with a file of the answers about them, as Hugging Face's imagefolder has them."""

from pathlib import Path

from groundwatch.errors import FileFormatError, told_to_user

NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def answers_in(folder: Path) -> Path:
    """The file of answers in a folder of images."""
    with told_to_user(f"{folder}: cannot be read"):
        found = [name for name in NAMES if (folder / name).is_file()]
        below = sorted({path.parent.name for name in NAMES for path in folder.glob(f"*/{name}")})
    if len(found) == 1:
        return folder / found[0]
    if found:
        raise FileFormatError(folder, f"holds {' and '.join(found)}: name the one that is meant")
    message = f"is a folder without {', '.join(NAMES[:-1])} or {NAMES[-1]}"
    if below:
        message += f"; they are in its folders {', '.join(below)[:200]}: name one of these"
    raise FileFormatError(folder, message)
