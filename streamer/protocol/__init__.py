"""The messages of the daemon and how they travel (docs/protocol.md)."""
