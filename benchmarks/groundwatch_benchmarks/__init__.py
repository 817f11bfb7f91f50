"""How far the monitor's own numbers lie from the truth: hallucinations planted into true answers, the
miniature world whose truth is known, and the benchmarks of the papers built as they built them.

A package of its own beside groundwatch, whose commands `validate planted`, `validate miniature` and `dataset`
are these.
"""
