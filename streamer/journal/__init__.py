"""The durable log: numbered records that survive kills and power loss; others can read them."""
