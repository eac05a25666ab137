"""The data adapter ``timm``: ``--data 'timm:FOLDER?model=vit_tiny_patch16_224'``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_timm.library import timm, torchvision
from landscape_timm.models import check_name


def open_folder(
    target: str, *, model: str, img_size: int | None = None, test_size: bool = False
) -> Dataset[Any]:
    """Open a folder of pictures, one folder per class, as a model of timm was evaluated on them.

    Size, crop, interpolation, mean and deviation come from the model's data configuration.
    There is no augmentation: a sample is the same every time.

    Args:
        target: the folder.
        model: the name of the model, with the tag of its weights where they differ.
        img_size: side in pixels, where it is not the configured one.
        test_size: whether to use the larger size that some models are tested with.

    Raises:
        AdapterError: If there is no such folder, picture or model.
    """
    check_name(model)
    for name, value in (("img_size", img_size), ("test_size", test_size)):
        _check(name, value)
    folder = Path(target).expanduser()
    if not folder.is_dir():
        raise AdapterError(
            "the folder of pictures does not exist", seen=folder, hint="--data timm:FOLDER?model=…"
        )
    transform = timm.data.create_transform(
        **_configuration(model, img_size, test_size=test_size), is_training=False
    )
    try:
        return torchvision.datasets.ImageFolder(str(folder), transform=transform)  # type: ignore[no-any-return]
    except (OSError, RuntimeError) as error:
        raise AdapterError(
            "the folder does not hold one folder of pictures per class",
            seen=f"{folder}: {str(error).splitlines()[0]}",
            hint="FOLDER/cat/1.jpg, FOLDER/dog/2.jpg, …",
        ) from error


def _configuration(model: str, img_size: int | None, *, test_size: bool) -> dict[str, Any]:
    known = timm.get_pretrained_cfg(model)
    asked = {} if img_size is None else {"img_size": img_size}
    found: dict[str, Any] = timm.data.resolve_data_config(
        asked, pretrained_cfg=known.to_dict() if known else {}, use_test_size=test_size
    )
    return found


def _check(name: str, value: object) -> None:
    allowed = type(value) is bool if name == "test_size" else value is None or _is_side(value)
    if not allowed:
        raise AdapterError(
            f"the option {name!r} cannot be {value!r}",
            seen=f"{name}={value}",
            hint="give True or False" if name == "test_size" else "give the side in pixels",
        )


def _is_side(value: object) -> bool:
    return type(value) is int and value > 0
