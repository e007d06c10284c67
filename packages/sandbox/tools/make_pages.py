"""Make the sandbox's typeset pages: print a text, then spoil it as paper, ink and a scanner would.

Run with `pip install numpy opencv-python-headless pillow matplotlib font-source-serif-pro font-caladea`.
The result is the same for the same versions of these. Look at each page before you commit it.
"""  # noqa: INP001 - a script, not part of a package

import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scanner import Plane, Scan, scan_print

TEXTS = Path(__file__).parent / "texts"
PAGES = Path(__file__).parents[1] / "src" / "coatcheck_sandbox" / "pages"
OVERSAMPLING = 3
HEAD_LINES = 2
COLUMN_BREAK = "\n||\n"

LETTER = Scan(
    seed=1962, paper=(238, 231, 214), ink=(42, 40, 52), skew_degrees=0.7, warp_px=2.2, bleed=0.8,
    shadow=0.12, show_through=0.05, noise=4.5, blur_px=0.65, fold=True, grey=False,
)  # fmt: skip
GAZETTE = Scan(
    seed=1931, paper=(221, 208, 178), ink=(48, 43, 38), skew_degrees=-0.5, warp_px=3.0, bleed=1.5,
    shadow=0.35, show_through=0.13, noise=5.5, blur_px=0.7, fold=False, grey=False,
)  # fmt: skip
INVOICE = Scan(
    seed=1974, paper=(226, 226, 226), ink=(62, 62, 62), skew_degrees=1.1, warp_px=1.5, bleed=1.1,
    shadow=0.05, show_through=0.0, noise=7.0, blur_px=0.75, fold=True, grey=True,
)  # fmt: skip


def font(package: str, file: str, size_px: float) -> ImageFont.FreeTypeFont:
    """A font shipped by an installed package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        message = f"{package!r} is not installed; see this script's first lines"
        raise SystemExit(message)
    return ImageFont.truetype(Path(found.origin).parent / file, round(size_px * OVERSAMPLING))


class Press:
    """A sheet that lines of type are set on; all measures are pixels of the finished scan."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = size
        self._image = Image.new("L", (size[0] * OVERSAMPLING, size[1] * OVERSAMPLING), 0)
        self._draw = ImageDraw.Draw(self._image)

    def line(
        self, at: tuple[float, float], text: str, type_: ImageFont.FreeTypeFont, *, anchor: str = "ls"
    ) -> None:
        """Set one line on its base line."""
        self._draw.text(
            (at[0] * OVERSAMPLING, at[1] * OVERSAMPLING), text, fill=255, font=type_, anchor=anchor
        )

    def rule(self, start: tuple[float, float], end: tuple[float, float], width: float = 1.5) -> None:
        """Draw a rule."""
        points = [value * OVERSAMPLING for value in (*start, *end)]
        self._draw.line(points, fill=230, width=round(width * OVERSAMPLING))

    def plane(self) -> Plane:
        """The sheet as ink, 1 where all is black."""
        return np.asarray(self._image, dtype=np.float32) / 255


def letter(text: str) -> tuple[Press, tuple[int, int]]:
    """A letter on headed paper."""
    size = (1060, 1390)
    press = Press(size)
    body = font("font_source_serif_pro", "files/SourceSerifPro-Regular.ttf", 27)
    head = font("font_source_serif_pro", "files/SourceSerifPro-Bold.ttf", 34)
    y = 110.0
    for number, line in enumerate(text.splitlines()):
        if number < HEAD_LINES:
            press.line((size[0] / 2, y), line, head if number == 0 else body, anchor="ms")
        else:
            press.line((128, y), line, body)
        y += 44 if number < HEAD_LINES else 20 if not line else 37.5
    press.rule((128, 175), (size[0] - 128, 175))
    return press, size


def gazette(text: str) -> tuple[Press, tuple[int, int]]:
    """Two columns of a newspaper under its title."""
    size = (1200, 1220)
    press = Press(size)
    body = font("font_caladea", "files/Caladea-Regular.ttf", 26)
    bold = font("font_caladea", "files/Caladea-Bold.ttf", 26)
    title, date, _, *rest = text.splitlines()
    press.line((600, 120), title, font("font_caladea", "files/Caladea-Bold.ttf", 62), anchor="ms")
    press.line((600, 178), date, body, anchor="ms")
    for y in (140, 198):
        press.rule((90, y), (1110, y), 2)
    for column, lines in enumerate("\n".join(rest).split(COLUMN_BREAK)):
        left, y = 92 + 532 * column, 262.0
        for line in lines.splitlines():
            press.line((left, y), line, bold if line.isupper() else body)
            y += 34 if not line else 40.5
    press.rule((594, 236), (594, 1130))
    return press, size


def invoice(text: str) -> tuple[Press, tuple[int, int]]:
    """A typed carbon copy."""
    size = (1040, 1120)
    press = Press(size)
    body = font("matplotlib", "mpl-data/fonts/ttf/cmtt10.ttf", 32)
    for number, line in enumerate(text.splitlines()):
        press.line((96, 118 + number * 41.0), line, body)
    return press, size


def main() -> None:
    """Write each page and the text that was printed on it."""
    for name, set_type, scan in (
        ("letter", letter, LETTER),
        ("gazette", gazette, GAZETTE),
        ("invoice", invoice, INVOICE),
    ):
        text = (TEXTS / f"{name}.txt").read_text(encoding="utf-8")
        press, size = set_type(text)
        behind, _ = set_type("\n".join(reversed(text.replace(COLUMN_BREAK, "\n").splitlines())))
        image = Image.fromarray(scan_print(press.plane(), behind.plane(), scan, size))
        finished = image.convert("L") if scan.grey else image
        finished.save(PAGES / f"{name}.jpg", quality=62, dpi=(150, 150))
        (PAGES / f"{name}.txt").write_text(text.replace(COLUMN_BREAK, "\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
