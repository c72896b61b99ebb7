"""The command that installs a package on this machine."""

import shutil
from typing import Final

MANAGERS: Final = {
    "apt-get": "apt-get install -y {}",
    "dnf": "dnf install -y {}",
    "pacman": "pacman -S --noconfirm {}",
    "zypper": "zypper install -y {}",
    "apk": "apk add {}",
}


def find_install_command(package: str) -> str:
    line = next((line for manager, line in MANAGERS.items() if shutil.which(manager)), "")
    return f"`{line.format(package)}`" if line else f"the package {package}"
