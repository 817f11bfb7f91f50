"""Word lists as data: a TOML file beside the code that asks for them."""

from importlib import resources

import msgspec


def word_lists(package: str, name: str) -> dict[str, frozenset[str]]:
    """The lists of a file by name: a text holds words between blanks, an array words and phrases."""
    text = resources.files(package).joinpath(name).read_bytes()
    lists = msgspec.toml.decode(text, type=dict[str, str | list[str]])
    return {key: frozenset(one.split() if isinstance(one, str) else one) for key, one in lists.items()}
