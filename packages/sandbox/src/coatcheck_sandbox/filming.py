"""Making videos: a real encoder, and a stand-in where none is installed."""

import hashlib
import importlib
import importlib.util
import io
import math
import textwrap
from fractions import Fraction
from typing import Any, Protocol

from attrs import field, frozen

from coatcheck_sandbox.errors import EncoderMissing
from coatcheck_sandbox.jobs import Film, FilmOrder, Upload

__all__ = ["Camera", "Filmer", "film_upload", "order_of", "sketch"]

_MODULES = ("av", "PIL", "numpy")
_MAX_SECONDS = 20.0
_MAX_PIXELS = 1920
_LETTERS_A_LINE = 34


class Filmer(Protocol):
    """Makes a video; called in a worker thread, one at a time."""

    def __call__(self, order: FilmOrder) -> Film:
        """The video that was ordered."""
        ...


def sketch(order: FilmOrder) -> Film:
    """A few bytes instead of a video, the same for the same order: works without an encoder, and at once."""
    digest = hashlib.sha256(repr(order).encode()).hexdigest()
    content = f"no video, but a sketch of one: {order.prompt[:200]!r} {digest}".encode()
    return Film(content=content, seconds=order.seconds, width=order.width, height=order.height, fps=order.fps)


@frozen
class Camera:
    """Renders the prompt over a moving picture, as H.264 in MP4, with the encoder that comes inside PyAV's wheel.

    What a provider's model would do can't be done here; everything else about the file is as real as theirs.
    """

    codec: str = "libx264"

    def __call__(self, order: FilmOrder) -> Film:
        """The video that was ordered.

        Raises:
            EncoderMissing: PyAV, Pillow or numpy is not installed.
        """
        if any(importlib.util.find_spec(name) is None for name in _MODULES):
            raise EncoderMissing
        av = importlib.import_module("av")
        width, height = (2 * max(8, min(_MAX_PIXELS, side) // 2) for side in (order.width, order.height))
        seconds = min(_MAX_SECONDS, max(order.seconds, 1 / order.fps))
        out = io.BytesIO()
        with av.open(out, "w", format="mp4") as container:
            stream = container.add_stream(self.codec, rate=Fraction(order.fps))
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            painter = _Painter(order=order, width=width, height=height)
            count = max(1, round(seconds * order.fps))
            for index in range(count):
                frame = av.VideoFrame.from_ndarray(painter.paint(index / count), format="rgb24")
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return Film(
            content=out.getvalue(), seconds=count / order.fps, width=width, height=height, fps=order.fps
        )


@frozen(kw_only=True)
class _Painter:
    """Paints one frame after the other."""

    order: FilmOrder
    width: int
    height: int
    _numpy: Any = field(factory=lambda: importlib.import_module("numpy"), repr=False)

    def paint(self, share: float) -> Any:  # noqa: ANN401 - an array of a library that may be missing
        """The frame at this share of the time, as an array of height, width and three colours."""
        numpy = self._numpy
        image_module = importlib.import_module("PIL.Image")
        draw_module = importlib.import_module("PIL.ImageDraw")
        rows, columns = numpy.mgrid[0 : self.height, 0 : self.width]
        turn = 2 * math.pi * share + self.order.seed % 97
        wave = numpy.sin(columns / 40 + turn) + numpy.cos(rows / 30 - turn)
        colours = numpy.stack([wave, numpy.roll(wave, 9, 0), numpy.roll(wave, 9, 1)], axis=-1)
        image = image_module.fromarray((colours * 50 + 110).clip(0, 255).astype("uint8"))
        draw = draw_module.Draw(image)
        text = "\n".join(_lines(self.order.prompt or "coatcheck sandbox"))
        draw.multiline_text((8, 8), text, fill=(255, 255, 255), stroke_width=2, stroke_fill=(0, 0, 0))
        draw.rectangle((0, self.height - 6, int(self.width * share), self.height), fill=(255, 255, 255))
        return numpy.asarray(image)


def _lines(text: str) -> list[str]:
    plain = text.encode("latin-1", "replace").decode(
        "latin-1"
    )  # what the font that comes with Pillow can show
    return textwrap.wrap(plain[:400], _LETTERS_A_LINE)


def film_upload(
    order: FilmOrder, *, model: str = "", token: str | None = None, reference: str | None = None
) -> Upload:
    """What a creating request for a video brought; its document is the prompt."""
    return Upload(
        name=order.prompt or "(no prompt)",
        content=repr(order).encode(),
        model=model,
        token=token,
        reference=reference,
        film=order,
    )


def order_of(
    prompt: object,
    *,
    seconds: object = None,
    width: object = None,
    height: object = None,
    fps: object = None,
    seed: object = None,
) -> FilmOrder:
    """The order that a request's values make; what is missing or no number is small and short."""
    return FilmOrder(
        prompt=str(prompt or ""),
        seconds=_number(seconds, 2.0),
        width=int(_number(width, 320)),
        height=int(_number(height, 180)),
        fps=max(1, int(_number(fps, 12))),
        seed=int(_number(seed, 0)),
    )


def _number(value: object, otherwise: float) -> float:
    try:
        found = float(str(value))
    except ValueError:
        return otherwise
    return found if math.isfinite(found) and found > 0 else otherwise
