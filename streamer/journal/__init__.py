"""The durable log: numbered records that survive kills and power cuts, and are read by others."""
