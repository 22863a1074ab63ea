"""A drafter that is watched."""


class Watched:
    """Keeps the session of a drafter and the steps for which it proposes drafts."""

    def __init__(self, drafter):
        self.drafter, self.drawn, self.steps = drafter, drafter.drawn, []

    def open(self, prompts, shaping):
        self.session = self.drafter.open(prompts, shaping)
        return self

    def propose(self, step):
        self.steps.append(step)
        return self.session.propose(step)

    def select(self, rows):
        self.session.select(rows)
