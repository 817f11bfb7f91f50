"""What a replay is asked to do: which events, from which stage on, judged by whom, how fast, for how much."""

from functools import lru_cache
from hashlib import blake2b

from groundwatch.errors import UsageError
from groundwatch.events import LIVE, ResponseRecorded
from groundwatch.gateway.replays import Wanted
from groundwatch.protocols import registry
from groundwatch.protocols.base import ChainProtocol
from groundwatch.times import LAST
from groundwatch.topology import EXTRACTED, JUDGED, RESPONSES, Address, is_token, run_subjects

START = ("extraction", "verification", "matching", "scoring")
"""Stages that a replay can begin at. The others ask models under test and image generators."""

LONGEST_NAME = 64


class Spec(Wanted, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """One replay, as it was asked for.

    Of the responses that are left, those with a hash below `below` are taken: `sample` says how many that
    are. `file` and `digest` name the exported file that its events came from. `own` are the options of the
    command line that named judges which no settings have: whoever goes on gives them again.
    """

    below: int = 0
    file: str = ""
    digest: str = ""
    own: str = ""

    @property
    def stream(self) -> str:
        return {"extraction": RESPONSES, "scoring": JUDGED}.get(self.stage, EXTRACTED)

    @property
    def subjects(self) -> str:
        """The subjects of its events: what goes into `stage`."""
        match self.stage:
            case "extraction":
                return run_subjects("recorded", self.source)
            case "scoring":
                return run_subjects("judged", self.source, "scoring")
        return run_subjects("extracted", self.source, self.stage)

    def check_judges(self) -> None:
        """Raises `UsageError` where settings alone do not have its judges."""
        if self.own:
            raise UsageError(
                f"run '{self.run}' was begun with judges that are in no settings: name them again, "
                f"groundwatch replay resume {self.run} {self.own}"
            )

    def check(self) -> None:
        """Raises `UsageError` in one line that says what to do."""
        check_run_name(self.run)
        if self.source != LIVE and self.source != self.run:
            check_run_name(self.source)
        if self.stage in ("captioning", "generation"):
            raise UsageError(
                f"no replay begins at {self.stage}: it asks no model under test and makes no image again; "
                "chains can be scored again, from scoring on",
                "stage",
            )
        if self.stage not in START:
            raise UsageError(f"no stage '{self.stage}'; there are {', '.join(START)}", "stage")
        for bound, at in (("since", self.since), ("until", self.until)):
            if not 0 <= at <= LAST:
                raise UsageError(f"{bound}: {at:g} is no time in seconds since the epoch", bound)
        if self.until and self.until <= self.since:
            raise UsageError("the end is not after the beginning: nothing lies between", "until", "since")
        for name in self.protocols:
            protocol = registry.get(name)
            if isinstance(protocol, ChainProtocol) and self.stage != "scoring":
                raise UsageError(
                    f"protocol {name}: its rounds ask the model under test, which a replay does not; "
                    "what was recorded can be scored again, from scoring on",
                    "stage",
                )
        for name in ("sample", "speed", "max_tokens", "max_cost"):
            value: float = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise UsageError(f"{name} {value}: must be a number of at least 0", name)


def check_run_name(name: str) -> None:
    """Raises `UsageError` when no run of one's own can have this name."""
    if name == LIVE:
        raise UsageError("'live' is the run of the traffic itself: give the replay another name", "run")
    if not is_token(name) or len(name) > LONGEST_NAME:
        raise UsageError(
            f"run name '{name[:64]}': use letters, digits, - and _, at most {LONGEST_NAME}, "
            "such as new-verifier"
        )


class Selection:
    """Which events, and which protocols of each, a spec is about. Both the replay and its audit ask here."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._models = frozenset(spec.models)
        self._tenants = frozenset(spec.tenants)
        self._ids = frozenset(spec.ids)
        self._protocols = frozenset(spec.protocols)
        self._seed = str(spec.seed).encode()
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        self.everything = not (self._models or self._tenants or self._ids or spec.since or spec.until)
        """Whether all responses are asked for, and so even those that cannot be read."""

    def subject(self, address: Address) -> bool:
        """Whether what the subject says leaves the event in: cheap, and asked before decoding."""
        below = self._spec.below
        if below and self.hash(address.key) >= below:
            return False
        return not (self._protocols and address.protocol and address.protocol not in self._protocols)

    def response(self, response: ResponseRecorded) -> bool:
        if self.everything:
            return True
        spec = self._spec
        return (
            (not self._models or response.model in self._models)
            and (not self._tenants or response.tenant in self._tenants)
            and (not self._ids or response.id in self._ids)
            and spec.since <= response.recorded_at
            and (not spec.until or response.recorded_at < spec.until)
        )

    def asked(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Those of a response's protocols that are judged again, in the order asked for, and how many are
        left out for being chains: their rounds begin at captioning."""
        found = self._known.get(names)
        if found is None:
            asked = [name for name in names if not self._protocols or name in self._protocols]
            judged = tuple([name for name in asked if not is_chain(name)])
            found = judged, len(asked) - len(judged)
            if len(self._known) < 1_000:
                self._known[names] = found
        return found

    def named(self, header: str) -> tuple[str, ...]:
        """The same by the header of a recorded response, for one whose body does not decode."""
        return tuple(
            name
            for name in header.split(",")
            if is_token(name) and (not self._protocols or name in self._protocols) and not is_chain(name)
        )

    def hash(self, key: str) -> int:
        """0 to 2**64 - 1, by the seed and the response's key alone."""
        return int.from_bytes(blake2b(key.encode(), digest_size=8, key=self._seed).digest(), "big")


@lru_cache(maxsize=1_000)
def is_chain(protocol: str) -> bool:
    """Whether this is a known protocol of chains."""
    return protocol in registry.names() and isinstance(registry.get(protocol), ChainProtocol)


def pace(text: str) -> float:
    """Times of the recorded pace: `1x`, `10x`, `0.5x`; 0 for `max`. Raises `UsageError`."""
    if text == "max":
        return 0.0
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise UsageError(
            f"speed {text}: write 1x, 10x, any other multiple of the recorded pace, or max", "speed"
        )
    return speed
