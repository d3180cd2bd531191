"""Opens the stores of jobs, on the driver."""

from ..cold.objects.open import open_at
from ..cold.objects.store import Store
from ..config import ColdSettings, Secret
from ..spark.options import S3Options


def open_store(where: str, s3: S3Options) -> Store:
    """The store in a folder or at s3://bucket/prefix."""
    cold = ColdSettings(
        s3_endpoint=s3.endpoint or "",
        s3_region=s3.region or "",
        s3_access_key_id=s3.access_key_id or "",
        s3_secret_access_key=Secret(s3.secret_access_key or ""),
        s3_session_token=Secret(s3.session_token or ""),
    )
    return open_at(where, cold)
