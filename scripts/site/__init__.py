"""What the build of the documentation site adds to the pages of docs/."""
