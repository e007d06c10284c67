"""What can go wrong in the sandbox itself (what it does to its clients is in `faults`).

SandboxError
├── NotRunning          the server was used before it was started, or could not start
├── UnknownPage         no page of that name is shipped
├── EngineMissing       the OCR engine is not installed
├── EncoderMissing      the video encoder is not installed
├── DocumentUnreadable  what was uploaded is neither an image nor a PDF
├── FaultInvalid        a fault was described that the sandbox does not know
└── RequestRefused      a provider's answer to a request that breaks its rules
"""


class SandboxError(Exception):
    """The root of all errors of this package."""


class NotRunning(SandboxError):
    """The server is not running."""


class UnknownPage(SandboxError):
    """No page of this name is shipped; `.name` is what was asked for."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no page {name!r} is shipped; choose one of {', '.join(known)}")
        self.name = name


class EngineMissing(SandboxError):
    """The OCR engine is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the OCR engine is not installed: run `pip install 'coatcheck-sandbox[ocr]'`, "
            "or pass `recognizer=describe` for answers without recognition"
        )


class EncoderMissing(SandboxError):
    """The video encoder is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the video encoder is not installed: run `pip install 'coatcheck-sandbox[video]'`, "
            "or pass `filmer=sketch` for a few bytes instead of a video"
        )


class DocumentUnreadable(SandboxError):
    """The document is neither an image nor a PDF that can be opened; `.name` is its file name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} can't be opened: send a PNG, JPEG, TIFF or PDF that is complete")
        self.name = name


class FaultInvalid(SandboxError):
    """A fault was described that the sandbox does not know."""


class RequestRefused(SandboxError):
    """The request breaks the provider's rules; `.status` and `.code` are how the provider says so."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
