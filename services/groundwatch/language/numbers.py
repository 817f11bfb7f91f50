"""Number words: the one table of them."""

_TO_TWENTY = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
_BEYOND = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}

NUMBER_WORDS = {word: number for number, word in enumerate(_TO_TWENTY.split())} | _BEYOND
NUMBER_WORDS |= {"hundred": 100, "thousand": 1000}
