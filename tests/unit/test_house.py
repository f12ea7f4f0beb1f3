"""Every room stays within its budget of tokens and files (house.toml)."""

from house import measure


def test_every_room_stays_within_its_budget() -> None:
    over = [room for room in measure() if room.is_over]
    assert not over, (
        "make the room smaller, or raise its budget in house.toml with a reason: python tools/house.py"
    )
