"""Params: what can be submitted, and what is refused before anything is sent."""

from __future__ import annotations

import io
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Never, cast

from coatcheck.handler import AnyHandler, params_type_of
from coatcheck.persistable import from_json, to_json
from coatcheck_conformance.handler.calls import ask_alike
from coatcheck_conformance.handler.shapes import Slot, document_slots, nested_slots, slots
from coatcheck_conformance.handler.spec import HandlerHook, HandlerSpec
from coatcheck_conformance.handler.trial import Trial, handler_rule, opening_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Keys", "Params"]

_ADVICE = re.compile(r"upload|submit|\bURLs?\b")
"""What to do instead, in the words of coatcheck's own messages."""
_BASE64 = "JVBERi0xLjcKJcfsj6IKNSAwIG9iago8PC9MZW5ndGggNiAwIFI+" * 40
_LOCAL = {
    "a file: URL": "file:///srv/scan.pdf",
    "a file: URL in capitals": "FILE:///srv/scan.pdf",
    "an absolute path": "/srv/scan.pdf",
    "a relative path": "./scan.pdf",
    "a name of a file": "scan.pdf",
    "a path of Windows": "C:\\scans\\scan.pdf",
}
_INLINE = {
    "a data: URL": "data:application/pdf;base64,JVBERi0xLjcK",
    "a data: URL in capitals": "DATA:application/pdf;base64,JVBERi0xLjcK",
    "a body in base64": _BASE64,
}


@contextmanager
def _objects() -> Iterator[Mapping[str, object]]:
    """Give objects that end with this process, by name."""
    with ExitStack() as stack:
        yield {
            "a pathlib path": Path("/srv/scan.pdf"),
            "an open file": stack.enter_context(tempfile.TemporaryFile()),
            "a stream": io.BytesIO(b"%PDF"),
            "bytes": b"%PDF",
            "a bytearray": bytearray(b"%PDF"),
            "a generator": (each for each in (b"%PDF",)),
            "a socket": stack.enter_context(socket.socket()),
        }


def _refusal(handler: AnyHandler, slot: Slot, value: object) -> str | None:
    """Return the message with which the params are refused, as the manager asks, or None."""
    try:
        params = slot.put(value)
        to_json(params)
        handler.validate(cast("Never", params))
    except Exception as error:  # noqa: BLE001 - the classes of params raise what they like
        return f"{type(error).__name__}: {error}"
    return None


class Params(Suite):
    """Local files, streams and bytes are refused before anything is sent, with a message that says what to do."""

    def _refuses(
        self, trial: Trial, where: Callable[[object], list[Slot]], values: Mapping[str, object]
    ) -> None:
        for slot in where(trial.params):
            for name, value in values.items():
                assert _refusal(trial.handler, slot, value) is not None, (
                    f"params with {name} in {slot.name!r} are accepted; refuse them in validate() or in the class"
                )

    @handler_rule("HANDLER-PARAMS-1")
    async def test_good_params_come_back_equal_and_are_submitted_alike(self, trial: Trial) -> None:
        """Params survive the round trip through the store by equality, and what comes back is submitted alike."""
        params = trial.params
        trial.handler.validate(cast("Never", params))
        assert not trial.server.requests, "validate() did I/O"
        back = from_json(to_json(params), type(params))
        assert back == params, f"{params!r} comes back as {back!r}"
        one, again, other = [await trial.submit(params=each) for each in (params, params, back)]
        assert ask_alike(one, again, other), f"what comes back leads to {other.traffic}, not to {one.traffic}"
        assert one.submitted.status is other.submitted.status

    @handler_rule("HANDLER-PARAMS-2", requires=(HandlerHook.FIELDS,))
    async def test_files_streams_and_bytes_are_refused(self, trial: Trial) -> None:
        """Paths, file objects, streams, bytes, generators and sockets are refused, in whatever field."""
        with _objects() as objects:
            self._refuses(trial, slots, objects)

    @handler_rule("HANDLER-PARAMS-3", requires=(HandlerHook.DOCUMENTS,))
    async def test_local_files_by_name_are_refused(self, trial: Trial) -> None:
        """`file://` and bare local paths are refused where a document's URL is to stand."""
        self._refuses(trial, document_slots, _LOCAL)

    @handler_rule("HANDLER-PARAMS-4", requires=(HandlerHook.DOCUMENTS,))
    async def test_bodies_in_place_of_urls_are_refused(self, trial: Trial) -> None:
        """`data:` and base64 bodies are refused where a document's URL is to stand."""
        self._refuses(trial, document_slots, _INLINE)

    @handler_rule("HANDLER-PARAMS-5", requires=(HandlerHook.NESTED,))
    async def test_nested_ones_are_refused(self, trial: Trial) -> None:
        """`file://`, `data:` and base64 bodies are refused at any depth."""
        plain = ("a file: URL", "a data: URL", "a body in base64")
        self._refuses(trial, nested_slots, {name: {**_LOCAL, **_INLINE}[name] for name in plain})

    @handler_rule("HANDLER-PARAMS-6", requires=(HandlerHook.DOCUMENTS,))
    async def test_a_refusal_says_what_to_do(self, trial: Trial) -> None:
        """A refusal says what to do: "upload it and submit a URL"."""
        with _objects() as objects:
            for slot in document_slots(trial.params):
                for name, value in {**objects, **_LOCAL, **_INLINE}.items():
                    refusal = _refusal(trial.handler, slot, value)
                    assert refusal is None or _ADVICE.search(refusal), (
                        f"{name} in {slot.name!r} is refused with {refusal!r}, "
                        "which does not say to upload it and submit a URL"
                    )


class Keys(Suite):
    """A handler is found by its stable key and by the exact type of its params."""

    @opening_rule("HANDLER-KEY-1")
    def test_the_key_is_the_given_one(self, handler_spec: HandlerSpec) -> None:
        """`key` is what the factory is called with: stable, and persisted with every task."""
        for key in (handler_spec.key, "kit:renamed"):
            made = handler_spec.create("http://127.0.0.1:9", accounts=handler_spec.accounts or None, key=key)
            assert made.key == key, f"made with key={key!r} its key is {made.key!r}"

    @opening_rule("HANDLER-KEY-2")
    def test_the_params_type_is_that_of_the_params(self, handler_spec: HandlerSpec) -> None:
        """`P` is resolved from the generic declaration, once; routing is by exact params type."""
        handler = handler_spec.create("http://127.0.0.1:9", accounts=handler_spec.accounts or None)
        params = handler_spec.params("http://127.0.0.1:9")
        declared = params_type_of(handler)
        assert declared is type(params), f"the handler takes {declared.__name__}, not {type(params).__name__}"
