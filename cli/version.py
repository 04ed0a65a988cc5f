"""The version of Pombo that runs. Its only source is pyproject.toml."""

from pathlib import Path

PROJECT_FILE = Path(__file__).parents[1] / "pyproject.toml"


def version() -> str:
    """The version in the checkout's pyproject.toml, else that of the installed package."""
    try:
        text = PROJECT_FILE.read_text()
    except FileNotFoundError:
        from importlib.metadata import version as installed  # slow to import, and every command imports this module

        return installed("pombo")
    import tomllib

    return str(tomllib.loads(text)["project"]["version"])
