"""Is this k-mer known? A bitset or a hash table, frozen or growing."""
