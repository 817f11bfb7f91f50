"""Closed classes of English that the decomposer's rules ask for, and what lemminflect knows of a word."""

from __future__ import annotations

from functools import lru_cache

from groundwatch.language.lexicon import singular
from groundwatch.language.numbers import NUMBER_WORDS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COLORS = _words(
    """
    red orange yellow green blue purple violet pink brown black white gray grey beige tan gold golden
    silver maroon navy turquoise teal magenta cyan crimson scarlet lavender cream khaki bronze blond
    blonde colorful colourful multicolored multi-colored reddish bluish greenish yellowish brownish
    dark-colored light-colored
    """
)
NUMBERS = frozenset(NUMBER_WORDS) | {"dozen"}
VAGUE_NUMBERS = _words("several multiple many numerous few")
ARTICLES = _words("a an the")
DETERMINERS = ARTICLES | _words("this that these those another each every some any no all both either")
POSSESSIVES = _words("his her its their my your our")
PRONOUNS = _words(
    """
    he she someone something anyone everyone it they him them himself herself itself themselves i we you
    us me
    """
)
STAND_INS = _words("one another others some each many most both few all")
BE = _words("is are was were be been being am")
AUXILIARIES = _words("has have had do does did")
MODALS = _words("can could may might must shall should will would")
RELATIVES = _words("which that who whom whose where")
CONJUNCTIONS = _words("and or but nor")
SUBORDINATORS = _words("while as although though because since when if whereas so")
PREPOSITIONS = _words(
    """
    aboard in on at of with without by from to into onto near beside besides behind above below beneath
    under underneath over around along across through throughout inside outside between among amongst
    against towards toward beyond within upon off for about like past opposite alongside up down amidst
    amid atop during after before including despite than
    """
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
    "side by side",
)
"""Several words that work as one."""

PLACES = _words(
    """
    in on at near beside behind above below beneath under underneath over around along across through
    throughout inside outside between among against beyond within upon alongside atop amid amidst onto
    aboard
    """
) | {
    "in front of",
    "on top of",
    "next to",
    "close to",
    "closer to",
    "nearer to",
    "to the left of",
    "to the right of",
    "on the side of",
    "in the middle of",
    "in the center of",
    "in the centre of",
    "at the edge of",
    "adjacent to",
    "away from",
    "further away from",
    "farther away from",
    "far from",
}
"""Prepositions that say where one thing is with respect to another."""

CLOSE = frozenset({"above", "next to", "near", "beside", "close to", "closer to", "alongside", "adjacent to"})
"""Places that are told of the thing itself, not of what it stands on: "on the grass next to a tree"."""

PICTURES = _words(
    """
    image photo picture photograph scene view shot snapshot close-up closeup depiction focus composition
    """
)
"""What shows the things, rather than a thing shown."""

SPOTS = _words(
    """
    side left right center centre middle front back top bottom edge corner background foreground
    distance end part area way position location space row direction total addition surface interior
    exterior vicinity spot portion place line surroundings forefront
    """
)
"""Where something is, rather than a thing."""

SIDES = _words("side left right top bottom end")
HALVES = _words("top bottom upper lower")
"""What stands before "left" or "right" in the name of a corner: "at the top left"."""

RESEMBLING = _words("look seem feel appear sound taste smell")
"""In "it looks like a game" there is no game."""

DEGREES = _words("much slightly far even considerably significantly noticeably somewhat bit little lot")
"""How much larger; the fact is that it is larger."""

SHELLS = _words(
    """
    group variety number bunch couple lot set array assortment collection series range selection mix
    pile type kind sort plenty mixture handful display crowd herd flock view image picture photo
    close-up style cluster combination part majority rest team line row moment glimpse sight snapshot flight
    composite collage portrait instance
    """
)
"""In "a group of people" the people are what is there."""

FOCUSES = _words(
    """
    focus object subject item objects items subjects feature focal element elements thing
    """
)
QUALITIES = _words(
    """
    color colour position pattern shape size material design type location flavor flavour texture style
    expression look color-scheme finish height length
    """
)
"""Told of a thing with its adjective: "a heart-shaped design"."""

POSITIONAL = _words(
    """
    left right middle far near same back front top bottom upper lower opposite other center
    """
)
AREAS = _words("area surface space spot")
"""Things when they are told apart: "a grassy area"."""

INTERPRETING = _words(
    """
    make give offer add create provide suggest indicate enhance contribute allow help evoke convey imply
    ensure emphasize symbolize highlight reflect demonstrate represent prompt encourage invite
    """
)
EMPTY_ADJECTIVES = _words(
    """
    main other various different several certain such same overall own visible additional particular
    primary many more few first second third fourth fifth sixth last next focal multiple numerous
    central total only potential possible actual prominent specific fewer
    """
)
MANNERS = _words("manner fashion way")
PLACE_GERUNDS = _words("parking dining living swimming shopping bowling waiting")
"""What names a place or a thing before a noun: "parking spaces"."""

OCCASIONS = _words("event party session competition contest station machine room set area shop board")
"""What is named after what is done there: "a wine tasting event"."""
MASS = _words(
    """
    water grass snow sand clothing luggage furniture food traffic greenery vegetation foliage equipment
    attire sunlight light fruit hair glass fur dirt smoke ice rain mud wood metal leather fabric brick
    stone plastic paper cardboard concrete siding cotton wool bread meat rice cement lumber debris shade
    cheese sauce coffee tea milk wine beer toothpaste soap butter sugar salt juice mustard ketchup hay
    soup mayonnaise frosting icing
    """
)
PLURAL_ONLY = _words(
    """
    people sunglasses glasses pants shorts jeans trousers scissors clothes goggles cattle police
    """
)
PEOPLE = _words(
    """
    nurse doctor pilot sailor soldier guest musician singer dancer drummer actor artist spectator
    tourist visitor vendor referee jockey goalkeeper king queen grandmother grandfather teammate friend
    male female man woman boy girl person child kid baby lady gentleman guy player skier surfer
    skateboarder rider pedestrian toddler individual officer chef bride groom batter pitcher catcher
    umpire driver passenger worker customer student teacher snowboarder cyclist motorcyclist skater
    guard diver monk nun hiker climber swimmer runner jogger biker boxer golfer goalie coach judge fan
    onlooker bystander beachgoer sunbather paraglider parasailer windsurfer kayaker rower bicyclist
    horseman cowboy vendor shopper diner barber clown juggler commuter employee attendant conductor
    trainer youngster senior twin sibling sister brother son daughter aunt uncle husband wife
    athlete someone father mother couple adult teenager human cook waiter farmer men women people
    children
    """
)
ANIMALS = _words("dog cat horse bear elephant giraffe bird cow sheep zebra puppy kitten monkey animal")
MEN = _words("man boy gentleman guy groom father king son brother")
WOMEN = _words("woman girl lady bride mother queen daughter sister")
MEASURES = _words("pair piece slice cup glass bottle bowl plate loaf can jar body")
"""In "a glass of wine" both are there, under one name."""

STATES = _words(
    """
    contain include feature resemble have belong overlook consist represent cover depict display own
    surround line show reveal
    """
)
"""Verbs that do not go with "is …ing"."""

DONE_BY_PEOPLE = _words(
    """
    wear hold carry ride talk walk look eat drink smile play read watch sit use
    """
)

HOLDING = _words("have feature contain include")
"""What follows "the room has a bed" is told of the bed."""

INSTRUMENTAL = _words("cut slice eat brush hit paint feed dig stir write draw clean wash swing poke")
"""What is done "with" a tool."""

SHOWING = _words(
    """
    show feature depict capture display include contain present portray showcase illustrate comprise
    consist reveal
    """
)
HEDGES = _words(
    """
    likely possibly perhaps probably potentially maybe also too even currently overall
    """
)
_PERSONAL = ("man", "woman", "person", "boy", "girl", "player", "rider", "worker", "driver")
_SEEN_ALL_THE_SAME = _words(
    """
    city university facility entrance fence ambulance appliance station decoration intersection
    installation construction vegetation plantation reflection television audience celebration location
    conference witness harness competition procession fortress residence
    """
)

COMPOUNDS = {
    *(
        "hot dog",
        "potted plant",
        "stuffed animal",
        "living room",
        "dining room",
        "parking lot",
        "parking meter",
    ),
    *(
        "remote control",
        "french fry",
        "living space",
        "high chair",
        "soft drink",
        "cutting board",
        "frying pan",
        "green bean",
        "counter top",
        "tank top",
        "table top",
    ),
}
"""Names of things whose first word is no attribute."""

NOT_THINGS = _words(
    """
    appeal feel vibe ambience aesthetic environment atmosphere sense presence appearance addition
    experience ambiance mood feeling touch process action attention fact day time moment manner fashion
    variety order use activity activities lot way front enjoyment purpose reason contrast stage stages
    others total amount context lack feature combination mix event effort precaution weather ride
    backdrop nature beauty interest enthusiasm joy condition pop conclusion impression charm element
    aspect arrangement possibility opportunity potential work role theme detail quality kind taste air
    placement scenario midair mid-air bit setting
    """
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
def is_plural(word: str) -> bool:
    """Whether a word is a noun in the plural, whatever else it may be."""
    return singular(word) != word and "NOUN" in lemmas(word)


@lru_cache(maxsize=8192)
def person(word: str) -> bool:
    """Whether a singular noun names a person, by list or by its ending."""
    return word in PEOPLE or word.endswith(_PERSONAL)


@lru_cache(maxsize=8192)
def abstract(word: str) -> bool:
    """Whether a singular noun names no thing that can be seen, by list or by its ending."""
    if word in NOT_THINGS:
        return True
    return (
        word.endswith(("ness", "ity", "ism", "ance", "ence", "tion", "sion"))
        and word not in _SEEN_ALL_THE_SAME
    )


@lru_cache(maxsize=8192)
def inflect(word: str, tag: str) -> str:
    """An infinitive or a singular in the form that the Penn Treebank `tag` names."""
    from lemminflect import getInflection

    found = getInflection(word, tag)
    return found[0] if found else word
