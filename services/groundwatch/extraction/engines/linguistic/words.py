"""Closed classes of English that the decomposer's rules ask for, and what lemminflect knows of a word."""

from __future__ import annotations

from functools import lru_cache

COLORS = frozenset(
    [
        "red",
        "orange",
        "yellow",
        "green",
        "blue",
        "purple",
        "violet",
        "pink",
        "brown",
        "black",
        "white",
        "gray",
        "grey",
        "beige",
        "tan",
        "gold",
        "golden",
        "silver",
        "maroon",
        "navy",
        "turquoise",
        "teal",
        "magenta",
        "cyan",
        "crimson",
        "scarlet",
        "lavender",
        "cream",
        "khaki",
        "bronze",
        "blond",
        "blonde",
        "colorful",
        "colourful",
        "multicolored",
        "multi-colored",
        "reddish",
        "bluish",
        "greenish",
        "yellowish",
        "brownish",
        "dark-colored",
        "light-colored",
    ]
)
NUMBERS = frozenset(
    [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "hundred",
        "thousand",
        "dozen",
    ]
)
VAGUE_NUMBERS = frozenset(["several", "multiple", "many", "numerous", "few", "various", "different"])
ARTICLES = frozenset(["a", "an", "the"])
DETERMINERS = ARTICLES | frozenset(
    [
        "this",
        "that",
        "these",
        "those",
        "another",
        "each",
        "every",
        "some",
        "any",
        "no",
        "all",
        "both",
        "either",
    ]
)
POSSESSIVES = frozenset(["his", "her", "its", "their", "my", "your", "our"])
PRONOUNS = frozenset(
    [
        "he",
        "she",
        "it",
        "they",
        "him",
        "them",
        "himself",
        "herself",
        "itself",
        "themselves",
        "i",
        "we",
        "you",
        "us",
        "me",
    ]
)
STAND_INS = frozenset(["one", "another", "others", "some", "each", "many", "most", "both", "few", "all"])
BE = frozenset(["is", "are", "was", "were", "be", "been", "being", "am"])
AUXILIARIES = frozenset(["has", "have", "had", "do", "does", "did"])
MODALS = frozenset(["can", "could", "may", "might", "must", "shall", "should", "will", "would"])
RELATIVES = frozenset(["which", "that", "who", "whom", "whose", "where"])
CONJUNCTIONS = frozenset(["and", "or", "but", "nor"])
SUBORDINATORS = frozenset(
    ["while", "as", "although", "though", "because", "since", "when", "if", "whereas", "so"]
)
PREPOSITIONS = frozenset(
    [
        "in",
        "on",
        "at",
        "of",
        "with",
        "without",
        "by",
        "from",
        "to",
        "into",
        "onto",
        "near",
        "beside",
        "besides",
        "behind",
        "above",
        "below",
        "beneath",
        "under",
        "underneath",
        "over",
        "around",
        "along",
        "across",
        "through",
        "throughout",
        "inside",
        "outside",
        "between",
        "among",
        "amongst",
        "against",
        "towards",
        "toward",
        "beyond",
        "within",
        "upon",
        "off",
        "for",
        "about",
        "like",
        "past",
        "opposite",
        "alongside",
        "up",
        "down",
        "amidst",
        "amid",
        "atop",
        "during",
        "after",
        "before",
        "including",
        "despite",
    ]
)
PHRASAL = (
    "in front of",
    "on top of",
    "next to",
    "close to",
    "on the side of",
    "to the left of",
    "to the right of",
    "in the middle of",
    "in the center of",
    "in the centre of",
    "at the edge of",
    "on the edge of",
    "out of",
    "in addition to",
    "as well as",
    "along with",
    "together with",
    "such as",
    "aside from",
    "apart from",
    "rather than",
    "due to",
    "because of",
    "instead of",
    "other than",
    "away from",
    "further away from",
    "farther away from",
    "far from",
    "closer to",
    "nearer to",
    "adjacent to",
    "up to",
    "each other",
    "a lot of",
    "lots of",
    "at least",
    "a few",
)
"""Several words that work as one."""

PLACES = frozenset(
    [
        "in",
        "on",
        "at",
        "near",
        "beside",
        "behind",
        "above",
        "below",
        "beneath",
        "under",
        "underneath",
        "over",
        "around",
        "along",
        "across",
        "through",
        "throughout",
        "inside",
        "outside",
        "between",
        "among",
        "against",
        "beyond",
        "within",
        "upon",
        "alongside",
        "atop",
        "amid",
        "amidst",
        "onto",
    ]
) | {"in front of", "on top of", "next to", "close to", "to the left of", "to the right of", "on the side of"}
PLACES = PLACES | {
    "in the middle of",
    "in the center of",
    "in the centre of",
    "at the edge of",
    "adjacent to",
}
PLACES = PLACES | {
    "closer to",
    "nearer to",
    "away from",
    "further away from",
    "farther away from",
    "far from",
}

PICTURES = frozenset(
    [
        "image",
        "photo",
        "picture",
        "photograph",
        "scene",
        "view",
        "shot",
        "snapshot",
        "painting",
        "close-up",
        "closeup",
        "depiction",
        "focus",
        "composition",
        "foreground",
        "background",
    ]
)
"""What shows the things, rather than a thing shown."""

SPOTS = frozenset(
    [
        "side",
        "left",
        "right",
        "center",
        "centre",
        "middle",
        "front",
        "back",
        "top",
        "bottom",
        "edge",
        "corner",
        "background",
        "foreground",
        "distance",
        "end",
        "part",
        "area",
        "way",
        "position",
        "location",
        "space",
        "row",
        "direction",
        "total",
        "addition",
        "surface",
        "interior",
        "exterior",
        "vicinity",
        "spot",
        "portion",
        "place",
        "line",
        "surroundings",
        "forefront",
    ]
)
"""Where something is, rather than a thing."""

SHELLS = frozenset(
    [
        "group",
        "variety",
        "number",
        "bunch",
        "couple",
        "lot",
        "set",
        "array",
        "assortment",
        "collection",
        "series",
        "range",
        "selection",
        "mix",
        "pile",
        "type",
        "kind",
        "sort",
        "plenty",
        "handful",
        "display",
        "crowd",
        "herd",
        "flock",
        "view",
        "image",
        "picture",
        "photo",
        "close-up",
        "style",
        "cluster",
        "combination",
        "part",
        "majority",
        "rest",
        "team",
        "line",
        "row",
    ]
)
"""In "a group of people" the people are what is there."""

FOCUSES = frozenset(
    [
        "focus",
        "object",
        "subject",
        "item",
        "objects",
        "items",
        "subjects",
        "feature",
        "focal",
        "element",
        "elements",
        "thing",
    ]
)
QUALITIES = frozenset(
    [
        "color",
        "colour",
        "colors",
        "position",
        "pattern",
        "shape",
        "size",
        "material",
        "design",
        "type",
        "location",
    ]
)
EMPTY_ADJECTIVES = frozenset(
    [
        "main",
        "other",
        "various",
        "different",
        "several",
        "certain",
        "such",
        "same",
        "overall",
        "own",
        "visible",
        "additional",
        "particular",
        "primary",
        "many",
        "more",
        "few",
        "first",
        "second",
        "last",
        "next",
        "focal",
        "multiple",
        "numerous",
        "central",
        "total",
        "only",
        "potential",
        "possible",
        "actual",
        "prominent",
        "specific",
    ]
)
MASS = frozenset(
    [
        "water",
        "grass",
        "snow",
        "sand",
        "clothing",
        "luggage",
        "furniture",
        "food",
        "traffic",
        "greenery",
        "vegetation",
        "foliage",
        "equipment",
        "attire",
        "sunlight",
        "light",
        "fruit",
        "hair",
        "glass",
        "fur",
        "dirt",
        "smoke",
        "ice",
        "rain",
        "mud",
        "wood",
        "metal",
    ]
)
PLURAL_ONLY = frozenset(
    [
        "people",
        "sunglasses",
        "glasses",
        "pants",
        "shorts",
        "jeans",
        "trousers",
        "scissors",
        "clothes",
        "goggles",
        "cattle",
        "police",
    ]
)
PEOPLE = frozenset(
    [
        "man",
        "woman",
        "boy",
        "girl",
        "person",
        "child",
        "kid",
        "baby",
        "lady",
        "gentleman",
        "guy",
        "player",
        "skier",
        "surfer",
        "skateboarder",
        "rider",
        "pedestrian",
        "toddler",
        "individual",
        "officer",
        "chef",
        "bride",
        "groom",
        "batter",
        "pitcher",
        "catcher",
        "umpire",
        "driver",
        "passenger",
        "worker",
        "customer",
        "student",
        "teacher",
        "snowboarder",
        "cyclist",
        "motorcyclist",
        "skater",
        "athlete",
        "someone",
        "father",
        "mother",
        "couple",
        "adult",
        "teenager",
        "human",
        "cook",
        "waiter",
        "farmer",
        "men",
        "women",
        "people",
        "children",
    ]
)
MEN = frozenset(["man", "boy", "gentleman", "guy", "groom", "father", "king", "son", "brother"])
WOMEN = frozenset(["woman", "girl", "lady", "bride", "mother", "queen", "daughter", "sister"])
MEASURES = frozenset(
    [
        "pair",
        "piece",
        "slice",
        "cup",
        "glass",
        "bottle",
        "bowl",
        "plate",
        "loaf",
        "can",
        "jar",
        "bag",
        "basket",
    ]
)
"""In "a glass of wine" both are there, under one name."""

STATES = frozenset(
    [
        "contain",
        "include",
        "feature",
        "resemble",
        "have",
        "belong",
        "overlook",
        "consist",
        "represent",
        "cover",
        "depict",
        "display",
        "own",
        "surround",
        "line",
        "show",
        "reveal",
    ]
)
"""Verbs that do not go with "is …ing"."""

SHOWING = frozenset(
    [
        "show",
        "feature",
        "depict",
        "capture",
        "display",
        "include",
        "contain",
        "present",
        "portray",
        "showcase",
        "illustrate",
        "comprise",
        "consist",
        "reveal",
    ]
)
HEDGES = frozenset(
    [
        "likely",
        "possibly",
        "perhaps",
        "probably",
        "potentially",
        "maybe",
        "also",
        "too",
        "even",
        "currently",
        "overall",
    ]
)
NOT_THINGS = frozenset(
    [
        "atmosphere",
        "sense",
        "presence",
        "appearance",
        "addition",
        "experience",
        "ambiance",
        "mood",
        "feeling",
        "touch",
        "process",
        "action",
        "attention",
        "fact",
        "day",
        "time",
        "moment",
        "manner",
        "fashion",
        "variety",
        "order",
        "use",
        "activity",
        "activities",
        "lot",
        "way",
        "front",
        "enjoyment",
        "purpose",
        "reason",
        "contrast",
        "stage",
        "stages",
        "others",
        "total",
        "amount",
    ]
)


@lru_cache(maxsize=8192)
def lemmas(word: str) -> dict[str, tuple[str, ...]]:
    """The dictionary forms of a lower-case word by universal part of speech; empty when unknown."""
    from lemminflect import getAllLemmas

    return dict(getAllLemmas(word))


@lru_cache(maxsize=8192)
def verb(word: str) -> str:
    """The infinitive of a verb form, "" when the word can be none."""
    found = lemmas(word).get("VERB", ())
    return found[0] if found else ""


@lru_cache(maxsize=8192)
def noun(word: str) -> str:
    """The singular of a noun, the word itself when unknown."""
    found = lemmas(word).get("NOUN", ())
    return found[0] if found else word


@lru_cache(maxsize=8192)
def inflect(word: str, tag: str) -> str:
    """An infinitive or a singular in the form that the Penn Treebank `tag` names."""
    from lemminflect import getInflection

    found = getInflection(word, tag)
    return found[0] if found else word
