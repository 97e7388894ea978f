"""The mean teacher of a stage: an exponential moving average of the weights that train."""

import copy

import torch

from sptnet.model.gcd_model import GcdModel


class MeanTeacher:
    """A model whose trained weights follow those of the student; frozen weights are shared, not copied."""

    def __init__(self, student: GcdModel, trained: list[str]):
        self.student, self.trained = student, trained
        of_teacher = set(trained)
        shared = {id(p): p for name, p in student.named_parameters() if name not in of_teacher}
        shared |= {id(b): b for b in student.buffers()}  # type: ignore[misc]
        self.model = copy.deepcopy(student, shared)  # type: ignore[arg-type]
        self.model.train_only(frozenset())

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Move every trained weight towards the student's by the share 1 - decay."""
        student, teacher = (dict(model.named_parameters()) for model in (self.student, self.model))
        for name in self.trained:
            teacher[name].lerp_(student[name], 1 - decay)
