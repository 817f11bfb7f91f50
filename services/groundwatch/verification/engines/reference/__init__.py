"""The reference judge: decides claims from what is known of the image, without a model.

In this order, the first rule that applies decides:

1. The claim equals a known fact (same words, or the same atoms through the lexicon): that fact's truth,
   flipped when just one of the two is negated. Facts that contradict each other leave it open.
2. Something that the claim takes for granted is known to be false, or is absent from a complete
   reference: refuted. "The dog is brown." needs a dog.
3. The claim says all that a false fact says: refuted.
4. Any asserted atom is refuted: refuted. Another value of the same exclusive kind (color, material, …),
   another number, an excluding relation (left and right of, sitting and standing) refute, if the
   reference can only mean the same thing by it.
5. Every asserted atom follows from the reference, through synonyms, broader concepts, inverse relations
   and what one action implies of another: supported.
6. Otherwise undecided.

Only a complete reference lets absence refute. A thing is absent when neither it nor a kind of it is named,
unless the word is generic ("scene"), the thing is a part of something named ("nose") or a broader name
may mean it. A relation between two named things that the reference does not state is refuted only if the
reference states the same verb of the same living subject with another object, or of another living
subject with the same object, and nothing between the two; places and "near" stay open, for no reference
lists them all.
"""

from groundwatch.verification.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine"]
