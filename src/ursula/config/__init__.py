"""What can be set, and how a setting is found: defaults < TOML < environment < flags.

- `kinds`: how one type of value is written, read and shown;
- `settings`: every setting, declared once;
- `loading`: finds and checks the values.

Nothing is opened here but the configuration file, and no other package of ours is imported.
"""

from .kinds import Address, Secret
from .loading import FILES_SEARCHED, ConfigRefused, LoadedConfig, StartRefused, load
from .settings import (
    KEYS,
    ColdSettings,
    CorsSettings,
    HttpSettings,
    LimitsSettings,
    LoggingSettings,
    LogKind,
    ServerSettings,
    Settings,
)

__all__ = [
    "FILES_SEARCHED",
    "KEYS",
    "Address",
    "ColdSettings",
    "ConfigRefused",
    "CorsSettings",
    "HttpSettings",
    "LimitsSettings",
    "LoadedConfig",
    "LogKind",
    "LoggingSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "StartRefused",
    "load",
]
