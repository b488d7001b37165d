"""What is promised of a number that a benchmark measures."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Promise:
    what: str
    measured: float
    at_most: float = float("inf")
    at_least: float = float("-inf")

    def holds(self):
        return self.at_least <= self.measured <= self.at_most

    def __str__(self):
        bound = f"at most {self.at_most:g}" if self.at_most < float("inf") else f"at least {self.at_least:g}"
        return f"{self.what}: {self.measured:.3g}, promised {bound}"
