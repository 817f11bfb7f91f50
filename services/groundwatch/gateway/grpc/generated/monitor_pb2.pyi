from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBMIT_STATUS_UNSPECIFIED: _ClassVar[SubmitStatus]
    SUBMIT_STATUS_RECORDED: _ClassVar[SubmitStatus]
    SUBMIT_STATUS_DUPLICATE: _ClassVar[SubmitStatus]
    SUBMIT_STATUS_REFUSED: _ClassVar[SubmitStatus]

class Label(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_UNSPECIFIED: _ClassVar[Label]
    LABEL_DESCRIPTIVE: _ClassVar[Label]
    LABEL_ANALYTICAL: _ClassVar[Label]

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_SUPPORTED: _ClassVar[Decision]
    DECISION_REFUTED: _ClassVar[Decision]
    DECISION_UNDECIDED: _ClassVar[Decision]

class OutcomeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_KIND_UNSPECIFIED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_SCORED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_UNSCORED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_DECLINED: _ClassVar[OutcomeKind]
SUBMIT_STATUS_UNSPECIFIED: SubmitStatus
SUBMIT_STATUS_RECORDED: SubmitStatus
SUBMIT_STATUS_DUPLICATE: SubmitStatus
SUBMIT_STATUS_REFUSED: SubmitStatus
LABEL_UNSPECIFIED: Label
LABEL_DESCRIPTIVE: Label
LABEL_ANALYTICAL: Label
DECISION_UNSPECIFIED: Decision
DECISION_SUPPORTED: Decision
DECISION_REFUTED: Decision
DECISION_UNDECIDED: Decision
OUTCOME_KIND_UNSPECIFIED: OutcomeKind
OUTCOME_KIND_SCORED: OutcomeKind
OUTCOME_KIND_UNSCORED: OutcomeKind
OUTCOME_KIND_DECLINED: OutcomeKind

class Image(_message.Message):
    __slots__ = ("sha256", "data", "url")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    data: bytes
    url: str
    def __init__(self, sha256: _Optional[str] = ..., data: _Optional[bytes] = ..., url: _Optional[str] = ...) -> None: ...

class KnownFact(_message.Message):
    __slots__ = ("text", "holds")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    holds: bool
    def __init__(self, text: _Optional[str] = ..., holds: _Optional[bool] = ...) -> None: ...

class Triplet(_message.Message):
    __slots__ = ("subject", "relation", "object")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    relation: str
    object: str
    def __init__(self, subject: _Optional[str] = ..., relation: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class Reference(_message.Message):
    __slots__ = ("facts", "objects", "triplets", "complete")
    FACTS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    TRIPLETS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[KnownFact]
    objects: _containers.RepeatedScalarFieldContainer[str]
    triplets: _containers.RepeatedCompositeFieldContainer[Triplet]
    complete: bool
    def __init__(self, facts: _Optional[_Iterable[_Union[KnownFact, _Mapping]]] = ..., objects: _Optional[_Iterable[str]] = ..., triplets: _Optional[_Iterable[_Union[Triplet, _Mapping]]] = ..., complete: _Optional[bool] = ...) -> None: ...

class Earlier(_message.Message):
    __slots__ = ("text", "images")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    text: str
    images: _containers.RepeatedCompositeFieldContainer[Image]
    def __init__(self, text: _Optional[str] = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "model", "answer", "prompt", "tenant", "images", "reference", "tags", "protocols", "recorded_at", "declined", "earlier")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class DeclinedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    answer: str
    prompt: str
    tenant: str
    images: _containers.RepeatedCompositeFieldContainer[Image]
    reference: Reference
    tags: _containers.ScalarMap[str, str]
    protocols: _containers.RepeatedScalarFieldContainer[str]
    recorded_at: float
    declined: _containers.ScalarMap[str, str]
    earlier: Earlier
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., answer: _Optional[str] = ..., prompt: _Optional[str] = ..., tenant: _Optional[str] = ..., images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ..., reference: _Optional[_Union[Reference, _Mapping]] = ..., tags: _Optional[_Mapping[str, str]] = ..., protocols: _Optional[_Iterable[str]] = ..., recorded_at: _Optional[float] = ..., declined: _Optional[_Mapping[str, str]] = ..., earlier: _Optional[_Union[Earlier, _Mapping]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("response",)
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    response: Response
    def __init__(self, response: _Optional[_Union[Response, _Mapping]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("id", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: SubmitStatus
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[SubmitStatus, str]] = ...) -> None: ...

class SubmitStreamRequest(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class SubmitResult(_message.Message):
    __slots__ = ("id", "status", "reason", "field", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: SubmitStatus
    reason: str
    field: str
    message: str
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[SubmitStatus, str]] = ..., reason: _Optional[str] = ..., field: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class SubmitStreamResponse(_message.Message):
    __slots__ = ("first", "results")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    first: int
    results: _containers.RepeatedCompositeFieldContainer[SubmitResult]
    def __init__(self, first: _Optional[int] = ..., results: _Optional[_Iterable[_Union[SubmitResult, _Mapping]]] = ...) -> None: ...

class WatchScoresRequest(_message.Message):
    __slots__ = ("model", "tenant", "protocol", "after")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    model: str
    tenant: str
    protocol: str
    after: int
    def __init__(self, model: _Optional[str] = ..., tenant: _Optional[str] = ..., protocol: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class WatchScoresResponse(_message.Message):
    __slots__ = ("scored", "missed", "heartbeat")
    class Scored(_message.Message):
        __slots__ = ("position", "outcome")
        POSITION_FIELD_NUMBER: _ClassVar[int]
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        position: int
        outcome: Outcome
        def __init__(self, position: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...
    class Missed(_message.Message):
        __slots__ = ("count", "after")
        COUNT_FIELD_NUMBER: _ClassVar[int]
        AFTER_FIELD_NUMBER: _ClassVar[int]
        count: int
        after: int
        def __init__(self, count: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...
    class Heartbeat(_message.Message):
        __slots__ = ("position",)
        POSITION_FIELD_NUMBER: _ClassVar[int]
        position: int
        def __init__(self, position: _Optional[int] = ...) -> None: ...
    SCORED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    scored: WatchScoresResponse.Scored
    missed: WatchScoresResponse.Missed
    heartbeat: WatchScoresResponse.Heartbeat
    def __init__(self, scored: _Optional[_Union[WatchScoresResponse.Scored, _Mapping]] = ..., missed: _Optional[_Union[WatchScoresResponse.Missed, _Mapping]] = ..., heartbeat: _Optional[_Union[WatchScoresResponse.Heartbeat, _Mapping]] = ...) -> None: ...

class Judge(_message.Message):
    __slots__ = ("engine", "model", "prompt", "version", "fingerprint")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    engine: str
    model: str
    prompt: str
    version: str
    fingerprint: str
    def __init__(self, engine: _Optional[str] = ..., model: _Optional[str] = ..., prompt: _Optional[str] = ..., version: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("calls", "input_tokens", "output_tokens", "cost")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    def __init__(self, calls: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cost: _Optional[float] = ...) -> None: ...

class SubSentence(_message.Message):
    __slots__ = ("start", "end", "text", "label", "confidence")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    text: str
    label: Label
    confidence: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., label: _Optional[_Union[Label, str]] = ..., confidence: _Optional[float] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("x0", "y0", "x1", "y1", "score", "label", "image")
    X0_FIELD_NUMBER: _ClassVar[int]
    Y0_FIELD_NUMBER: _ClassVar[int]
    X1_FIELD_NUMBER: _ClassVar[int]
    Y1_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    x0: float
    y0: float
    x1: float
    y1: float
    score: float
    label: str
    image: int
    def __init__(self, x0: _Optional[float] = ..., y0: _Optional[float] = ..., x1: _Optional[float] = ..., y1: _Optional[float] = ..., score: _Optional[float] = ..., label: _Optional[str] = ..., image: _Optional[int] = ...) -> None: ...

class JudgedClaim(_message.Message):
    __slots__ = ("text", "category", "unit", "decision", "probability", "evidence", "parts", "boxes")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    text: str
    category: str
    unit: int
    decision: Decision
    probability: float
    evidence: str
    parts: _containers.RepeatedScalarFieldContainer[str]
    boxes: _containers.RepeatedCompositeFieldContainer[Box]
    def __init__(self, text: _Optional[str] = ..., category: _Optional[str] = ..., unit: _Optional[int] = ..., decision: _Optional[_Union[Decision, str]] = ..., probability: _Optional[float] = ..., evidence: _Optional[str] = ..., parts: _Optional[_Iterable[str]] = ..., boxes: _Optional[_Iterable[_Union[Box, _Mapping]]] = ...) -> None: ...

class Drawn(_message.Message):
    __slots__ = ("probability", "lowest", "stratum", "budget")
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    STRATUM_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    probability: float
    lowest: float
    stratum: str
    budget: str
    def __init__(self, probability: _Optional[float] = ..., lowest: _Optional[float] = ..., stratum: _Optional[str] = ..., budget: _Optional[str] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("id", "tenant", "model", "protocol", "run", "kind", "score", "values", "reason", "detail", "judges", "units", "claims", "eligible", "decided", "answer_words", "usage", "drawn", "tags", "recorded_at", "scored_at")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class JudgesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Judge
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Judge, _Mapping]] = ...) -> None: ...
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    JUDGES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_WORDS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_AT_FIELD_NUMBER: _ClassVar[int]
    SCORED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    tenant: str
    model: str
    protocol: str
    run: str
    kind: OutcomeKind
    score: float
    values: _containers.ScalarMap[str, float]
    reason: str
    detail: str
    judges: _containers.MessageMap[str, Judge]
    units: _containers.RepeatedCompositeFieldContainer[SubSentence]
    claims: _containers.RepeatedCompositeFieldContainer[JudgedClaim]
    eligible: int
    decided: int
    answer_words: int
    usage: Usage
    drawn: Drawn
    tags: _containers.ScalarMap[str, str]
    recorded_at: float
    scored_at: float
    def __init__(self, id: _Optional[str] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., protocol: _Optional[str] = ..., run: _Optional[str] = ..., kind: _Optional[_Union[OutcomeKind, str]] = ..., score: _Optional[float] = ..., values: _Optional[_Mapping[str, float]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., judges: _Optional[_Mapping[str, Judge]] = ..., units: _Optional[_Iterable[_Union[SubSentence, _Mapping]]] = ..., claims: _Optional[_Iterable[_Union[JudgedClaim, _Mapping]]] = ..., eligible: _Optional[int] = ..., decided: _Optional[int] = ..., answer_words: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., drawn: _Optional[_Union[Drawn, _Mapping]] = ..., tags: _Optional[_Mapping[str, str]] = ..., recorded_at: _Optional[float] = ..., scored_at: _Optional[float] = ...) -> None: ...

class GetResponseRequest(_message.Message):
    __slots__ = ("id", "tenant")
    ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    id: str
    tenant: str
    def __init__(self, id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class GetResponseResponse(_message.Message):
    __slots__ = ("response", "outcomes", "waiting")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    response: Response
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    waiting: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, response: _Optional[_Union[Response, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., waiting: _Optional[_Iterable[str]] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReportResponse(_message.Message):
    __slots__ = ("report",)
    REPORT_FIELD_NUMBER: _ClassVar[int]
    report: _struct_pb2.Struct
    def __init__(self, report: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
