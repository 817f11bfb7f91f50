"""Words that tell analysis from description, each a yes-or-no feature of the recogniser.

The groups follow FaithScore's definitions (Appendix, figure 14): descriptive is what is objectively
visible, analytical is reasoning, interpretation and commonsense.
"""

from __future__ import annotations

import re

_GROUPS = (
    r"\b(might|may|could|would|should|can|must|cannot|will)\b",
    r"\b(likely|possibly|perhaps|probably|potentially|maybe|seem|seems|appear|appears|appearing|apparently)\b",
    r"\b(suggest|indicat|imply|implies|infer|convey|evok|reflect|represent|symboli)\w*",
    r"\b(atmosphere|sense|ambiance|mood|feeling|experience|scene|vibe|setting|moment)\b",
    r"\b(because|since|due|therefore|thus|so|if|when|as)\b",
    r"\b(which|that)\b",
    r"^(and|or|but)\b",
    r"\b(image|photo|picture|photograph)\b",
    r"\bthere (is|are)\b",
    r"\b(stand|sitt|wear|hold|plac|position|locat|visib|park|hang|seat|lying|rid|walk)\w*|\bseen\b",
    r"\b(creat|add|mak|provid|contribut|showcas|highlight|enhanc|ensur|allow|help|giv|offer)\w*",
    r"^\w+$",
    r"^(in the|on the)\b",
    r"\b(left|right|background|foreground|nearby|behind|next to|front|around|top|near)\b",
    r"\b(red|white|black|blue|green|yellow|brown|pink|gray|grey|purple|orange|wooden|large|small)\b",
    r"\b(two|three|four|five|several|multiple|various|one|other|another)\b",
    r"^(additionally|overall|firstly|secondly|thirdly|lastly|however|finally|furthermore|moreover)\b",
    r"\bto \w+",
    r"^\w+ing\b",
    r"\b(people|individuals|someone|one|they|viewer)\b",
)
_PATTERNS = tuple(re.compile(group, re.IGNORECASE) for group in _GROUPS)

COUNT = len(_PATTERNS)


def cues(text: str) -> tuple[float, ...]:
    """1.0 for every group that occurs in `text`, else 0.0."""
    return tuple(float(pattern.search(text) is not None) for pattern in _PATTERNS)
