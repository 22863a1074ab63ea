"""Times of a target's passes by their width, learned while decoding."""

from __future__ import annotations

from rescore.decode.cost.pass_costs import PassCosts

REMEMBERED = 5  # passes of each width, the fastest of which counts: what else the machine does only adds to it
SURE = 2  # passes of a width before its time is relied on: the first ones of a process are slow
STALE = 64  # passes after which a width that was not used is forgotten: what seemed dear is tried again


class PassTimes:
    """Seconds of a target's passes, by the tokens that they read in all rows together.

    stale: passes after which a width that was not used is forgotten
    """

    def __init__(self, *, stale: int = STALE) -> None:
        self._stale = stale
        self.latest = 0  # the width of the last pass
        self._passes = 0
        self._seconds: dict[int, tuple[float, ...]] = {}
        self._last: dict[int, int] = {}  # the number of each width's last pass

    def note(self, tokens: int, seconds: float) -> None:
        before = self._seconds[tokens] if tokens in self.known() else ()
        self._seconds[tokens] = (*before, seconds)[-REMEMBERED:]
        self.latest = tokens
        self._passes += 1
        self._last[tokens] = self._passes  # now another thread may look at its seconds

    def known(self) -> list[int]:
        """Widths of late, ascending, and the least ever: whether drafts pay is seen from a plain pass."""
        widths = sorted(self._last.items())  # of a copy: another thread may note a pass meanwhile
        return [tokens for place, (tokens, last) in enumerate(widths) if not place or self._passes - last < self._stale]

    @property
    def narrowest(self) -> float:
        """Seconds of the narrowest passes known."""
        return min(self._seconds[self.known()[0]])

    @property
    def tried(self) -> bool:
        """Whether two widths were ever known, of `SURE` passes each."""
        return sum(len(one) >= SURE for one in [*self._seconds.values()]) >= 2

    def costs(self) -> PassCosts | None:
        """None unless two widths are known, of `SURE` passes each."""
        known = self.known()
        if sum(len(self._seconds[one]) >= SURE for one in known) < 2:
            return None
        return PassCosts.of_times(known, [min(self._seconds[one]) for one in known])
