"""One scale of colours for numbers from 0 to 1: even steps of lightness, so that it reads the same in grey print and
with every kind of colour vision; in OKLCH (Ottosson 2020), the hue from sky to indigo on the way."""

from __future__ import annotations

import functools
import math

STEPS = 64  # so many colours, which is more than an eye tells apart


def shade(value: float, dark: bool = False) -> str:
    """The colour of a value, as #rrggbb: from paper to ink; `dark`: from night to light."""
    return _scale(dark)[round(min(1.0, max(0.0, value)) * (STEPS - 1))]


@functools.cache
def _scale(dark: bool) -> list[str]:
    ends = (0.25, 0.95) if dark else (0.975, 0.27)
    return [_hex(*_point(i / (STEPS - 1), *ends)) for i in range(STEPS)]


def _point(x: float, first: float, last: float) -> tuple[float, float, float]:
    """Lightness, chroma and hue at x."""
    lightness = first + (last - first) * x
    ink = (0.975 - lightness) / 0.7
    return lightness, 0.015 + 0.15 * math.sin(math.pi * min(1.0, max(0.0, 0.92 * ink))), 235 + 45 * ink


def _hex(lightness: float, chroma: float, hue: float) -> str:
    """The sRGB colour; as much less colourful as it must be to exist."""
    while True:
        linear = _linear(lightness, chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue)))
        if all(-1e-4 <= one <= 1 + 1e-4 for one in linear) or chroma < 1e-3:
            break
        chroma *= 0.97
    clipped = [min(1.0, max(0.0, one)) for one in linear]
    encoded = [12.92 * one if one <= 0.0031308 else 1.055 * one ** (1 / 2.4) - 0.055 for one in clipped]
    return "#" + "".join(f"{round(255 * one):02x}" for one in encoded)


def _linear(lightness: float, a: float, b: float) -> tuple[float, float, float]:
    """OKLab to linear sRGB, with Ottosson's numbers."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
