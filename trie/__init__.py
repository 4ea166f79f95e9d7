"""The dictionary of k-mers: codes, growing trees, the Tree Bitmap snapshot and CPU matching."""
