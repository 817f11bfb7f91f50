"""CHAIR, the baseline that VALOR generalises: COCO objects in captions, by a fixed list of synonyms."""
