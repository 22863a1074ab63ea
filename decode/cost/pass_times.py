"""Times of a target's passes by width, learned while decoding."""

from __future__ import annotations

from rescore.decode.cost.pass_costs import PassCosts

REMEMBERED = 5  # latest passes kept per width; the fastest counts, since other load on the machine only adds time
SURE = 2  # passes of a width before its time is trusted: the first ones of a process are slow
STALE = 64  # passes after which an unused width is forgotten, so that it is tried again


class PassTimes:
    """Seconds of a target's passes by width, the tokens that they read in all rows together.

    stale: passes after which an unused width is forgotten
    """

    def __init__(self, *, stale: int = STALE) -> None:
        self._stale = stale
        self.latest = 0  # the width of the last pass
        self._passes = 0
        self._seconds: dict[int, tuple[float, ...]] = {}
        self._last: dict[int, int] = {}  # the number of each width's last pass

    def note(self, tokens: int, seconds: float) -> None:
        """Records a pass."""
        before = self._seconds[tokens] if tokens in self.known() else ()
        self._seconds[tokens] = (*before, seconds)[-REMEMBERED:]
        self.latest = tokens
        self._passes += 1
        self._last[tokens] = self._passes  # last, since other threads read the seconds of the widths in it

    def known(self) -> list[int]:
        """Returns recently used widths, ascending, and always the narrowest, which stands for plain decoding."""
        widths = sorted(self._last.items())  # a copy: another thread may note a pass meanwhile
        return [tokens for place, (tokens, last) in enumerate(widths) if not place or self._passes - last < self._stale]

    @property
    def narrowest(self) -> float:
        """Seconds of the narrowest known pass."""
        return min(self._seconds[self.known()[0]])

    @property
    def tried(self) -> bool:
        """Whether at least two widths have had `SURE` passes each, recent or not."""
        return sum(len(one) >= SURE for one in [*self._seconds.values()]) >= 2

    def costs(self) -> PassCosts | None:
        """Returns the costs of the known widths, None unless at least two have `SURE` passes each."""
        known = self.known()
        if sum(len(self._seconds[one]) >= SURE for one in known) < 2:
            return None
        return PassCosts.of_times(known, [min(self._seconds[one]) for one in known])
