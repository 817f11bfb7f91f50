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
_FINER = (
    r"\b(likely|possibly|perhaps|probably|potentially|maybe)\b",
    r"\b(seem|appear)(s|ing|ed)?\b",
    r"\b(atmosphere|sense|ambiance|mood|feeling|vibe|charm|touch|beauty|environment)\b",
    r"\b(serene|peaceful|calm|cozy|vibrant|lively|inviting|charming|pleasant|harmonious|picturesque)\b"
    r"|\b(delightful|relaxing|relaxed|enjoyable|appealing|unique|memorable|cheerful|playful|comfortable)\b"
    r"|\b(warm|welcoming|tranquil|interesting|exciting)\b",
    r"\b(enjoy|relax|prepar|plan|try|tries|trying|intend|want|need|decid|engag|celebrat|wait|observ)\w*",
    r"\b(presence|purpose|importance|challenge|risk|safety|reason|benefit|factor|potential|need)\w*"
    r"|\b(experience|opportunit|situation|activit|event|occasion)\w*",
    r"^(including|such as|like)\b",
    r"\b(one can|you|your|we|typical|typically|usually|often|common|commonly|generally|essential)\b"
    r"|\b(important|necessary|especially|particularly)\b",
    r"\bscene\b",
    r"^(in addition|besides|aside|apart)\b",
    r"^(adding|creating|making|providing|allowing|giving|indicating|suggesting|showcasing|enhancing)\b"
    r"|^(ensuring|contributing|highlighting)\b",
)
_PATTERNS = tuple(re.compile(group, re.IGNORECASE) for group in _GROUPS)
_FINER_PATTERNS = tuple(re.compile(group, re.IGNORECASE) for group in _FINER)

COUNT = len(_PATTERNS)
FINER_COUNT = len(_FINER_PATTERNS)


def cues(text: str) -> tuple[float, ...]:
    """1.0 for every group that occurs in `text`, else 0.0; they also tell of a neighbour's context."""
    return tuple(float(pattern.search(text) is not None) for pattern in _PATTERNS)


def finer_cues(text: str) -> tuple[float, ...]:
    """The same for groups that matter to the sub-sentence itself only."""
    return tuple(float(pattern.search(text) is not None) for pattern in _FINER_PATTERNS)
