"""Requests written as data, with ``{placeholders}`` for what is known when they are made."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import field, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.task import JSON
from coatcheck_http.extract import lookup
from coatcheck_http.messages import FilePart, HttpRequest
from coatcheck_http.urls import segment

__all__ = ["RequestTemplate", "check_paths", "split_paths"]

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_STRAY = re.compile(r"[{}]")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_STEP = re.compile(r"[^\s.|]+")


@frozen(kw_only=True)
class RequestTemplate:
    """A request in which ``{name}`` stands for a value, and ``{options.dpi}`` for a member of one.

    In `json`, a string that is nothing but a placeholder becomes the value itself, of whatever type; a member or
    item whose value is not there is left out. Anywhere else values become text: a list its items joined by commas.
    ``{{`` and ``}}`` are braces.
    """

    path: str
    """Below the base URL; values become one segment each."""
    method: str = "POST"
    query: Mapping[str, str] = field(factory=dict)
    headers: Mapping[str, str] = field(factory=dict)
    json: JSON = None
    form: Mapping[str, str] = field(factory=dict)
    file_field: str | None = None
    """The field of a multipart form in which the document itself is sent; the handler downloads it first."""

    def check(self, names: Collection[str], *, where: str) -> None:
        """Refuse what can never become a request.

        Args:
            names: the placeholders that there are.
            where: what to call the template in messages, such as ``submit``.

        Raises:
            ConfigurationError: a placeholder is unknown or a brace stray, the path is no path, there are two
                bodies, or the method is none; the message leads to the place.
        """
        if self.method.upper() not in _METHODS:
            message = f"{where}.method is {self.method!r}; possible are {', '.join(sorted(_METHODS))}"
            raise ConfigurationError(message)
        if not self.path.startswith("/"):
            message = f"{where}.path must be below the base URL and begin with '/', not {self.path!r}"
            raise ConfigurationError(message)
        if self.json is not None and (self.form or self.file_field):
            message = f"{where} has both json and a form; a request has one body"
            raise ConfigurationError(message)
        for place, text in self._texts(where):
            _check_text(text, names, place)

    def used(self) -> frozenset[str]:
        """Return the first parts of all placeholders, such as ``options``."""
        found = (_PLACEHOLDER.findall(_without_escapes(text)) for _, text in self._texts(""))
        return frozenset(name.partition(".")[0] for names in found for name in names)

    def render(self, values: Mapping[str, JSON], *, file: FilePart | None = None) -> HttpRequest:
        """Return the request with these values in it.

        Raises:
            InvalidParams: a value that the path needs is not there, or cannot be in a path.
        """
        return HttpRequest(
            method=self.method.upper(),
            url=_PLACEHOLDER.sub(lambda found: segment(_needed(found[1], values)), self.path),
            query=_filled(self.query, values),
            headers=_filled(self.headers, values),
            json=_render(self.json, values),
            form=_filled(self.form, values),
            files=() if file is None else (file,),
        )

    def _texts(self, where: str) -> Iterator[tuple[str, str]]:
        yield f"{where}.path", self.path
        for name in ("query", "headers", "json", "form"):
            yield from _strings(getattr(self, name), f"{where}.{name}")


def split_paths(text: str | None) -> tuple[str, ...]:
    """Return the paths that ``"data.id | id"`` names, to be tried in this order; None names none."""
    return () if text is None else tuple(each.strip() for each in text.split("|"))


def check_paths(text: str | None, *, where: str) -> None:
    """Refuse what is no path into an answer, such as ``data.items.0.id``, and no choice of such.

    Raises:
        ConfigurationError: it is not; the message says where it stands.
    """
    for path in split_paths(text):
        if not path or any(_STEP.fullmatch(step) is None for step in path.split(".")):
            message = (
                f"{where}: {path!r} is no path into an answer; write names with dots between them, such as "
                "'data.items.0.id', and '|' between paths to be tried one after the other"
            )
            raise ConfigurationError(message)


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _strings(each, f"{place}.{name}")
    elif isinstance(value, Sequence):
        for index, each in enumerate(value):
            yield from _strings(each, f"{place}.{index}")


def _check_text(text: str, names: Collection[str], place: str) -> None:
    for name in _PLACEHOLDER.findall(_without_escapes(text)):
        if name.partition(".")[0] not in names:
            message = f"{place} has the placeholder {{{name}}}; possible are {', '.join(sorted(names))}"
            raise ConfigurationError(message)
    if _STRAY.search(_PLACEHOLDER.sub("", _without_escapes(text))):
        message = f"{place} has a brace that is no placeholder: {text!r}; write {{{{ and }}}} for braces"
        raise ConfigurationError(message)


def _without_escapes(text: str) -> str:
    return text.replace("{{", "").replace("}}", "")


def _value(name: str, values: Mapping[str, JSON]) -> JSON:
    return lookup(values, name)


def _needed(name: str, values: Mapping[str, JSON]) -> str:
    text = _text(_value(name, values))
    if not text:
        message = f"the request's path needs {name!r}, which this task has not"
        raise InvalidParams(message)
    return text


def _text(value: JSON) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return ",".join(str(each) for each in value)
    return json.dumps(value, ensure_ascii=False)


def _fill(text: str, values: Mapping[str, JSON]) -> str:
    """Return `text` with values in it; doubled braces are put aside first, so that no value is taken for one."""
    parts = re.split(r"(\{\{|\}\})", text)
    return "".join(
        part[0]
        if part in {"{{", "}}"}
        else _PLACEHOLDER.sub(lambda found: _text(_value(found[1], values)), part)
        for part in parts
    )


def _filled(texts: Mapping[str, str], values: Mapping[str, JSON]) -> dict[str, str]:
    """Return texts with values in them; one that is nothing but a value that is not there is left out."""
    return {
        name: _fill(text, values)
        for name, text in texts.items()
        if not (_whole(text) and _value(text[1:-1], values) in (None, [], (), {}))
    }


def _whole(text: str) -> bool:
    return _PLACEHOLDER.fullmatch(text) is not None


def _render(document: JSON, values: Mapping[str, JSON]) -> JSON:
    if isinstance(document, str):
        if _whole(document):
            found = _value(document[1:-1], values)
            return list(found) if isinstance(found, tuple) else found
        return _fill(document, values)
    if isinstance(document, Mapping):
        rendered = {name: _render(each, values) for name, each in document.items()}
        return {name: each for name, each in rendered.items() if not _left_out(document[name], each)}
    if isinstance(document, Sequence):
        return [made for each in document for made in (_render(each, values),) if not _left_out(each, made)]
    return document


def _left_out(template: JSON, made: JSON) -> bool:
    """Whether a placeholder stood for what is not there; a null that somebody wrote stays."""
    return isinstance(template, str) and _whole(template) and made in (None, [], {})
