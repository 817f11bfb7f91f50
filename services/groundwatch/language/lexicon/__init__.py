"""What words mean, as far as judging a description needs it: our own small lexicon.

Nouns with synonyms and broader concepts, attributes by kind, numbers, verbs and prepositions are data
(`*.json` beside this file); nothing here learns or downloads anything. Engines of more than one service
share it, so that "matched" and "supported" rest on the same idea of sameness.
"""

from groundwatch.language.lexicon.phrases import NounPhrase, noun_phrases
from groundwatch.language.lexicon.tables import Attribute, Lexicon, lexicon, singular

__all__ = ["Attribute", "Lexicon", "NounPhrase", "lexicon", "noun_phrases", "singular"]
