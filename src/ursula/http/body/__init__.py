"""Request bodies: reading them within limits, receiving them into a file, or storing them as blobs."""
