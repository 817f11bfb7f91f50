"""The closed classes of `word_lists.toml`."""

from importlib import resources

import msgspec

_DATA = resources.files("groundwatch.reading").joinpath("word_lists.toml").read_bytes()
WORDS = {
    name: frozenset(words.split()) for name, words in msgspec.toml.decode(_DATA, type=dict[str, str]).items()
}
