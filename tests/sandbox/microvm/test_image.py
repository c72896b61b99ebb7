"""An image of machines is used only where it was built for what this version relies on."""

from pathlib import Path

import msgspec
import pytest

from kasmon.sandbox.microvm import debian_packages, image


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (debian_packages, "PROGRAMS", (*debian_packages.PROGRAMS, "file")),
        (image, "ETC", image.ETC | {"motd": "hello\n"}),
        (image, "FORMAT", image.FORMAT + 1),
    ],
    ids=["another program", "another file", "other steps"],
)
def test_an_image_of_other_inputs_is_not_found_and_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object
) -> None:
    whole = image.VmImage(
        id="0" * 16, made_at=0.0, kernel="6.1", versions={}, hashes={}, modules=(), recipe=image.recipe()
    )
    (tmp_path / image.TOLD).write_bytes(msgspec.json.encode(whole))
    assert image.load_image(tmp_path) == whole

    monkeypatch.setattr(module, name, value)

    assert image.load_image(tmp_path) is None
