"""How bytes on the wire become values: JSON text, server-sent events, multipart bodies, frames."""
