"""Every dataset has two colours of its own, which readers with any kind of colour blindness tell apart."""

from itertools import combinations

import numpy as np
import pytest

from anchorscope.report.palette import dataset_styles

FOUR = ("popqa", "triviaqa", "hotpotqa", "nq")
SEEN = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
"""What is seen of a colour, as matrices of linear light (Machado, Oliveira and Fernandes 2009, full severity)."""
LEAST = 12.0
"""CIEDE2000 between two lines' colours: 2 is just told apart side by side; Matplotlib's blue and purple have 1.9."""


def linear(colour: str) -> np.ndarray:
    """Linear light of a hexadecimal colour."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIELAB under D65."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    scaled = to_xyz @ np.clip(light, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(
        scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ciede2000(one: np.ndarray, other: np.ndarray) -> float:
    """How different two colours look."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean7 = ((np.hypot(a1, b1) + np.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * np.sqrt(mean7 / (mean7 + 25**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = (
        np.degrees(np.arctan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2))
    )
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    weight = (
        1
        - 0.17 * np.cos(np.radians(hue - 30))
        + 0.24 * np.cos(np.radians(2 * hue))
        + 0.32 * np.cos(np.radians(3 * hue + 6))
        - 0.20 * np.cos(np.radians(4 * hue - 63))
    )
    along = (l2 - l1) / (
        1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    )
    wide = (c2 - c1) / (1 + 0.045 * chroma)
    around = (
        2
        * np.sqrt(c1 * c2)
        * np.sin(np.radians(turn / 2))
        / (1 + 0.015 * chroma * weight)
    )
    blue = 30 * np.exp(-(((hue - 275) / 25) ** 2))
    rotation = (
        -2 * np.sqrt(chroma**7 / (chroma**7 + 25**7)) * np.sin(np.radians(2 * blue))
    )
    return float(np.sqrt(along**2 + wide**2 + around**2 + rotation * wide * around))


def test_the_measure_of_difference_is_the_published_one():
    """Pairs of the test data of Sharma, Wu and Dalal (2005)."""
    pairs = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (61, -5, 29), 22.8977),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ]
    for one, other, expected in pairs:
        assert ciede2000(np.array(one), np.array(other)) == pytest.approx(
            expected, abs=1e-4
        )


@pytest.mark.parametrize("eyes", SEEN)
def test_lines_of_one_style_are_told_apart(eyes):
    seen = [
        lab(SEEN[eyes] @ linear(look.colour)) for look in dataset_styles(FOUR).values()
    ]
    assert min(ciede2000(one, other) for one, other in combinations(seen, 2)) >= LEAST


def test_every_line_stands_out_from_paper():
    for look in dataset_styles(
        (*FOUR, "atlas", "mine", "yours", "theirs", "ours")
    ).values():
        # WCAG asks 3 of graphics
        assert 1.05 / (linear(look.colour) @ [0.2126, 0.7152, 0.0722] + 0.05) >= 2.9


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize(
    "datasets", [("mine", "yours"), ("mine", "yours", "theirs", "ours")]
)
def test_datasets_of_ones_own_are_told_apart_too(eyes, datasets):
    looks = dataset_styles(datasets)
    seen = [lab(SEEN[eyes] @ linear(look.colour)) for look in looks.values()]
    assert min(ciede2000(one, other) for one, other in combinations(seen, 2)) >= LEAST
    assert len({look.marker for look in looks.values()}) == len(datasets)


def test_no_dataset_takes_a_look_that_another_has():
    names = ("mine", "popqa", "yours", "nq", "theirs")
    looks = dataset_styles(names)
    assert len(set(looks.values())) == len(names)
    assert looks["popqa"] == dataset_styles(["popqa"])["popqa"]
