"""CRC-32 from isal, which uses the processor's own instructions, or from zlib, which is slower.

The server has isal; a Spark executor may have nothing but the standard library and pyarrow.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
