"""A cache of the Hugging Face Hub as huggingface_hub lays it out, with models from folders."""

import hashlib
from pathlib import Path


def add_model(cache: Path, name: str, folder: Path, revision: str = "main") -> Path:
    """Adds the files of a folder as a model's revision; returns its snapshot."""
    model = cache / f"models--{name.replace('/', '--')}"
    commit = hashlib.sha1(f"{name} {revision}".encode()).hexdigest()
    snapshot, reference = model / "snapshots" / commit, model / "refs" / revision
    for made in (snapshot, model / "blobs", reference.parent):
        made.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)
    for file in sorted(folder.iterdir()):
        blob = model / "blobs" / hashlib.sha256(f"{commit} {file.name}".encode()).hexdigest()
        blob.symlink_to(file.resolve())
        (snapshot / file.name).symlink_to(blob)
    return snapshot
