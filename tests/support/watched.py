"""A drafter that is watched."""

from copy import copy
from dataclasses import replace


class Watched:
    """Keeps the session of a drafter and the steps for which it proposes drafts, as they are then."""

    def __init__(self, drafter):
        self.drafter, self.drawn, self.steps = drafter, drafter.drawn, []

    def open(self, prompts, shaping):
        self.session = self.drafter.open(prompts, shaping)
        return self

    def propose(self, step):
        self.steps.append(replace(step, texts=[copy(text) for text in step.texts]))
        return self.session.propose(step)
