"""A folder of images as seeds of chains."""

from collections.abc import Iterator
from pathlib import Path

from groundwatch.protocols.genception.chain import CATEGORY_TAG
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.suite import Images, Question


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """A folder of images; a subfolder's name is the category of those inside."""
    for path in images.paths:
        inside = path.relative_to(folder).parts[:-1] if path.is_relative_to(folder) else ()
        category = "/".join(part for part in inside if part != "images")
        yield Question(
            id="/".join((*inside, path.name)),
            protocol=GenCeption.name,
            prompt="",
            images=(images.at(path),),
            tags={CATEGORY_TAG: category} if category else {},
            unit=path.name,
        )
