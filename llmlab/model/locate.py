"""From what a reader calls a model to the folder that holds it."""

from pathlib import Path

from llmlab.json_file import local_path

EMBEDDED_MODEL = Path(__file__).parent.parent / "assets" / "toyworld"


def locate_model(name_or_path: str | Path | None = None) -> Path:
    """The folder of a model: a local one, the Hub's copy of a name, or (None) the embedded model.

    The Hub is asked only where no local folder has that name; its files are cached by
    huggingface_hub, and JSON and safetensors are all that is fetched.

    Raises FileNotFoundError where there is no such folder and the Hub cannot give it, and
    ValueError for an empty name.
    """
    if name_or_path is None:
        if not (EMBEDDED_MODEL / "config.json").is_file():
            raise FileNotFoundError(
                f"the embedded model is not at {EMBEDDED_MODEL}: run `make train` in a checkout"
            )
        return EMBEDDED_MODEL
    path = local_path(name_or_path)
    if path.is_dir():
        return path
    if path.is_file():
        raise FileNotFoundError(f"{path} is a file: give the folder that holds config.json")
    if _can_be_hub_name(name_or_path):
        return _fetch_from_hub(str(name_or_path))
    raise FileNotFoundError(f"there is no folder {path}")


def _can_be_hub_name(name_or_path: str | Path) -> bool:
    """A Hub name is a str, "name" or "owner/name"; anything else can only be meant as a path."""
    if not isinstance(name_or_path, str) or "\\" in name_or_path:
        return False
    parts = name_or_path.split("/")
    return len(parts) <= 2 and all(part and not part.startswith((".", "~")) for part in parts)


def _fetch_from_hub(name: str) -> Path:
    """Downloads, or finds in the local Hub cache, the files at the top of a model's repository."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name,
            allow_patterns=["*.json", "*.safetensors"],
            # Other formats of the same weights: in subfolders, or Mistral's own single file.
            ignore_patterns=["*/*", "consolidated*"],
        )
    except Exception as error:  # no network, no such model, no permission: all have one remedy
        reason = str(error).strip().splitlines() or [""]
        raise FileNotFoundError(
            f"there is no local folder {name!r}, and the Hugging Face Hub gave no model of that "
            f"name ({type(error).__name__}: {reason[0]}). Give the path of a downloaded folder, or "
            "None for the embedded model, which needs no network"
        ) from error
    return Path(folder)
