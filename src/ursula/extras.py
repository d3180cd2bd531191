"""How to install an optional part of Ursula."""


def how_to_install(extra: str) -> str:
    """The command that installs an extra of the package."""
    return f"run pip install -e '.[{extra}]' in the folder of ursula's source"
