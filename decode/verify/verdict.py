"""What every rule returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The drafted tokens that stay, and the one token more that the target's pass yields for certain.

    accepted  indices of the accepted nodes, from the certain token downwards; of a chain 0..n-1
    token     the id that follows the last of them
    """

    accepted: tuple[int, ...]
    token: int

    @property
    def length(self) -> int:
        """Accepted tokens n; the pass yields n + 1."""
        return len(self.accepted)
