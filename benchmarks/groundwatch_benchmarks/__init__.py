"""How far the monitor's own numbers lie from the truth: hallucinations planted into true answers, the
miniature world whose truth is known, the papers' annotations, and their benchmarks built as they built them.

A package of its own beside groundwatch, whose commands `validate planted`, `validate miniature`,
`validate extraction`, `validate claims`, `validate faithscore`, `validate valor` and `dataset` are these.
"""
