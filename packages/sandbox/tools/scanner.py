"""What paper, ink, light and a scanner do to a clean rendering.

Everything is drawn from one seeded generator, so that a page comes out the same each time.
"""  # noqa: INP001 - a script's helper, not part of a package

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]
_STRAY_INK = 0.03


@dataclass(frozen=True, kw_only=True)
class Scan:
    """How badly one page was treated."""

    seed: int
    paper: tuple[int, int, int]
    ink: tuple[int, int, int]
    skew_degrees: float
    warp_px: float
    """How far the sheet's waves move the print, in pixels of the finished scan."""
    bleed: float
    """How far ink creeps into the paper: 0 is a laser print, 2 is newsprint."""
    shadow: float
    """How dark the gutter at the left edge is, 0 to 1."""
    show_through: float
    """How much of the other side is seen, 0 to 1."""
    noise: float
    """Standard deviation of the sensor's noise, in grey levels."""
    blur_px: float
    fold: bool
    """Whether the sheet was once folded across the middle."""
    grey: bool
    """Whether the scanner was set to greyscale."""


def clouds(rng: np.random.Generator, shape: tuple[int, int], size_px: float) -> Plane:
    """Smooth noise with features of about `size_px`, mean 0 and standard deviation 1."""
    small = (max(2, int(shape[0] / size_px) + 2), max(2, int(shape[1] / size_px) + 2))
    coarse = rng.standard_normal(small).astype(np.float32)
    field = cv2.resize(coarse, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC)
    return np.asarray((field - field.mean()) / (field.std() + 1e-6), dtype=np.float32)


def press(ink: Plane, scan: Scan, rng: np.random.Generator) -> Plane:
    """Ink on paper: edges creep along the fibres, the pressure varies, and specks stay white."""
    shape = (ink.shape[0], ink.shape[1])
    spread = cv2.GaussianBlur(ink, (0, 0), 1.0 + scan.bleed)
    ragged = spread + 0.09 * clouds(rng, shape, 3) + 0.07 * clouds(rng, shape, 9)
    edge = 1 / (1 + np.exp(-(ragged - 0.5 + 0.05 * scan.bleed) * 11))
    pressure = np.clip(0.86 + 0.07 * clouds(rng, shape, 260) + 0.07 * clouds(rng, shape, 5), 0.3, 1)
    return np.asarray(edge * pressure * (spread > _STRAY_INK), dtype=np.float32)


def sheet(shape: tuple[int, int], scan: Scan, rng: np.random.Generator) -> Plane:
    """The paper without print: its colour, fibres, mottling, stains and the fold."""
    grain = 2.2 * clouds(rng, shape, 2) + 1.8 * clouds(rng, shape, 7) + 2.6 * clouds(rng, shape, 60)
    stains = np.clip(clouds(rng, shape, 420) - 0.9, 0, None) * 9
    base = np.array(scan.paper, dtype=np.float32) + grain[..., None]
    base -= stains[..., None] * np.array([0.6, 1.0, 1.7], dtype=np.float32)
    if scan.fold:
        rows = np.arange(shape[0], dtype=np.float32)
        crease = shape[0] * 0.497 + 4 * clouds(rng, (1, shape[1]), 300)[0]
        distance = rows[:, None] - crease[None, :]
        base -= (26 * np.exp(-((distance / 3.5) ** 2)))[..., None]
        base += (9 * np.exp(-(((distance + 9) / 8) ** 2)))[..., None]
    return np.asarray(base, dtype=np.float32)


def lay_on_glass(page: Plane, scan: Scan, rng: np.random.Generator, scale: float) -> Plane:
    """Turn the sheet a little, let it wave, and show the lid behind its edges."""
    height, width = page.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), scan.skew_degrees, 0.985)
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    shape = (height, width)
    bend = scan.warp_px * scale
    from_x = columns + bend * 0.5 * clouds(rng, shape, 900)
    from_y = rows + bend * clouds(rng, shape, 700) + bend * 0.9 * np.exp(-columns / (width * 0.12))
    inverse = cv2.invertAffineTransform(turn)
    x = inverse[0, 0] * from_x + inverse[0, 1] * from_y + inverse[0, 2]
    y = inverse[1, 0] * from_x + inverse[1, 1] * from_y + inverse[1, 2]
    lid = (96.0, 94.0, 90.0)
    moved = cv2.remap(
        page, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT, borderValue=lid,
    )  # fmt: skip
    return np.asarray(moved, dtype=np.float32)


def light(page: Plane, scan: Scan, rng: np.random.Generator) -> Plane:
    """An uneven lamp, and the shadow of the gutter."""
    height, width = page.shape[:2]
    across = np.linspace(0, 1, width, dtype=np.float32)[None, :]
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    lamp = 1 - 0.05 * down - 0.04 * (across - 0.45) ** 2 * 4 + 0.012 * clouds(rng, (height, width), 800)
    gutter = 1 - scan.shadow * np.exp(-across / 0.07)
    return np.asarray(page * (lamp * gutter)[..., None], dtype=np.float32)


def dust(page: Plane, rng: np.random.Generator) -> Plane:
    """Specks and hairs on the glass."""
    height, width = page.shape[:2]
    for _ in range(90):
        at = (int(rng.integers(width)), int(rng.integers(height)))
        shade = float(rng.choice([70, 110, 150, 246]))
        cv2.circle(page, at, int(rng.integers(1, 4)), (shade, shade, shade), -1, cv2.LINE_AA)
    for _ in range(4):
        start = np.array([rng.integers(width), rng.integers(height)], dtype=np.float32)
        steps = np.cumsum(rng.normal(0, 6, (24, 2)) + rng.normal(0, 7, 2), axis=0)
        hair = (start + steps).astype(np.int32).reshape(-1, 1, 2)
        cv2.polylines(page, [hair], isClosed=False, color=(120, 116, 112), thickness=2, lineType=cv2.LINE_AA)
    return page


def sense(page: Plane, scan: Scan, rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Optics and sensor: blur, the pixel grid, colour fringes, streaks along the head's travel, noise."""
    soft = cv2.GaussianBlur(page, (0, 0), scan.blur_px * page.shape[1] / size[0])
    small = cv2.resize(soft, size, interpolation=cv2.INTER_AREA)
    if not scan.grey:
        fringe = np.float32([[1, 0, 0], [0, 1, 0.35]])
        small[..., 2] = cv2.warpAffine(small[..., 2], fringe, size, borderMode=cv2.BORDER_REPLICATE)
    small *= (1 + 0.006 * rng.standard_normal((1, size[0], 1))).astype(np.float32)
    grain = rng.normal(0, scan.noise, small.shape[:2] + ((1,) if scan.grey else (3,)))
    small = small + grain * (0.7 + 0.3 * small / 255)
    if scan.grey:
        small = np.repeat(small.mean(axis=2, keepdims=True), 3, axis=2)
    return np.asarray(np.clip(small, 0, 255), dtype=np.uint8)


def scan_print(print_: Plane, other_side: Plane, scan: Scan, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scan a rendering (1 is ink, 0 is paper) with another one on the sheet's back, at `size` in pixels."""
    rng = np.random.default_rng(scan.seed)
    shape = (print_.shape[0], print_.shape[1])
    page = sheet(shape, scan, rng)
    ghost = cv2.GaussianBlur(np.ascontiguousarray(other_side[:, ::-1]), (0, 0), 7)
    page *= (1 - scan.show_through * ghost)[..., None]
    ink = press(print_, scan, rng)[..., None]
    colour = np.array(scan.ink, dtype=np.float32) + 7 * clouds(rng, shape, 4)[..., None]
    page = np.asarray(page * (1 - ink) + colour * ink, dtype=np.float32)
    page = lay_on_glass(page, scan, rng, shape[1] / size[0])
    page = dust(light(page, scan, rng), rng)
    return sense(page, scan, rng, size)
