"""CRC-32 by the processor's own instructions, as the server has it; where isal is missing, more slowly.

A Spark executor may have nothing but the standard library and pyarrow.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
