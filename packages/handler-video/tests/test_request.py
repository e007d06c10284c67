from datetime import timedelta

import pytest

from coatcheck.errors import InvalidParams
from coatcheck.persistable import from_json, to_json
from coatcheck_handler_video import VideoMode, VideoRequest

URL = "https://files.example.com/a.png"
CLIP = "https://files.example.com/a.mp4"
SOUND = "https://files.example.com/a.mp3"


@pytest.mark.parametrize(
    ("materials", "mode"),
    [
        ({}, VideoMode.TEXT),
        ({"audio_url": SOUND}, VideoMode.TEXT),
        ({"first_frame": URL}, VideoMode.FIRST_FRAME),
        ({"first_frame": URL, "last_frame": URL}, VideoMode.FIRST_LAST_FRAME),
        ({"reference_images": [URL, URL]}, VideoMode.REFERENCE_IMAGES),
        ({"reference_images": [URL], "reference_videos": [CLIP]}, VideoMode.OMNI_REFERENCE),
        ({"reference_videos": [CLIP]}, VideoMode.OMNI_REFERENCE),
        ({"source_video": CLIP}, VideoMode.VIDEO_TO_VIDEO),
        ({"source_video": CLIP, "reference_images": [URL]}, VideoMode.VIDEO_TO_VIDEO),
        ({"first_frame": URL, "reference_images": [URL]}, VideoMode.OMNI_REFERENCE),
        ({"mode": "audio_driven", "audio_url": SOUND, "first_frame": URL}, VideoMode.AUDIO_DRIVEN),
        ({"mode": VideoMode.OMNI_REFERENCE, "first_frame": URL}, VideoMode.OMNI_REFERENCE),
    ],
)
def test_the_mode_goes_by_the_materials(materials: dict[str, object], mode: VideoMode) -> None:
    """Unless the request says it."""
    request = VideoRequest(prompt="a coat", **materials)  # type: ignore[arg-type] # a table of fields
    assert request.resolved_mode is mode


def test_a_request_can_be_stored() -> None:
    """And comes back as it was."""
    request = VideoRequest(
        prompt="a coat",
        negative_prompt="rain",
        mode=VideoMode.FIRST_LAST_FRAME,
        first_frame=URL,
        last_frame=URL,
        duration=timedelta(seconds=5),
        width=1280,
        height=720,
        aspect_ratio="16:9",
        fps=24,
        seed=7,
        watermark=False,
        audio=True,
        model="m",
        options={"camera": {"fixed": True}},
    )
    assert from_json(to_json(request), VideoRequest) == request
    assert request.size == (1280, 720)
    assert VideoRequest(prompt="p").size is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "neither"),
        ({"prompt": " "}, "neither"),
        ({"first_frame": "/home/me/a.png"}, "first_frame"),
        ({"first_frame": "file:///a.png"}, "first_frame is a file: URL"),
        ({"source_video": "data:video/mp4;base64,AAAA"}, "source_video is a data: URL"),
        ({"reference_images": [URL, "a.png"]}, r"reference_images\[1\]"),
        ({"reference_images": URL}, "sequence of URLs"),
        ({"reference_videos": ["clip.mp4"]}, r"reference_videos\[0\]"),
        ({"audio_url": b"RIFF"}, "audio_url"),
        ({"prompt": "p", "options": {"image": "data:image/png;base64,AA"}}, r"options\.image"),
        ({"prompt": "p", "last_frame": URL}, "last_frame needs a first_frame"),
        ({"prompt": "p", "mode": "silent"}, "possible are text, first_frame"),
        ({"prompt": "p", "mode": "first_frame"}, "mode first_frame needs first_frame"),
        ({"prompt": "p", "mode": "first_last_frame", "first_frame": URL}, "needs last_frame"),
        ({"prompt": "p", "mode": "text", "first_frame": URL}, "mode text does not go with first_frame"),
        ({"mode": "audio_driven", "first_frame": URL}, "needs audio_url"),
        ({"prompt": "p", "duration": timedelta()}, "duration must be positive"),
        ({"prompt": "p", "width": 1280}, "width and height go together"),
        ({"prompt": "p", "width": 0, "height": 720}, "width and height must be positive"),
        ({"prompt": "p", "resolution": "720p", "width": 1280, "height": 720}, "give resolution, or width"),
        ({"prompt": "p", "resolution": " "}, "resolution must not be blank"),
        ({"prompt": "p", "fps": 0}, "fps must be positive"),
        ({"prompt": "p", "seed": -1}, "seed must not be negative"),
        ({"prompt": "p", "aspect_ratio": "wide"}, "aspect_ratio must look like"),
        ({"prompt": 7}, "prompt must be str, not int"),
        ({"prompt": "p", "duration": 5}, "duration must be timedelta, not int"),
        ({"prompt": "p", "fps": "24"}, "fps must be int, not str"),
        ({"prompt": "p", "reference_images": 3}, "a sequence of URLs is wanted, not int"),
        ({"prompt": "p", "first_frame": 3}, "first_frame must be an http or https URL, not int"),
        ({"prompt": "p", "model": ""}, "model must not be blank"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object], says: str) -> None:
    """With the field, and the way out."""
    with pytest.raises(InvalidParams, match=says):
        VideoRequest(**fields)  # type: ignore[arg-type] # a table of fields


def test_local_materials_are_refused_with_the_way_out() -> None:
    """Upload it, and submit a URL."""
    with pytest.raises(InvalidParams, match="upload it and submit a URL"):
        VideoRequest(first_frame="a.png")
