"""The settings, and where they come from: defaults < TOML < environment < flags.

- `kinds`: how one type of value is written, read and shown;
- `settings`: every setting, declared once;
- `loading`: finds and checks the values.

Nothing but the configuration file is opened here, and no other part of Ursula is imported.
"""

from .kinds import Address, Secret
from .loading import FILES_SEARCHED, ConfigRefused, LoadedConfig, StartRefused, load
from .settings import (
    KEYS,
    ClusterSettings,
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
    "ClusterSettings",
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
