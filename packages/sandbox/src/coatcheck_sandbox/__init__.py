"""A provider on this machine: it speaks their wire protocols, does the work for real, injects faults."""

from coatcheck_sandbox.errors import (
    DocumentUnreadable,
    EncoderMissing,
    EngineMissing,
    FaultInvalid,
    NotRunning,
    RequestRefused,
    SandboxError,
    UnknownPage,
)
from coatcheck_sandbox.faults import (
    Answer,
    Drop,
    FailingJob,
    Fault,
    HiddenJob,
    HugeBody,
    MalformedHttp,
    MalformedJson,
    NoResult,
    Operation,
    Redirect,
    SlowBody,
    Stall,
    StatusWord,
    TruncatedBody,
    When,
)
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.filming import Camera, Filmer, film_upload, order_of, sketch
from coatcheck_sandbox.jobs import Failure, Film, FilmOrder, Snapshot, State, Upload
from coatcheck_sandbox.log import DocumentStatistics, LoggedRequest
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.providers import all_protocols
from coatcheck_sandbox.providers.gitee import GiteeProtocol
from coatcheck_sandbox.reading import Block
from coatcheck_sandbox.recognize import Ocr, Recognition, RecognizedPage, Recognizer, describe
from coatcheck_sandbox.server import SandboxServer
from coatcheck_sandbox.similarity import character_accuracy

__all__ = [
    "Answer",
    "Block",
    "Camera",
    "DocumentStatistics",
    "DocumentUnreadable",
    "Drop",
    "EncoderMissing",
    "EngineMissing",
    "FailingJob",
    "Failure",
    "Fault",
    "FaultInvalid",
    "Film",
    "FilmOrder",
    "Filmer",
    "GiteeProtocol",
    "HiddenJob",
    "HugeBody",
    "LoggedRequest",
    "MalformedHttp",
    "MalformedJson",
    "NoResult",
    "NotRunning",
    "Ocr",
    "Operation",
    "Recognition",
    "RecognizedPage",
    "Recognizer",
    "Redirect",
    "Reply",
    "RequestRefused",
    "SandboxError",
    "SandboxServer",
    "SlowBody",
    "Snapshot",
    "Stall",
    "State",
    "StatusWord",
    "TruncatedBody",
    "UnknownPage",
    "Upload",
    "When",
    "WireProtocol",
    "all_protocols",
    "character_accuracy",
    "describe",
    "fetch_upload",
    "film_upload",
    "order_of",
    "read_json",
    "sketch",
]
