"""Requests for providers that run anybody's models, each of which has inputs with names of its own."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.task import JSON
from coatcheck_handler_video.request import VideoRequest

__all__ = ["INPUT_FIELDS", "check_input_names", "read_inputs"]

INPUT_FIELDS = frozenset(
    {
        "prompt", "negative_prompt", "first_frame", "last_frame", "reference_images", "reference_videos",
        "source_video", "audio_url", "duration", "resolution", "width", "height", "aspect_ratio", "fps", "seed",
        "watermark", "audio",
    }
)  # fmt: skip
"""The fields of a request that can be inputs of a model."""


def check_input_names(names: Mapping[str, str]) -> None:
    """Refuse names for what is no field of a request.

    Raises:
        ConfigurationError: there is such a thing; the message names it.
    """
    foreign = sorted(set(names) - INPUT_FIELDS)
    if foreign:
        message = (
            f"input_names has {', '.join(map(repr, foreign))}; the fields of a request that can be named are "
            f"{', '.join(sorted(INPUT_FIELDS))}"
        )
        raise ConfigurationError(message)


def read_inputs(
    handler_key: str, params: VideoRequest, names: Mapping[str, str], *, duration: JSON
) -> dict[str, JSON]:
    """Return what a request says, under the names of the model's inputs, over its options.

    Args:
        handler_key: for messages.
        params: the request.
        names: by field; a field without a name, or with an empty one, is no input of the model.
        duration: as the model takes it, or None.

    Raises:
        InvalidParams: the request has a field that is no input of the model.
    """
    given: dict[str, JSON] = {name: getattr(params, name) for name in INPUT_FIELDS}
    given["prompt"] = params.prompt.strip() and params.prompt
    given["duration"] = duration
    given["reference_images"] = list(params.reference_images)
    given["reference_videos"] = list(params.reference_videos)
    own: dict[str, JSON] = {}
    for name, value in given.items():
        if value in (None, "", []):
            continue
        called = names.get(name, "")
        if not called:
            message = (
                f"the model has no input for `{name}` that {handler_key} knows of; name it in the setting "
                "input_names, or use `options`"
            )
            raise InvalidParams(message)
        own[called] = value
    return {**params.options, **own}
