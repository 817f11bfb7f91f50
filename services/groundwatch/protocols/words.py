"""The length of an answer in words: told beside every score, and a value of several protocols."""

from functools import lru_cache


@lru_cache(maxsize=1)
def count_words(text: str) -> int:
    """Words between white space. The last answer's is remembered: its outcome asks after its protocol."""
    return len(text.split())
