"""Steps and texts of drafters under test."""

from dataclasses import replace

import numpy as np

from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.request_text import RequestText


def texts_of(histories, numbers=None, **facts):
    """Texts of these tokens; of each fact, one for every text."""
    texts = [
        RequestText(np.asarray(history, np.int32), number=number)
        for number, history in zip(numbers or range(len(histories)), histories)
    ]
    for name, values in facts.items():
        for text, value in zip(texts, values):
            setattr(text, name, value)
    return texts


def step_of(histories, room=9, **facts):
    """A step of texts of these tokens; facts: of the step."""
    rooms = [room] * len(histories) if isinstance(room, int) else room
    return DraftStep(texts=texts_of(histories), room=rooms, **facts)


def later(step, histories, **facts):
    """The step at which its texts have grown to these tokens."""
    for text, history in zip(step.texts, histories):
        text.append(np.asarray(history, np.int32)[text.size :])
    return replace(step, **facts)
