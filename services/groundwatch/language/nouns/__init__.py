"""Nouns and what they are kinds of: a part of WordNet 3.0, and what people take for the same thing.

`tools/wordnet.py` derives `wordnet.json` from Debian's package `wordnet-base`; its licence is `LICENSE.md`.
`likeness.json` is our own.
"""
