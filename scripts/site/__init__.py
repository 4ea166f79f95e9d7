"""What the documentation site adds to the pages of docs/ when it is built."""
