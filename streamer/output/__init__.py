"""What commands write: rows for users, and files that appear atomically."""
