"""Statements: what a sentence, a triplet or a name says, as atoms that can be compared."""

from groundwatch.language.statements.atoms import Atom, Exists, Has, Number, Relates, Statement, about
from groundwatch.language.statements.reading import name, statement, triplet

__all__ = ["Atom", "Exists", "Has", "Number", "Relates", "Statement", "about", "name", "statement", "triplet"]
