"""A copy of kasmon that speaks another protocol version, run by PYTHONPATH: what an upgrade or a downgrade meets."""

import shutil
from pathlib import Path

import kasmon
from kasmon.host.rpc.frames import VERSION

OLDER, NEWER = VERSION - 1, VERSION + 1
OTHER_KASMON = "0.0.9"


class OtherVersion:
    """The package in a folder of its own, with protocol *protocol*; without *greets* it knows no control frames."""

    def __init__(self, folder: Path, protocol: int, *, greets: bool = True) -> None:
        self.protocol = protocol
        self.folder = folder
        source = Path(kasmon.__file__).parent
        shutil.copytree(source, folder / "kasmon")  # times too, so that what is compiled counts
        self._edit("host/rpc/frames.py", f"\nVERSION = {VERSION}\n", f"\nVERSION = {protocol}\n")
        self._edit("__init__.py", f'"{kasmon.__version__}"', f'"{OTHER_KASMON}"')
        if not greets:
            self._edit("host/rpc/control.py", 'b"KSMN"', 'b"none"')

    def variables(self) -> dict[str, str]:
        """What makes Python take this copy."""
        return {"PYTHONPATH": str(self.folder)}

    def remove_commands(self, group: str) -> None:
        """Remove the commands of *group*, as a version from before them."""
        file = self.folder / "kasmon" / "cli" / "commands.py"
        lines = file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith((f'    "{group} ', f'    "{group}"'))]
        assert len(kept) < len(lines), group
        file.write_text("".join(kept))

    def _edit(self, name: str, before: str, after: str) -> None:
        file = self.folder / "kasmon" / name
        text = file.read_text()
        assert 1 == text.count(before), (name, before)
        file.write_text(text.replace(before, after))
