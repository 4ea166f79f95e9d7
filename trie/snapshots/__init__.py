"""The Tree Bitmap snapshot (thesis 3.3.2-3.3.3): its arrays, its file and the walk through it."""
