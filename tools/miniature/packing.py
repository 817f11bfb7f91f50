"""Many texts about one image in one row: the image is encoded once, and no text sees another.

A row is [image prefix][branch][branch]…; a token of a branch attends to the prefix and to its own branch,
and positions start again after the prefix for each branch. A branch alone after the prefix is exactly what
a model sees in use, so training and use agree; the verifier serves its statements the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

IGNORED = -100
NOTHING, ANSWER, PREDICATE, CAPTION = range(4)
"""What a token is trained for."""


class Branch(NamedTuple):
    """A text for one row: token ids, next-token labels, what each is trained for, and a group to count by."""

    ids: list[int]
    labels: list[int]
    roles: list[int]
    group: int = 0


class Batch(NamedTuple):
    """Rows padded to one length (B, L); mask (B, 1, L, L) is added to attention scores."""

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor
    roles: torch.Tensor
    groups: torch.Tensor
    pixels: torch.Tensor


class Packer:
    """Makes branches and batches for a processor."""

    def __init__(self, processor: Any) -> None:
        self.words = processor.tokenizer
        self.end = self.words.eos_token_id
        self.yes, self.no = (self._token(word) for word in ("yes", "no"))
        self._verbs = {self._token(" is"), self._token(" are")}
        self._known: dict[str, list[int]] = {}
        images = processor.image_processor
        self._mean = np.array(images.image_mean, np.float32)
        self._std = np.array(images.image_std, np.float32)
        self._prefixes = {n: self._prefix(processor, n) for n in (1, 2)}

    def _token(self, word: str) -> int:
        ids = self.words(word, add_special_tokens=False).input_ids
        if len(ids) != 1:
            raise ValueError(f"'{word}' is {len(ids)} tokens; the tokenizer has to know it as one")
        return int(ids[0])

    def _prefix(self, processor: Any, number: int) -> list[int]:
        blank = Image.new("RGB", (64, 64))
        content: list[dict[str, Any]] = [{"type": "image", "image": blank} for _ in range(number)]
        content.append({"type": "text", "text": "yes"})
        ids = processor.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=True, return_dict=True, return_tensors="pt"
        )["input_ids"][0].tolist()
        if ids[-2:] != [self.yes, self.end]:
            raise ValueError("the chat template must end with the user's text and the end mark")
        return list(ids[:-2])

    def encode(self, text: str) -> list[int]:
        """Token ids; texts repeat, so they are kept."""
        ids = self._known.get(text)
        if ids is None:
            ids = self.words(text, add_special_tokens=False).input_ids
            if len(self._known) < 200_000:
                self._known[text] = ids
        return ids

    def pixels(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, H, W), as the processor would prepare it."""
        scaled = (np.asarray(image, np.float32) / 255 - self._mean) / self._std
        return np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32)

    def caption(self, prompt: str, text: str) -> Branch:
        """A prompt and its answer; every token of the answer is learnt."""
        asked, said = [*self.encode(prompt), self.end], self.encode(text)
        labels = [IGNORED] * (len(asked) - 1) + [*said, self.end]
        roles = [NOTHING] * (len(asked) - 1) + [CAPTION] * (len(said) + 1)
        return Branch([*asked, *said], labels, roles)

    def statement(self, text: str, truth: bool, group: int, *, closed: bool = False) -> Branch:
        """A statement or question with its yes or no; a true one also teaches what follows its verb.

        `closed` teaches to end after the answer too, for a model that writes its answers.

        Whether a statement fits an image has no signal in image or text alone, so learning from the answer
        alone begins on a plateau. Completing true statements from the image has signal at once.
        """
        ids = [*self.encode(text), self.end]
        labels, roles = [IGNORED] * len(ids), [NOTHING] * len(ids)
        if truth:
            verb = next((at for at, token in enumerate(ids) if token in self._verbs), len(ids))
            for at in range(verb, len(ids) - 2):
                labels[at], roles[at] = ids[at + 1], PREDICATE
        labels[-1], roles[-1] = (self.yes if truth else self.no), ANSWER
        if closed:
            ids.append(labels[-1])
            labels.append(self.end)
            roles.append(CAPTION)
        return Branch(ids, labels, roles, group)

    def batch(self, rows: Sequence[tuple[Sequence[Image.Image], Sequence[Branch]]]) -> Batch:
        """Rows of images (as many in each row) with their branches."""
        prefix = self._prefixes[len(rows[0][0])]
        start = len(prefix)
        length = start + max(sum(len(branch.ids) for branch in branches) for _, branches in rows)
        fills = (self.words.pad_token_id, 0, -1, IGNORED, NOTHING, 0)
        ids, positions, numbers, labels, roles, groups = (
            np.full((len(rows), length), fill, np.int64) for fill in fills
        )
        for at, (_, branches) in enumerate(rows):
            ids[at, :start], positions[at, :start], numbers[at, :start] = prefix, range(start), 0
            here = start
            for number, branch in enumerate(branches, start=1):
                there = here + len(branch.ids)
                ids[at, here:there] = branch.ids
                positions[at, here:there] = range(start, start + len(branch.ids))
                numbers[at, here:there] = number
                labels[at, here:there], roles[at, here:there] = branch.labels, branch.roles
                groups[at, here:there] = branch.group
                here = there
        place = torch.arange(length)
        own = torch.from_numpy(numbers)
        seen = (own[:, None, :] == 0) | (own[:, None, :] == own[:, :, None])
        seen = seen & (place[:, None] >= place[None, :])[None]
        mask = torch.zeros(seen.shape).masked_fill_(~seen, -1e4)[:, None]
        pixels = np.stack([np.stack([self.pixels(image) for image in images]) for images, _ in rows])
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(positions),
            mask,
            torch.from_numpy(labels),
            torch.from_numpy(roles),
            torch.from_numpy(groups),
            torch.from_numpy(pixels),
        )


class Trained(NamedTuple):
    """What a batch asks of a model, at the tokens that have a label."""

    logits: torch.Tensor
    labels: torch.Tensor
    roles: torch.Tensor
    groups: torch.Tensor


def forward(model: Any, batch: Batch) -> Trained:
    """Run an Idefics3 over packed rows; logits (N, vocabulary) of the labelled tokens only."""
    inner = model.model
    features = torch.cat(
        list(inner.get_image_features(pixel_values=batch.pixels, return_dict=True).pooler_output)
    )
    embedded = inner.text_model.get_input_embeddings()(batch.ids)
    where = (batch.ids == model.config.image_token_id)[..., None].expand_as(embedded)
    embedded = embedded.masked_scatter(where, features.reshape(-1, embedded.shape[-1]).to(embedded.dtype))
    hidden = inner.text_model(
        inputs_embeds=embedded, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    ).last_hidden_state
    kept = batch.labels != IGNORED
    return Trained(
        model.lm_head(hidden[kept]).float(), batch.labels[kept], batch.roles[kept], batch.groups[kept]
    )
