"""An LVLM that does what its prompt says: for tests of what a served model can do to its callers.

It is the real one of the serving package; where a word in the prompt says so, its checkpoint sleeps, runs
out of memory, gives logits that are no numbers, or ends its process, and its reply is misshapen.
"""

import os
import time

import numpy as np
import torch

from groundwatch.models.serving.backend import LvlmModel


class TritonPythonModel(LvlmModel):
    def load(self, parameters):
        served = super().load(parameters)
        generate, model = served.checkpoint.model.generate, served.checkpoint.model
        prepare = served._prepare
        wish = []

        def noted(question):
            wish.append(question.prompt)
            return prepare(question)

        def unruly(**asked):
            word = " ".join(wish)
            if "sleep" in word:
                time.sleep(3)
            if "memory" in word:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 26.00 GiB")
            if "die" in word:
                os._exit(1)
            if "bug" in word:
                raise IndexError("index 7 is out of bounds")
            if "nan" in word:
                head = model.lm_head.weight
                kept = head.detach().clone()
                with torch.no_grad():
                    head.mul_(float("nan"))
                try:
                    return generate(**asked)
                finally:
                    with torch.no_grad():
                        head.copy_(kept)
            return generate(**asked)

        served._prepare, model.generate = noted, unruly
        self._wish = wish
        return served

    def run(self, served, asked):
        self._wish.clear()
        results = super().run(served, asked)
        self._shapes = [question.prompt for question in asked]
        return results

    def write(self, result):
        found = super().write(result)
        word = self._shapes.pop(0)
        if "shape" in word:
            found["TOKENS"] = np.array([1, 2, 3], dtype=np.int32)
        if "missing" in word:
            del found["TEXT"]
        return found
